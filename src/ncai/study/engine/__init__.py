"""Cells, the store of their results, and the runner."""
