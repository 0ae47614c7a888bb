"""The graph of stages: what a stage is, what a run would compute, and the run itself."""

from __future__ import annotations

from maskpolicy.execution import execute
from maskpolicy.nodes import Commit, Run, Stage, sinks, stage, topological
from maskpolicy.outcomes import Outcome, Progress
from maskpolicy.planning import Planned, plan

__all__ = [
    "Commit",
    "Outcome",
    "Planned",
    "Progress",
    "Run",
    "Stage",
    "execute",
    "plan",
    "sinks",
    "stage",
    "topological",
]
