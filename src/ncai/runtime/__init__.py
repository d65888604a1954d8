"""What the package needs from the system: JAX's set-up, Ctrl-C and safe files."""
