"""Benchmarks of speed and of quality; they need a clone of the repository."""
