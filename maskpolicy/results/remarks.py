"""Notes of a leaderboard about its runs: their data, and cells that are left out or dropped."""

from __future__ import annotations

from collections.abc import Sequence

from maskpolicy.formats import audit
from maskpolicy.results.cell import Run

_NAMED = 6  # cells that a note names


def of(runs: Sequence[Run]) -> list[str]:
    """Return all notes; those of several runs begin with the run's name."""
    found = []
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        about = [left_out(run), dropped(run), *data(run)]
        found += [f"{prefix}{line}" for line in about if line]
    return found


def left_out(run: Run) -> str:
    """Return what --only left out, "" for nothing."""
    if not run.left_out:
        return ""
    count = len(run.left_out)
    were = "cell was" if count == 1 else "cells were"
    return f"{count} {were} left out by --only: {_some(run.left_out)}"


def dropped(run: Run) -> str:
    """Return which results of earlier experiments lie in a run's folder, "" for none."""
    if not run.dropped:
        return ""
    count = len(run.dropped)
    cells = "result of a cell" if count == 1 else "results of cells"
    return (
        f"not on this board, but kept in results/: {count} {cells} that the experiment no longer "
        f"has ({_some(run.dropped)})"
    )


def data(run: Run) -> list[str]:
    """Return what the audits of a run's tasks found, by task."""
    audits = {one.task: one.audit for one in run.results if one.audit is not None}
    return [
        line for task in run.columns if task in audits for line in audit.notes(task, audits[task])
    ]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
