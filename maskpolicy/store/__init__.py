"""Artifacts on disk, addressed by a digest of everything that they depend on.

This package does not know what a stage computes.
"""
