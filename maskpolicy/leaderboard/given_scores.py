"""A leaderboard of given scores of single examples, which another program computed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError, DataError, cause, unknown
from maskpolicy.core.metrics import Total
from maskpolicy.experiment.yaml_file import CONTROLS
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.board import Board, BoardRow, Given, Score, average_label, missing
from maskpolicy.leaderboard.build import lying_apart, needs_steady_runs
from maskpolicy.leaderboard.comparisons import FEWEST, Comparison, Estimate, Versus
from maskpolicy.leaderboard.joined_rows import ABSENT, Gap
from maskpolicy.leaderboard.results.cell import Result, Run, listed
from maskpolicy.leaderboard.stats import Difference

if TYPE_CHECKING:
    from pandas import DataFrame

NEEDED = ("system", "task", "example", "score")
COLUMNS = (*NEEDED, "seed", "run", "group", "metric")
ALL = "all tasks"  # the group over which tasks are averaged
MOST = 400_000  # tests of pairs of systems, for which memory suffices
_AT_ONCE = 4_000_000  # differences of examples in memory
_NOWHERE = Path(os.devnull)  # the folder of scores that no run computed
_EQUAL = "the difference is the same for every seed and example"
_HELD = (
    "The tests generalise to other examples of the same kind, and to nothing else. {why}: what "
    "another training or sampling of the same system would score is not part of any interval, and "
    "a mark is about these outputs of the systems."
)
_DRAWN = (
    "The tests generalise to other {unit}s and other examples of the same kind: each system has "
    "{runs} {unit}s. What is the same for all of them, such as the training data, is held fixed."
)


@dataclass(frozen=True, eq=False)
class _Task:
    """The scores of one task; arrays are in the order of all systems."""

    name: str
    metric: str
    groups: NDArray[np.int64]  # (examples,) numbered from 0
    scores: NDArray[np.float64]  # (systems, runs, examples); NaN where a run lacks an example
    has: NDArray[np.int64]  # (systems, runs) how many of the examples it has

    @property
    def whole(self) -> NDArray[np.bool_]:
        """(systems, runs) whether all examples have scores."""
        found: NDArray[np.bool_] = (self.has == len(self.groups)) & (self.has > 0)
        return found

    def tested(self, runs: int) -> NDArray[np.float64]:
        """Return the scores (systems, runs, examples) of the first complete runs.

        For one run, they are the means over all that are complete.
        """
        if runs == 1:
            scores = np.where(self.whole[..., None], self.scores, 0)
            runs_of = np.maximum(1, self.whole.sum(1))[:, None, None]
            means: NDArray[np.float64] = scores.sum(1, keepdims=True) / runs_of
            return means
        first = np.argsort(~self.whole, axis=1, kind="stable")[:, :runs]
        return np.take_along_axis(self.scores, first[..., None], 1)


@dataclass(frozen=True, eq=False)
class _Column:
    """Pairs of systems on one task or average; the arrays have the axis of the pairs."""

    name: str
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    pair: Difference
    varies: NDArray[np.bool_]  # else there is no test
    is_average: bool = False

    def of(self, kept: NDArray[np.bool_], signs: Any = 1.0) -> _Column:
        """Return the `kept` pairs, with their differences times `signs`."""
        parts = self.first[kept], self.second[kept], self.pair.of(kept, signs), self.varies[kept]
        return _Column(self.name, *parts, self.is_average)


def build_board(
    frame: DataFrame,
    *,
    title: str = "board",
    baseline: str | None = None,
    scale: float = 1.0,
    shared: bool = False,
    notes: Sequence[str] = (),
    told: Callable[[str], object] = lambda text: None,
) -> Board:
    """Return the leaderboard of a table with one line for each score of an example.

    It has the columns NEEDED and any of COLUMNS; scores lie between 0 and `scale`. With `shared`,
    examples that a system lacks are left out for all; without, that system has no score on the
    task. The baseline is by default the system of the first line. `told` is given what is being
    done. Raises DataError for lines that cannot be used, and ConfigError for an unknown baseline.
    """
    lacking = [name for name in NEEDED if name not in frame]
    if lacking or not len(frame):
        there = ", ".join(map(str, frame.columns))
        raise DataError(
            f"no column {lacking[0]} (there are: {there}): name it with --column {lacking[0]}=NAME"
            if lacking
            else "the table has no lines"
        )
    named = {name: _names(frame, name) for name in COLUMNS if name in frame and name != "score"}
    codes = {name: pair[0] for name, pair in named.items()}
    names = {name: pair[1] for name, pair in named.items()}
    values, systems = _values(frame, scale, codes, names), names["system"]
    base = baseline if baseline is not None else systems[0]
    if base not in systems:
        raise ConfigError(f"baseline: {unknown('system', base, systems)}")
    unit = "run" if "run" in names else "seed"
    codes["unit"], numbers = _units(codes, names, unit)
    order = np.argsort(codes["task"], kind="stable")
    starts = np.searchsorted(codes["task"][order], np.arange(1, len(names["task"])))
    tasks = [_task(each, codes, names, values, shared) for each in np.split(order, starts)]
    complete = np.array([task.whole.sum(1) for task in tasks])  # (tasks, systems)
    if not complete.any():
        raise DataError("no system has all examples of a task: --shared keeps those that all have")
    fewest = int(complete[complete > 0].min())
    runs = fewest if fewest >= FEWEST else 1
    pairs = codes.get("group", codes["task"]) * len(tasks) + codes["task"]
    apart = len(np.unique(pairs)) == len(names.get("group", names["task"]))
    board = _Scored(tasks, systems, numbers, systems.index(base), runs, apart)
    columns = board.columns(told)
    rows = board.rows(columns)
    told("ranks")
    judged = _judged(columns, board.runs)
    cut = f"tests compare the first {board.runs} {unit}s of each system: some have no more"
    left_out = board.runs > 1 and complete.max() > board.runs
    return Board(
        baseline=base,
        tasks=tuple(names["task"]),
        rows=rows,
        notes=(
            *(*notes, *missing(rows), *board.untestable(), *([cut] if left_out else [])),
            *(*needs_steady_runs(rows), *lying_apart(rows)),
        ),
        groups={ALL: tuple(names["task"])} if len(tasks) > 1 else {},
        pairs=tuple(
            Versus(column.name, systems[first], systems[second], comparison)
            for column, compared in zip(columns, judged, strict=True)
            for first, second, comparison in zip(column.first, column.second, compared, strict=True)
        ),
        compared_with=base,
        runs=(Run(_NOWHERE, (), base, experiment=title),),
        given=Given(board.above(rows, unit), board.facts(title, unit)),
    )


def _names(frame: DataFrame, column: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return each line's number of a name, by first appearance, and the names; raises DataError."""
    import pandas as pd

    codes, found = pd.factorize(frame[column])
    if (codes < 0).any():
        line = int(np.flatnonzero(codes < 0)[0]) + 1
        raise DataError(f"line {line} of the table has no {column}: give it one, or remove it")
    places, names = pd.factorize(np.array([str(each) for each in found], dtype=object))
    for name in names:
        if not name.strip() or CONTROLS.search(name):
            raise DataError(f"{column} {name!r}: is empty or has control characters: rename it")
    return places.astype(np.int64)[codes], list(names)


