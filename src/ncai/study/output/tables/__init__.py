"""Tables of the studies, ours beside the published numbers."""
