"""Peers, each a file that runs without ncai, in an environment of their own."""
