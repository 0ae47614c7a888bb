"""Artifacts on disk, addressed by the digest of all that they depend on.

Nothing here knows what a stage computes.
"""
