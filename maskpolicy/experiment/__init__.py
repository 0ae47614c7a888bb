"""Experiment files: parsed, checked and completed into frozen dataclasses.

This package trains nothing and reads no data.
"""
