"""Cells, the store of what is done, and the runner."""
