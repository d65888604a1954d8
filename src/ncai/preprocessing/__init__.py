"""From a user's columns and units to the numbers that a network is trained on."""
