"""The graph of stages: what a stage is, how a run is planned, and how it is executed.

Stages are defined in `stages`.
"""
