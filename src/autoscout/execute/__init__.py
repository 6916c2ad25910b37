"""Where jobs run: one module per executor."""
