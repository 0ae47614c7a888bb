"""Batches, optimizer steps, and the one training loop.

Architectures are in `models`.
"""
