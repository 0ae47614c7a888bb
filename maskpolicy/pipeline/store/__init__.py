"""Artifacts in a folder or a bucket, addressed by a digest of everything that they depend on.

This package does not know what a stage computes.
"""

DEFAULT = ".maskpolicy/store"  # of a command, below the working directory
