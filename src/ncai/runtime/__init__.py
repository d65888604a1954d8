"""What the package needs of the machine: JAX's set-up, Ctrl-C and safe files."""
