"""Build, load and pre-train models: text-to-text and encoders.

Fine-tuning on a task is in `heads`.
"""
