"""The inference methods, one file each: settings, starting point, fit."""
