"""Adapters of fitted models for other libraries."""
