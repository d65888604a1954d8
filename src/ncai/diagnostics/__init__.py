"""Checks of a fitted model: latents, calibration, scores, importance of inputs."""
