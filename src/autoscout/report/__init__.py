"""Shows one study: text, page, tables, and the folder that runs the answer. Decides nothing; see `analysis`."""
