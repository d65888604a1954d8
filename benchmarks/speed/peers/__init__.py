"""What a researcher would write without this package: scripts that stand alone."""
