"""Scores of fine-tuned checkpoints over the cost of pre-training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from maskpolicy import Findings, Run, Store, analysis
from maskpolicy.findings import panels, points
from maskpolicy.findings.curves import UNITS, cost

COLUMNS = ("run", "policy", "task", "steps", "seconds", "tokens", "score", "std", "seeds")


@analysis("checkpoints", heading="Scores over time or tokens", place=130)
@dataclass(frozen=True)
class CheckpointScores:
    """Score of fine-tuned checkpoints over pre-training time (Meng et al. 2024).

    Like `efficiency`, with the same checkpoints (`checkpoint_steps`), but over the cost of the
    steps, which differs between policies. `tokens` counts source and target tokens, also those that
    a policy reads to annotate passages again. `seconds` is the stage's time on the machine that
    trained it, divided in proportion to tokens.
    """

    over: Literal["seconds", "tokens"] = "seconds"

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Combine the score and the cost of every checkpoint."""
        found, notes = points(runs)
        costs = {id(point): cost(point, found, store) for point in found}
        rows = [
            {
                "run": point.run,
                "policy": point.policy,
                "task": point.task,
                "steps": point.steps,
                "seconds": costs[id(point)]["seconds"],
                "tokens": costs[id(point)]["tokens"],
                "score": point.mean,
                "std": point.std,
                "seeds": len(point.scores),
            }
            for point in found
        ]
        unknown = sorted({p.label for p in found if costs[id(p)][self.over] is None})
        notes += [
            f"{label}: its intermediate stage, which records its seconds, is not in the store "
            f"{store.place}" for label in unknown
        ]  # fmt: skip
        lines = panels(found, UNITS[self.over], lambda point: costs[id(point)][self.over])
        columns = COLUMNS if len(runs) > 1 else COLUMNS[1:]
        return Findings(columns, tuple(rows), tuple(notes), tuple(lines), partial=bool(unknown))
