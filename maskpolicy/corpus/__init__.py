"""Text becomes tokenised passages with columns of annotations.

Downstream tasks are in `formats`.
"""
