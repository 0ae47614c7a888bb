"""Workers, which compute the stages of an experiment, on this machine or on others.

Each worker plans the same `Request` and computes the stages that it can claim (`stage_worker`).
What a stage computes, and the order of stages, are decided in the packages below this one.
"""
