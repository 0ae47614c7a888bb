"""Leaderboards: results joined into rows, statistical tests, and output formats.

Everything here is derived from stored results and predictions; no model runs.
"""
