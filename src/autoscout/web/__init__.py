"""The dashboard: studies of a folder or a store, live, in a browser."""
