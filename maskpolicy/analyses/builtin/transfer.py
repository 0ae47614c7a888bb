"""How well a policy learnt on some tasks transfers to others."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy import Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses.plots import Grid

COLUMNS = ("run", "policy", "learnt_on", "task", "difference", "score", "reference", "seeds", "own")


@analysis("transfer", heading="What policies learnt on one task do on others", place=30)
@dataclass(frozen=True)
class Transfer:
    """Scores of policies learnt on some tasks (`train_on`), on every task, against a reference row.

    `difference` is that of the mean scores over shared seeds, in percentage points; `own` is "yes"
    for tasks that the policy was learnt on.
    """

    reference: str = "salient-span"  # label of a row, or name of its policy

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Compare the scores of each run's learned rows with those of its reference row."""
        rows: list[Json] = []
        notes: list[str] = []
        panels = []
        for run in runs:
            learned = _learned(run)
            label = self._reference(run)
            if label is None:
                notes.append(
                    f"{run.name}: has no row {self.reference!r}: set another with reference=ROW"
                )
            elif not learned:
                notes.append(f"{run.name}: has no learned policy (with train_on)")
            else:
                found = [
                    _row(run, *one, task, label) for one in learned.items() for task in run.tasks
                ]
                rows += found
                panels.append(_panel(run, learned, found, label))
        columns = COLUMNS if len(runs) > 1 else COLUMNS[1:]
        return Findings(columns, tuple(rows), tuple(notes), tuple(panels))

    def _reference(self, run: Run) -> str | None:
        labels = {result.policy: result.config["policy"]["name"] for result in run.results}
        if self.reference in labels:
            return self.reference
        return next((label for label, name in labels.items() if name == self.reference), None)


def _learned(run: Run) -> dict[str, list[str]]:
    """Return the tasks that each learned row was fitted on, in the order of the rows."""
    stated = {
        result.policy: result.config["policy"]["train_on"]
        for result in run.results
        if result.config["policy"].get("train_on")
    }
    order = [label for label in run.policies if label in stated]
    order += [label for label in stated if label not in order]
    return {label: _names(stated[label]) for label in order}


def _names(stated: Json) -> list[str]:
    names = [stated] if isinstance(stated, str) else stated
    return [one["name"] if isinstance(one, dict) else str(one) for one in names]


def _row(run: Run, label: str, tasks: list[str], task: str, reference: str) -> Json:
    scores, others = _scores(run.results, label, task), _scores(run.results, reference, task)
    seeds = sorted(scores.keys() & others.keys())
    score = statistics.fmean(scores[seed] for seed in seeds) if seeds else None
    other = statistics.fmean(others[seed] for seed in seeds) if seeds else None
    return {
        "run": run.name,
        "policy": label,
        "learnt_on": ", ".join(tasks),
        "task": task,
        "difference": None if score is None or other is None else score - other,
        "score": score,
        "reference": other,
        "seeds": len(seeds),
        "own": "yes" if task in tasks else "",
    }


def _scores(results: Sequence[Result], label: str, task: str) -> dict[int, float]:
    """Return the scores of a cell by seed, in percent."""
    return {
        result.seed: 100 * result.metrics.score
        for result in results
        if (result.policy, result.task) == (label, task) and result.metrics is not None
    }


def _panel(run: Run, learned: dict[str, list[str]], found: list[Json], reference: str) -> Grid:
    values = [[row["difference"] for row in found if row["policy"] == label] for label in learned]
    names = [
        label if label.endswith(", ".join(tasks)) else f"{label} ({', '.join(tasks)})"
        for label, tasks in learned.items()
    ]
    title = f"difference to {reference} (points)"
    return Grid(title, names, list(run.tasks), values, "used for", "learnt on", True)
