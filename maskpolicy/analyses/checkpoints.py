"""Scores of fine-tuned checkpoints over the cost of pre-training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from maskpolicy import Findings, Result, Run, Store, analysis
from maskpolicy.findings import Point, panels, points
from maskpolicy.results.cell import STEP

COLUMNS = ("run", "policy", "task", "steps", "seconds", "tokens", "score", "std", "seeds")
TOKENS = ("source_tokens", "target_tokens", "feedback_tokens")  # in a result's work
UNITS = {"seconds": "seconds of pre-training", "tokens": "source and target tokens"}


@analysis("checkpoints")
@dataclass(frozen=True)
class CheckpointScores:
    """Score of fine-tuned checkpoints over pre-training time (Meng et al. 2024, figure 3).

    Like `efficiency`, with the same checkpoints (`checkpoint_steps`), but over the cost of the
    steps, which differs between policies. `tokens` counts source and target tokens, also those that
    a policy reads to annotate passages again. `seconds` is the stage's time on the machine that
    trained it, divided in proportion to tokens.
    """

    over: Literal["seconds", "tokens"] = "seconds"

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Combine the score and the cost of every checkpoint."""
        found, notes = points(runs)
        costs = {id(point): _cost(point, found, store) for point in found}
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
        return Findings(columns, tuple(rows), tuple(notes), tuple(lines), bool(unknown))


def _cost(point: Point, found: Sequence[Point], store: Store) -> dict[str, float | None]:
    """Return seconds and tokens of the training up to a point, means over intermediate runs."""
    if not point.steps:
        return {"seconds": 0.0, "tokens": 0.0}
    line = [p for p in found if (p.run, p.policy, p.task) == (point.run, point.policy, point.task)]
    whole = line[-1]
    tokens = _mean([_tokens(result) for result in point.results])
    total = _mean([_tokens(result) for result in whole.results])
    seconds = _mean([_seconds(result, store) for result in whole.results])
    if whole.steps == point.steps:
        return {"seconds": seconds, "tokens": tokens}
    share = tokens / total if tokens is not None and total else None
    if seconds is None or share is None:
        return {"seconds": None, "tokens": tokens}
    return {"seconds": seconds * share, "tokens": tokens}


def _tokens(result: Result) -> float | None:
    work = result.work
    if work is None:
        return None
    return float(sum(work.get(name, 0) for name in TOKENS))


def _seconds(result: Result, store: Store) -> float | None:
    """Return the seconds of the intermediate stage and its parts, with interrupted attempts."""
    if STEP in result.config:
        return None
    keys = [key for name, key in result.stages.items() if name.startswith("intermediate")]
    known = [store.recall(key) for key in keys]  # parts are dropped after use
    if not known or None in known:
        return None
    return float(sum(each["seconds"] for each in known if each is not None))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
