"""From rows to a fitted posterior: hold out, search, train, stack, recalibrate."""
