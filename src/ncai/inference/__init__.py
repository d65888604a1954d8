"""The methods; each file reads: settings, initial value, fit."""
