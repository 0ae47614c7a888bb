"""Reduce an experiment's graph to the cells that `--only` names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.stages.assembly import Graph

CellName = TypeVar("CellName", bound=tuple[object, ...])


def choose_cells(graph: Graph, only: Sequence[str]) -> Graph:
    """Return the graph of the cells that any word of `only` names; all cells if it is empty.

    A word is ROW, ROW/TASK or /TASK. Raises ConfigError for an unknown row or task.
    """
    if not only:
        return graph
    rows = list(dict.fromkeys(row for row, _, _ in graph.cells))
    tasks = list(dict.fromkeys(task for _, task, _ in graph.cells))
    named = [_named(word, rows, tasks) for word in only]
    cells, early = _of(graph.cells, named), _of(graph.early, named)
    labels = {task for _, task, _ in cells}
    return replace(
        graph,
        stages=(*cells.values(), *early.values()),
        cells=cells,
        early=early,
        majority={task: stage for task, stage in graph.majority.items() if task in labels},
        audits={task: stage for task, stage in graph.audits.items() if task in labels},
    )


def _of(cells: Mapping[CellName, Stage], named: Iterable[tuple[str, str]]) -> dict[CellName, Stage]:
    named = list(named)
    return {
        cell: stage
        for cell, stage in cells.items()
        if any(row in ("", cell[0]) and task in ("", cell[1]) for row, task in named)
    }


def _named(word: str, rows: Sequence[str], tasks: Sequence[str]) -> tuple[str, str]:
    """Return the row and task that a word names ("" for any); labels may contain a slash."""
    if word in rows:
        return word, ""
    cuts = [index for index, sign in enumerate(word) if sign == "/"]
    for cut in cuts:
        row, task = word[:cut], word[cut + 1 :]
        if row in ("", *rows) and task in tasks:
            return row, task
    row, _, task = word.partition("/") if word.partition("/")[0] in rows else word.rpartition("/")
    if not cuts or row not in ("", *rows):
        said = f"--only {word}: {unknown('row', row if cuts else word, rows)}"
        if word in tasks:
            said = f"--only {word}: is a task: write /{word}"
        elif "," in word:
            said = f"{said}; give --only once for each"
        raise ConfigError(said)
    raise ConfigError(f"--only {word}: {unknown('task', task, tasks)}")
