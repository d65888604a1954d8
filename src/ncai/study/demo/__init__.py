"""The demo: one synthetic set with a known density, fitted by three methods."""
