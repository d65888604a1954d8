"""Fitted models in the form of other libraries."""
