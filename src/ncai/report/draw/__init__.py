"""What the sections draw with: axes, SVG marks and shaded densities."""