def _values(
    frame: DataFrame, scale: float, codes: Mapping[str, NDArray[Any]], names: Mapping[str, Any]
) -> NDArray[np.float64]:
    """Return the scores (lines,) divided by `scale`; raises DataError."""
    try:
        values: NDArray[np.float64] = frame["score"].to_numpy("float64", na_value=np.nan) / scale
    except (TypeError, ValueError) as error:
        raise DataError(f"score: {cause(error)}: scores are numbers") from None
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if not len(bad):
        return values
    where = ", ".join(f"{name} {names[name][codes[name][bad[0]]]}" for name in NEEDED[:3])
    hint = "--scale MAX divides all scores by MAX"
    if not np.isfinite(values[bad[0]]):
        hint = "count what has no answer as 0, or leave its line out"
    score, more = scale * values[bad[0]], f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    raise DataError(f"{where}: score {score:g} is not from 0 to {scale:g}{more}: {hint}")


def _units(
    codes: Mapping[str, NDArray[np.int64]], names: Mapping[str, Sequence[str]], unit: str
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return each line's run, numbered within its system, and the runs' numbers on the board.

    These are their names if all systems have the same ones, and all are numbers.
    """
    if unit not in names:
        return np.zeros_like(codes["system"]), (0,)
    labels = sorted(names[unit], key=lambda name: (len(name), name))
    rank = np.array([labels.index(name) for name in names[unit]])
    every = codes["system"] * len(labels) + rank[codes[unit]]
    both, place = np.unique(every, return_inverse=True)
    starts = np.searchsorted(both, np.arange(len(names["system"])) * len(labels))
    units = place - starts[codes["system"]]
    most = int(units.max()) + 1
    are_numbers = all(label.isascii() and label.isdigit() for label in labels)
    return units, tuple(map(int, labels)) if most == len(labels) and are_numbers else (
        *range(most),
    )


def _task(
    lines: NDArray[np.int64],
    codes: Mapping[str, NDArray[np.int64]],
    names: Mapping[str, Sequence[str]],
    values: NDArray[np.float64],
    shared: bool,
) -> _Task:
    """Return the scores of one task, averaged over the seeds of a run; raises DataError."""
    of = {name: column[lines] for name, column in codes.items()}
    name = names["task"][of["task"][0]]
    used, first, example = np.unique(of["example"], return_index=True, return_inverse=True)
    shape = (len(names["system"]), int(codes["unit"].max()) + 1, len(used))
    place = np.ravel_multi_index((of["system"], of["unit"], example), shape)
    one = place * len(names["seed"]) + of["seed"] if {"run", "seed"} <= names.keys() else place
    _, at, times = np.unique(one, return_index=True, return_counts=True)
    if times.max() > 1:
        line = at[times.argmax()]
        parts = [part for part in ("system", "example", "run", "seed") if part in names]
        where = ", ".join(f"{part} {names[part][of[part][line]]}" for part in parts)
        raise DataError(
            f"task {name}, {where}: has {times.max()} scores: drop rows that stand twice; a column "
            "system tells systems apart, and a column seed the runs of one"
        )
    size = int(np.prod(shape))
    counts = np.bincount(place, minlength=size).reshape(shape)
    sums = np.bincount(place, values[lines], minlength=size).reshape(shape)
    full = counts == np.maximum(1, counts.max(-1, keepdims=True))  # with all seeds of the run
    kept = np.ones(len(used), bool)
    if shared:
        kept = (full | ~counts.any(-1, keepdims=True)).all((0, 1))
    groups = np.arange(len(used)) if "group" not in of else of["group"][first]
    if "group" in of and (groups[example] != of["group"]).any():
        raise DataError(f"task {name}: an example is in two groups: give it one everywhere")
    return _Task(
        name,
        names["metric"][of["metric"][0]] if "metric" in of else "score",
        np.unique(groups[kept], return_inverse=True)[1],
        np.where(full, sums / np.maximum(1, counts), np.nan)[..., kept],
        full[..., kept].sum(-1),
    )


def _judged(columns: Sequence[_Column], runs: int) -> list[list[Comparison]]:
    """Test the pairs of all columns as one family; return the comparisons of each column."""
    if not columns:
        return []
    rows = len({*np.concatenate([(c.first, c.second) for c in columns], axis=1).flat}) - 1
    order = [*(c for c in columns if not c.is_average), *(c for c in columns if c.is_average)]
    tested = [column.of(column.varies) for column in order if column.varies.any()]
    single = [column.pair for column in tested if not column.is_average]
    means = [column.pair for column in tested if column.is_average]
    verdicts = stats.assess_together(single, means, rows)
    failing = stats.assess_together(single, means, rows, stats.FAILING)
    tests = sum(len(column.first) for column in tested)
    found = {c.name: [Comparison(runs, reason=_EQUAL) for _ in c.first] for c in columns}
    places = {column.name: np.flatnonzero(column.varies).tolist() for column in columns}
    for column, verdict, worse in zip(tested, verdicts, failing, strict=True):
        mean, error = 100 * column.pair.mean, 100 * verdict.error
        half = stats.interval(0.0, 1.0, verdict.freedom)[1] * error
        finds = error * stats.detectable(verdict.freedom, tests)
        numbers = (mean, mean - half, mean + half, verdict.p, finds, verdict.p_holm, worse.p_holm)
        pairs = zip(places[column.name], np.transpose(numbers).tolist(), strict=True)
        for place, (difference, low, high, p, least, p_holm, p_failing) in pairs:
            estimate = Estimate(difference, low, high, p, column.pair.groups, least)
            found[column.name][place] = Comparison(
                runs, estimate, p_holm, p_failing, is_average=column.is_average
            )
    return [found[column.name] for column in columns]


@dataclass(frozen=True, eq=False)
class _Scored:
    """All tasks and systems of a board."""

    tasks: Sequence[_Task]
    systems: Sequence[str]
    numbers: Sequence[int]  # of the runs, for each place in `_Task.scores`
    base: int  # the system with which others are compared
    runs: int  # that tests compare
    apart: bool  # no group of examples is in two tasks

    def in_order(self) -> list[int]:
        """Return the systems, those with most tasks first, then by their mean score."""
        scored = np.array([task.whole.any(1) for task in self.tasks])
        means = np.array([task.tested(1)[:, 0].mean(-1) for task in self.tasks])
        keys = zip(-scored.sum(0), -(means * scored).sum(0), range(len(self.systems)), strict=True)
        return [at for _, _, at in sorted(keys)]

    def columns(self, told: Callable[[str], object]) -> list[_Column]:
        """Return the differences of all pairs on all tasks and on the mean of several tasks.

        Raises DataError if there are too many.
        """
        every = [np.array([at for at in self.in_order() if t.whole[at].any()]) for t in self.tasks]
        tests = sum(len(each) * (len(each) - 1) // 2 for each in every)
        if tests > MOST:
            raise DataError(
                f"{tests:,} pairs of systems are too many to test together, at most {MOST:,}: "
                "leave systems or tasks out"
            )
        columns = []
        for number, (task, scored) in enumerate(zip(self.tasks, every, strict=True), 1):
            told(f"task {number} of {len(self.tasks)}: {task.name}")
            first, second = (scored[side] for side in np.triu_indices(len(scored), 1))
            if task.groups.any() and len(first):
                parts = _differences(task, task.tested(self.runs), first, second)
                columns.append(_Column(task.name, first, second, *parts))
        everywhere = np.all([task.whole.any(1) for task in self.tasks], axis=0)
        if 1 < len(self.tasks) == len(columns) and everywhere.sum() > 1:
            whole = [c.of(everywhere[c.first] & everywhere[c.second]) for c in columns]
            mean = stats.average([column.pair for column in whole], apart=self.apart)
            varies = np.any([c.varies for c in whole], axis=0)
            label = average_label(ALL)
            columns.append(_Column(label, whole[0].first, whole[0].second, mean, varies, True))
        return columns

    def rows(self, columns: Sequence[_Column]) -> tuple[BoardRow, ...]:
        """Return the rows, each compared with the baseline; all of these tests are one family."""
        kept = [(c.first == self.base) | (c.second == self.base) for c in columns]
        against = [
            column.of(mask, np.where(column.second[mask] == self.base, 1.0, -1.0))
            for column, mask in zip(columns, kept, strict=True)
            if mask.any() and not column.is_average
        ]
        tests = {
            (column.name, int(first + second - self.base)): comparison
            for column, compared in zip(against, _judged(against, self.runs), strict=True)
            for first, second, comparison in zip(column.first, column.second, compared, strict=True)
        }
        means = {task.name: 100 * task.tested(self.runs).mean((1, 2)) for task in self.tasks}
        return tuple(self._row(at, tests, means) for at in self.in_order())

    def _row(
        self, at: int, tests: Mapping[tuple[str, int], Comparison], means: Mapping[str, Any]
    ) -> BoardRow:
        label, base = self.systems[at], self.systems[self.base]
        cells, scores = dict[tuple[str, int], Result](), dict[str, Score | None]()
        for task in self.tasks:
            own = self._cells(task, at)
            cells |= {(task.name, cell.seed): cell for cell in own}
            scores[task.name] = None
            if any(cell.metrics for cell in own):
                seeds, test = {cell.seed: cell.percent for cell in own}, tests.get((task.name, at))
                delta = (
                    None if test is None else float(np.diff(means[task.name][[self.base, at]])[0])
                )
                scores[task.name] = Score(task.metric, seeds, len(task.groups), delta, test)
        lacking = {task.name for task in self.tasks} - {task for task, _ in cells}
        gaps = [Gap(task, None, ABSENT) for task in scores if task in lacking]
        several = len(self.numbers) > 1
        gaps += [
            Gap(c.task, c.seed if several else None, c.error) for c in cells.values() if c.error
        ]
        return BoardRow(label, {"name": label}, scores, None, cells, tuple(gaps), base)

    def _cells(self, task: _Task, at: int) -> list[Result]:
        """Return the results of a system's runs on a task."""
        config = {"policy": {"name": self.systems[at]}, "task": {"name": task.name}}
        cells = []
        for place in np.flatnonzero(task.has[at] > 0).tolist():
            n, total, error = len(task.groups), None, None
            if task.whole[at, place]:
                total = Total(task.metric, float(task.scores[at, place].mean()), n)
            else:
                error = f"has {task.has[at, place]} of {n} examples (--shared leaves others out)"
            names = (self.systems[at], task.name, self.numbers[place], ALL)
            cells.append(Result(*names, config, {}, total, error=error, folder=_NOWHERE))
        return cells

    def untestable(self) -> list[str]:
        """Return a note on the tasks whose examples are all in one group."""
        names = [task.name for task in self.tasks if not task.groups.any()]
        return [f"no test on {listed(names)}: all examples share one group"] if names else []

    def above(self, rows: Sequence[BoardRow], unit: str) -> tuple[str, ...]:
        """Return what the tests generalise to, and which differences they find, in words."""
        why = "Each system has one run"
        if len(self.numbers) > 1:
            why = f"Not all systems have {FEWEST} complete {unit}s, so {unit}s are averaged"
        words = _DRAWN if self.runs > 1 else _HELD
        said = words.format(why=why, unit=unit, runs=self.runs)
        scores = [(task, score) for row in rows for task, score in row.scores.items() if score]
        tests = [(task, s.comparison.estimate) for task, s in scores if s.comparison]
        finds = sorted((min(100.0, test.detectable), task) for task, test in tests if test)
        if not finds:
            return (said,)
        runs = f"With {self.runs} {unit}s, this" if self.runs > 1 else "This"
        ends = dict.fromkeys(
            f"{least:.1f} points ({task})" for least, task in (finds[0], finds[-1])
        )
        middle = f"; median {finds[len(finds) // 2][0]:.1f}" if len(finds) > 2 else ""
        return (
            said,
            f"{runs} board marks a true difference to {self.systems[self.base]} with a probability "
            f"of {100 * stats.POWER:.0f}% if it is at least {' to '.join(ends)}{middle}.",
        )

    def facts(self, title: str, unit: str) -> dict[str, str]:
        """Return what the scores are, by name."""
        sizes = [
            f"{task.name} {len(task.groups):,}"
            + (f" in {groups:,} groups" if groups < len(task.groups) else "")
            for task in self.tasks
            for groups in [int(task.groups.max(initial=-1)) + 1]
        ]
        facts = {"scores": f"given, of single examples: {title}", "examples": listed(sizes)}
        return facts | ({f"{unit}s": str(len(self.numbers))} if len(self.numbers) > 1 else {})


def _differences(
    task: _Task, scores: NDArray[np.float64], first: NDArray[Any], second: NDArray[Any]
) -> tuple[Difference, NDArray[np.bool_]]:
    """Return the differences of pairs of systems, and which of them vary at all."""
    parts, varies = [], []
    step = max(1, _AT_ONCE // scores[0].size)
    for at in range(0, len(first), step):
        mine, other = scores[first[at : at + step]], scores[second[at : at + step]]
        parts.append(stats.weighted([(1.0, mine), (-1.0, other)], task.groups, ("", "")))
        varies.append(np.ptp(mine - other, (-1, -2)) > 0)
    arrays = (np.concatenate([part[at] for part in parts]) for at in range(1, 5))
    of_seed, chance, interaction, slope = arrays
    whole = parts[0]._replace(of_seed=of_seed, chance=chance, interaction=interaction, slope=slope)
    return whole, np.concatenate(varies)
