"""The posterior predictive distribution and everything one asks of it."""
