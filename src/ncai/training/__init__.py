"""The compiled training loop and the short Python loop that drives it."""
