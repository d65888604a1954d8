"""A table and its model: read, fit, predict, inspect."""
