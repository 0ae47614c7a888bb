"""Rows of data files: which formats there are, where a row stands, and typed values of its fields."""
