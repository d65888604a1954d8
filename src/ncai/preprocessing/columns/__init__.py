"""The kinds of columns that a table may have, and how each becomes numbers."""
