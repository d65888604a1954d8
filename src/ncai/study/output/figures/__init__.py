"""Figures of the studies, from what their cells stored."""
