"""Claims of papers as data: contrasts of rows, what runs hold about them, and verdicts by rule."""
