"""How fast a policy helps: score against steps of the intermediate stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy.curves import panels, points
from maskpolicy.findings import Findings
from maskpolicy.registry import analysis
from maskpolicy.results import Run
from maskpolicy.store import Store

COLUMNS = ("run", "policy", "task", "steps", "score", "std", "low", "high", "seeds")


@analysis("efficiency")
@dataclass(frozen=True)
class Efficiency:
    """Score against steps of the intermediate stage, with the spread over fine-tuning seeds.

    Needs models that were kept on the way: `keep_at: [250, 500]` in the experiment. Step 0 is the
    row `none`. Lines are means over seeds, bands go from the lowest seed to the highest.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Put together what the runs scored before, during and after the intermediate stage."""
        found, notes = points(runs)
        rows = [
            {
                "run": point.run,
                "policy": point.policy,
                "task": point.task,
                "steps": point.steps,
                "score": point.mean,
                "std": point.std,
                "low": min(point.scores),
                "high": max(point.scores),
                "seeds": len(point.scores),
            }
            for point in found
        ]
        columns = COLUMNS if len(runs) > 1 else COLUMNS[1:]
        lines = panels(found, "steps of the intermediate stage", lambda point: point.steps)
        return Findings(columns, tuple(rows), tuple(notes), tuple(lines))
