"""A leaderboard of given scores of single examples, which another program computed."""

from __future__ import annotations

import os
import re
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
from maskpolicy.leaderboard.comparisons import FEWEST, SAME, Comparison, Estimate, Versus
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
NOWHERE = Path(os.devnull)  # the folder of scores that no run computed
# besides control characters, what would break a line or turn the direction of writing
UNPRINTED = re.compile(f"{CONTROLS.pattern}|[\t\n\r\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_APART = "no example has scores of all systems"
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
    common: int  # examples that all systems and runs have

    @property
    def whole(self) -> NDArray[np.bool_]:
        """(systems, runs) whether all examples have scores."""
        found: NDArray[np.bool_] = (self.has == len(self.groups)) & (self.has > 0)
        return found

    def used(self, runs: int) -> NDArray[np.bool_]:
        """(systems, runs) the complete runs that count: the first, or all if they are averaged."""
        return self.whole & ((self.whole.cumsum(1) <= runs) | (runs == 1))

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
    task. Scores and tests are of the same runs of each system. The baseline is by default the
    system of the first line. `told` is given what is being done. Raises DataError for lines that
    cannot be used, and ConfigError for an unknown baseline.
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
    every = [_task(each, codes, names, values, shared) for each in np.split(order, starts)]
    tasks = [task for task in every if len(task.groups)]
    complete = np.array([task.whole.sum(1) for task in tasks])  # (tasks, systems)
    if not complete.any():
        can = "--shared keeps those that all have" if any(task.common for task in every) else ""
        raise DataError(
            f"no system has all examples of a task: {can or f'{_APART}: leave systems out'}"
        )
    if not any(task.has[systems.index(base)].any() for task in tasks):
        raise ConfigError(f"baseline: {base} shares no example with all others: name another")
    fewest = int(complete[complete > 0].min())
    runs = fewest if fewest >= FEWEST else 1
    pairs = codes.get("group", codes["task"]) * len(every) + codes["task"]
    apart = len(np.unique(pairs)) == len(names.get("group", names["task"]))
    board = _Scored(tasks, systems, numbers, systems.index(base), runs, apart, unit)
    columns = board.columns(told)
    rows = board.rows(columns)
    told("ranks")
    judged = _judged(columns, board.runs)
    gone = [task.name for task in every if not len(task.groups)]
    gone += [name for name in systems if name not in {row.label for row in rows}]
    return Board(
        baseline=base,
        tasks=tuple(task.name for task in tasks),
        rows=rows,
        notes=(
            *(*notes, *missing(rows), *board.notes()),
            *([f"left out: {listed(gone)}: {_APART}"] if gone else []),
            *(*needs_steady_runs(rows), *lying_apart(rows)),
        ),
        groups={ALL: tuple(task.name for task in tasks)} if len(tasks) > 1 else {},
        pairs=tuple(
            Versus(column.name, systems[first], systems[second], comparison)
            for column, compared in zip(columns, judged, strict=True)
            for first, second, comparison in zip(column.first, column.second, compared, strict=True)
        ),
        compared_with=base,
        runs=(Run(NOWHERE, (), base, experiment=title),),
        given=Given(board.above(rows), board.facts(title)),
    )


def _names(frame: DataFrame, column: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return each line's number of a name, by first appearance, and the names; raises DataError."""
    import pandas as pd

    codes, found = pd.factorize(frame[column])
    if (codes < 0).any():
        line = int(np.flatnonzero(codes < 0)[0]) + 1
        raise DataError(f"line {line} of the table has no {column}: give it one, or remove it")
    places, names = pd.factorize(np.array([str(each) for each in found], dtype=object))
    for name in names if column not in ("example", "group") else ():  # these are not shown
        if not name.strip() or UNPRINTED.search(name):
            raise DataError(
                f"{column} {name!r}: is empty or has control characters or line breaks: rename it"
            )
        if column == "task" and name == average_label(ALL):
            raise DataError(f"task {name!r}: this is the board's name of an average: rename it")
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
    where = _place(NEEDED[:3], bad[0], codes, names)
    hint = "--scale MAX divides all scores by MAX"
    if not np.isfinite(values[bad[0]]):
        hint = "count what has no answer as 0, or leave its line out"
    score, more = scale * values[bad[0]], f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    raise DataError(f"{where}: score {score:g} is not from 0 to {scale:g}{more}: {hint}")


def _place(
    columns: Sequence[str], line: Any, codes: Mapping[str, NDArray[Any]], names: Mapping[str, Any]
) -> str:
    """Return the values in some columns of a line, for messages."""
    texts = (UNPRINTED.sub(" ", names[column][codes[column][line]]) for column in columns)
    return ", ".join(f"{column} {text}" for column, text in zip(columns, texts, strict=True))


def _units(
    codes: Mapping[str, NDArray[np.int64]], names: Mapping[str, Sequence[str]], unit: str
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return each line's run, numbered within its system, and the runs' numbers on the board.

    These are their names if all systems have the same ones, and all are numbers.
    """
    import pandas as pd

    if unit not in names:
        return np.zeros_like(codes["system"]), (0,)
    labels = sorted(names[unit], key=lambda name: (len(name), name))
    rank = np.array([labels.index(name) for name in names[unit]])
    of_system = pd.Series(rank[codes[unit]]).groupby(codes["system"])
    units = of_system.rank("dense").to_numpy(np.int64) - 1
    are_numbers = all(label.isascii() and label.isdigit() for label in labels)
    alike = units.max() + 1 == len(labels)
    return units, tuple(map(int, labels) if alike and are_numbers else range(units.max() + 1))


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
        raise DataError(
            f"task {name}, {_place(parts, line, of, names)}: has {times.max()} scores: drop rows "
            "that stand twice; a column system tells systems apart, and a column seed runs of one"
        )
    size = int(np.prod(shape))
    counts = np.bincount(place, minlength=size).reshape(shape)
    sums = np.bincount(place, values[lines], minlength=size).reshape(shape)
    full = counts == np.maximum(1, counts.max(-1, keepdims=True))  # with all seeds of the run
    common = (full | ~counts.any(-1, keepdims=True)).all((0, 1))
    kept = common if shared else np.ones(len(used), bool)
    groups = np.arange(len(used)) if "group" not in of else of["group"][first]
    if "group" in of and (groups[example] != of["group"]).any():
        raise DataError(f"task {name}: an example is in two groups: give it one everywhere")
    return _Task(
        name,
        names["metric"][of["metric"][0]] if "metric" in of else "score",
        np.unique(groups[kept], return_inverse=True)[1],
        np.where(full, sums / np.maximum(1, counts), np.nan)[..., kept],
        full[..., kept].sum(-1),
        int(common.sum()),
    )


def _judged(columns: Sequence[_Column], runs: int) -> list[list[Comparison]]:
    """Test the pairs of all columns as one family; return the comparisons of each column."""
    if not columns:
        return []
    rows = len({*np.concatenate([(c.first, c.second) for c in columns], axis=1).flat}) - 1
    tested = [column.of(column.varies) for column in columns if column.varies.any()]
    single = [column.pair for column in tested if not column.is_average]
    means = [column.pair for column in tested if column.is_average]
    verdicts = stats.assess_together(single, means, rows)
    failing = stats.assess_together(single, means, rows, stats.FAILING)
    tests = sum(len(column.first) for column in tested)
    judged = {c.name: np.full(len(c.first), Comparison(runs, reason=SAME)) for c in columns}
    for column, verdict, worse in zip(tested, verdicts, failing, strict=True):
        mean, error = 100 * column.pair.mean, 100 * verdict.error
        half = stats.interval(0.0, 1.0, verdict.freedom)[1] * error
        ends = np.clip((mean - half, mean + half), -100, 100)
        finds = error * stats.detectable(verdict.freedom, tests)
        numbers = (mean, *ends, verdict.p, finds, verdict.p_holm, worse.p_holm)
        groups, is_average = column.pair.groups, column.is_average
        varies = next(each.varies for each in columns if each.name == column.name)
        judged[column.name][varies] = [
            Comparison(
                runs, Estimate(d, low, high, p, groups, least), p_holm, worst, is_average=is_average
            )
            for d, low, high, p, least, p_holm, worst in np.transpose(numbers).tolist()
        ]
    return [judged[column.name].tolist() for column in columns]


@dataclass(frozen=True, eq=False)
class _Scored:
    """All tasks and systems of a board."""

    tasks: Sequence[_Task]
    systems: Sequence[str]
    numbers: Sequence[int]  # of the runs, for each place in `_Task.scores`
    base: int  # the system with which others are compared
    runs: int  # that tests compare
    apart: bool  # no group of examples is in two tasks
    unit: str  # what a run is called: run or seed

    def in_order(self) -> list[int]:
        """Return the systems with any example, those with most tasks first, then by their mean."""
        there = np.any([task.has.any(1) for task in self.tasks], axis=0)
        scored = np.array([task.whole.any(1) for task in self.tasks])
        means = np.array([task.tested(self.runs).mean((1, 2)) for task in self.tasks])
        means = np.where(scored, means, 0)
        keys = zip(-scored.sum(0), -means.sum(0), range(len(self.systems)), strict=True)
        return [at for _, _, at in sorted(keys) if there[at]]

    def columns(self, told: Callable[[str], object]) -> list[_Column]:
        """Return the differences of all pairs on all tasks and on the mean of several tasks.

        Raises DataError if there are too many.
        """
        order = self.in_order()
        every = [np.array([at for at in order if t.whole[at].any()]) for t in self.tasks]
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
            if mask.any()
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
            seeds = {cell.seed: cell.percent for cell in own if cell.metrics}
            test, mean = tests.get((task.name, at)), means[task.name]
            delta = None if test is None else float(mean[at] - mean[self.base])
            score = Score(task.metric, seeds, len(task.groups), delta, test)
            scores[task.name] = score if seeds else None
        lacking = {task.name for task in self.tasks} - {task for task, _ in cells}
        gaps = [Gap(task, None, ABSENT) for task in scores if task in lacking]
        several = len(self.numbers) > 1
        gaps += [
            Gap(c.task, c.seed if several else None, c.error) for c in cells.values() if c.error
        ]
        mean_test = tests.get((average_label(ALL), at))
        averages = {ALL: mean_test} if mean_test else {}
        return BoardRow(label, {"name": label}, scores, None, cells, tuple(gaps), base, averages)

    def _cells(self, task: _Task, at: int) -> list[Result]:
        """Return the results of the runs of a system that count, and of its incomplete ones."""
        config = {"policy": {"name": self.systems[at]}, "task": {"name": task.name}}
        cells = []
        hint = f"{_APART}, so --shared cannot help"
        hint = f"--shared compares the {task.common} that all have" if task.common else hint
        used = task.used(self.runs)[at]
        for place in np.flatnonzero(used | (~task.whole[at] & (task.has[at] > 0))).tolist():
            n, total, error = len(task.groups), None, None
            if used[place]:
                total = Total(task.metric, float(task.scores[at, place].mean()), n)
            else:
                error = f"has {task.has[at, place]} of {n} examples ({hint})"
            names = (self.systems[at], task.name, self.numbers[place], ALL)
            cells.append(Result(*names, config, {}, total, error=error, folder=NOWHERE))
        return cells

    def notes(self) -> list[str]:
        """Return notes on differences that have no test, and on runs that are left out."""
        mean = f" and on the {average_label(ALL)}" if len(self.tasks) > 1 else ""
        base, runs, whole = self.systems[self.base], self.runs, [t.whole for t in self.tasks]
        one_group = listed([task.name for task in self.tasks if not task.groups.any()])
        lacking = listed([t.name for t in self.tasks if not t.whole[self.base].any()])
        texts = {
            f"no test on {one_group}{mean}: all examples share one group": one_group,
            f"no difference on {lacking}{mean}: {base}, the baseline, has no complete score there; "
            "--baseline names another system": lacking,
            f"scores and tests are of the first {runs} complete {self.unit}s of each system, and "
            f"others are left out: {self._with_fewer(runs + 1)}": runs > 1
            and max(each.sum(1).max() for each in whole) > runs,
        }
        return [text for text, holds in texts.items() if holds]

    def _with_fewer(self, most: int) -> str:
        """Return which systems have fewer complete runs on which tasks, in words."""
        places = [
            f"{self.systems[at]} has {count} on {task.name}"
            for task in self.tasks
            for at, count in enumerate(task.whole.sum(1))
            if 0 < count < most
        ]
        return listed(places, most=3)

    def above(self, rows: Sequence[BoardRow]) -> tuple[str, ...]:
        """Return what the tests generalise to, and which differences they find, in words."""
        unit, why = self.unit, "Each system has one run"
        if len(self.numbers) > 1:
            why = (
                f"Tests with {unit}s need {FEWEST} complete ones of every system and task "
                f"({self._with_fewer(FEWEST)}), so {unit}s are averaged"
            )
        words = _DRAWN if self.runs > 1 else _HELD
        said = words.format(why=why, unit=unit, runs=self.runs)
        scores = [(task, score) for row in rows for task, score in row.scores.items() if score]
        tests = [(task, s.comparison.estimate) for task, s in scores if s.comparison]
        finds = sorted((min(100.0, test.detectable), task) for task, test in tests if test)
        base, chance = self.systems[self.base], f"with a probability of {100 * stats.POWER:.0f}%"
        if not finds:
            return (said,)
        if finds[0][0] == 100:
            return said, f"This board is too small to mark any difference to {base} {chance}."
        runs = f"With {self.runs} {unit}s, this" if self.runs > 1 else "This"
        ends = dict.fromkeys(
            f"{least:.1f} points ({task})" for least, task in (finds[0], finds[-1])
        )
        middle = f"; median {finds[len(finds) // 2][0]:.1f}" if len(finds) > 2 else ""
        return (
            said,
            f"{runs} board marks a true difference to {base} {chance} if it is at least "
            f"{' to '.join(ends)}{middle}.",
        )

    def facts(self, title: str) -> dict[str, str]:
        """Return what the scores are, by name."""
        sizes = [
            f"{task.name} {len(task.groups):,}"
            + (f" in {groups:,} group{'s'[: groups > 1]}" if groups < len(task.groups) else "")
            for task in self.tasks
            for groups in [int(task.groups.max(initial=-1)) + 1]
        ]
        facts = {"scores": f"given, of single examples: {title}", "examples": listed(sizes)}
        return facts | ({f"{self.unit}s": str(len(self.numbers))} if len(self.numbers) > 1 else {})


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
    whole: dict[str, Any] = {}
    for name in ("of_seed", "chance", "interaction", "slope"):
        whole[name] = np.concatenate([getattr(part, name) for part in parts])
    return parts[0]._replace(**whole), np.concatenate(varies)
