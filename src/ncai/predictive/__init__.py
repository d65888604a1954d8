"""The posterior predictive distribution and everything computed from it."""
