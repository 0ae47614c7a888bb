"""A cell against the baseline's: paired by seed and example, tested where that says something."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from maskpolicy import stats
from maskpolicy.gathering import Cell
from maskpolicy.predictions import Answers

FEWEST = 3  # seeds with an intermediate run of their own, for a mark of significance
Reader = Callable[[Cell], Answers | None]
Cells = Mapping[int, Cell | None]
"""The cells of one row and task, by seed."""


@dataclass(frozen=True)
class Comparison:
    """One cell against the baseline, in points; without a test, `reason` says why."""

    seeds: int  # in both rows
    found: stats.Estimate | None = None
    p_holm: float | None = None  # adjusted over all tests of the leaderboard
    reason: str | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the difference stands after the adjustment."""
        return self.p_holm is not None and self.p_holm < stats.LEVEL


def compare(row: Cells, base: Cells, read: Reader) -> Comparison:
    """Compare a row with the baseline on one task.

    There is no test unless every seed has its own intermediate run and there are three or more:
    the luck of a shared run is part of the difference, and nothing in the data shows how large.
    """
    pairs = _pairs(row, base)
    reason = _shared([mine for mine, _ in pairs]) or _shared([other for _, other in pairs])
    if reason is None and len(pairs) < FEWEST:
        reason = f"{len(pairs)} seed{'s'[: len(pairs) != 1]} in both rows: a test needs {FEWEST}"
    if reason is not None:
        return Comparison(len(pairs), reason=reason)
    if len({_metric(cell) for pair in pairs for cell in pair}) > 1:
        return Comparison(len(pairs), reason="the rows were scored by different metrics")
    if any("mean" in (cell.result.metrics or {}) for pair in pairs for cell in pair):
        return Comparison(len(pairs), reason="the metric is of all examples together")
    answers = [(read(mine), read(other)) for mine, other in pairs]
    found = [(mine, other) for mine, other in answers if mine is not None and other is not None]
    if len(found) < len(pairs):
        return Comparison(len(pairs), reason="no predictions lie beside the results")
    first = found[0][0]
    if any(one.examples != first.examples for pair in found for one in pair):
        return Comparison(len(pairs), reason="the rows were not asked the same examples")
    if not first.groups.any():
        return Comparison(len(pairs), reason="all examples share one paragraph or document")
    table = np.stack([mine.scores.astype(np.float64) - other.scores for mine, other in found])
    if not np.ptp(table):
        return Comparison(len(pairs), reason="the rows differ on no example, or on all alike")
    return Comparison(len(pairs), stats.estimate(100 * table, first.groups))


def adjust(comparisons: Sequence[Comparison | None]) -> list[Comparison | None]:
    """Return the comparisons with Holm's p-values over all that were tested."""
    tested = [each.found.p for each in comparisons if each is not None and each.found is not None]
    values = iter(stats.holm(tested))
    return [
        replace(each, p_holm=next(values)) if each is not None and each.found else each
        for each in comparisons
    ]


def _pairs(row: Cells, base: Cells) -> list[tuple[Cell, Cell]]:
    """Return the cells of the seeds that have a score in both rows."""
    found = []
    for seed in sorted(row.keys() & base.keys()):
        mine, other = row[seed], base[seed]
        if mine and other and mine.result.metrics and other.result.metrics:
            found.append((mine, other))
    return found


def _metric(cell: Cell) -> tuple[str, int]:
    return cell.result.metrics["metric"], cell.result.metrics.get("version")


def _shared(cells: Sequence[Cell]) -> str | None:
    """Say so if seeds share an intermediate run; a row without that stage has none to share."""
    staged = [cell.result.config for cell in cells if "intermediate" in cell.result.config]
    known = {config.get("intermediate_seed", 0) for config in staged}
    if not known or len(known) == len(cells):
        return None
    if len(known) == 1:
        return "one intermediate run for all seeds: its luck is part of the difference"
    return f"{len(cells)} seeds share {len(known)} intermediate runs: luck that a test cannot see"
