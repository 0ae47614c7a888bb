"""Claims of papers as data: contrasts of rows, the evidence of runs, and verdicts by rule."""
