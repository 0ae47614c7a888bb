"""Notes of a leaderboard about its runs: problems of their data, and missing or dropped cells."""

from __future__ import annotations

from collections.abc import Sequence

from maskpolicy.config.task_blocks import SHORT_ANSWERS, lacks_short_answers
from maskpolicy.formats import audit
from maskpolicy.results.cell import Run

_NAMED = 6  # the most cells that a note lists


def every_note(runs: Sequence[Run]) -> list[str]:
    """Return all notes; if there are several runs, each note begins with the run's name."""
    notes = []
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        about = [
            left_out(run),
            dropped(run),
            uncounted(run),
            shrunk(run),
            *unanswered(run),
            *data(run),
        ]
        notes += [f"{prefix}{line}" for line in about if line]
    return notes


def left_out(run: Run) -> str:
    """Return a note with the cells that --only left out, or ""."""
    if not run.left_out:
        return ""
    count = len(run.left_out)
    were = "cell was" if count == 1 else "cells were"
    return f"{count} {were} left out by --only: {_some(run.left_out)}"


def dropped(run: Run) -> str:
    """Return a note with the stored results that the experiment no longer has, or ""."""
    if not run.dropped:
        return ""
    count = len(run.dropped)
    cells = "result of a cell" if count == 1 else "results of cells"
    return (
        f"not on this board, but kept in results/: {count} {cells} that the experiment no longer "
        f"has ({_some(run.dropped)})"
    )


def uncounted(run: Run) -> str:
    """Return a note with the rows whose counts of masked tokens the store has lost, or ""."""
    lost = [
        one.policy
        for one in run.results
        if one.metrics is not None and one.work is None and "intermediate" in one.config
    ]
    if not lost:
        return ""
    rows = _some(list(dict.fromkeys(lost)))
    return f"no counts of masked tokens for {rows}: work.json is missing or damaged in the store"


def shrunk(run: Run) -> str:
    """Return a note with the trainings in which memory ran out, or ""."""
    trainings = {name: how for one in run.results for name, how in (one.shrunk or {}).items()}
    if not trainings:
        return ""
    some = [
        f"{name} with {how['micro_tokens']} from step {how['step']}"
        for name, how in trainings.items()
    ]
    return (
        "memory ran out, and trainings went on with smaller micro_tokens, which changes gradients "
        f"by rounding alone, and draws other dropout: {_some(some)}"
    )


def unanswered(run: Run) -> list[str]:
    """Return a note for each column with a metric that finds no short answer in its rows."""
    notes: dict[str, None] = {}
    for one in run.results:
        block = one.config.get("task", {})
        metrics = () if one.metrics is None else (one.metrics.metric, *one.metrics.parts)
        for metric in metrics:
            where = (block.get("name", ""), block.get("data", ""))
            if lacks_short_answers(*where, metric, one.config.get("world", {})):
                notes[f"{one.task}: {SHORT_ANSWERS.format(metric=metric)}"] = None
    return list(notes)


def data(run: Run) -> list[str]:
    """Return the notes of the audits of a run's tasks."""
    audits = {one.task: one.audit for one in run.results if one.audit is not None}
    return [
        line for task in run.columns if task in audits for line in audit.notes(task, audits[task])
    ]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
