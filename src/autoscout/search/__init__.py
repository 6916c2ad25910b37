"""Who proposes: one module per searcher."""
