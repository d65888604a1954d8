"""Noise-Constrained Approximate Inference."""
