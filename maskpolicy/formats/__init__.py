"""The official files of tasks become examples.

What a model makes of them is in `heads`.
"""
