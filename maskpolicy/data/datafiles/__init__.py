"""Rows of data files: the formats, the place of a row for messages, and its typed values."""
