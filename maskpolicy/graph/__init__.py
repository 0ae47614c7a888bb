"""The graph of stages: what a stage is, what a run would compute, and the run.

No stage is defined here.
"""
