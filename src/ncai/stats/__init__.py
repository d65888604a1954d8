"""Statistics of points and scores of predictions, apart from any model."""
