"""Baselines and peers that our methods are compared with."""
