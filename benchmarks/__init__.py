"""Side-by-side speed measurements against the neighbours: `python -m benchmarks`."""
