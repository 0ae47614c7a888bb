"""A leaderboard of given scores of single examples, which another program computed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError, DataError, listed, unknown
from maskpolicy.core.metrics import Total
from maskpolicy.experiment.yaml_file import CONTROLS
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.board import Board, BoardRow, Given, Score, average_label, missing
from maskpolicy.leaderboard.build import lying_apart, needs_steady_runs
from maskpolicy.leaderboard.comparisons import FEWEST, Comparison, Versus, points
from maskpolicy.leaderboard.given_tests import ALL, Pairs, Task, compare_all, judged
from maskpolicy.leaderboard.joined_rows import ABSENT, Gap
from maskpolicy.leaderboard.results.cell import Result, Run

if TYPE_CHECKING:
    from pandas import DataFrame

NEEDED = ("system", "task", "example", "score")
COLUMNS = (*NEEDED, "seed", "run", "group", "metric")
NOWHERE = Path(os.devnull)  # the folder of scores that no run computed
# what no name may have
UNPRINTED = re.compile(f"{CONTROLS.pattern}|[\t\n\r\u061c\u200e\u200f\u2028\u2029]")
_UNSEEN = re.compile(f"{UNPRINTED.pattern}|[\u00ad\u200b-\u200d\u2060\ufeff]")
_APART = "no example has scores of all systems"
_ONE_GROUP = "all examples share one group"
_HELD = (
    "The tests generalise to other examples of the same kind, and to nothing else. {why}: what "
    "another training or sampling of the same system would score is not part of any interval, and "
    "a mark is about these outputs of the systems."
)
_DRAWN = (
    "The tests generalise to other {unit}s and other examples of the same kind: {each}. What is "
    "the same for all of them, such as the training data, is held fixed."
)


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

    It has the columns NEEDED and any of COLUMNS; scores lie between 0 and `scale`. A system that
    lacks examples has no score on that task; with `shared`, these examples are left out for all
    systems. Two systems are compared on the seeds that both have. The default baseline is the
    system of the first line. `told` is called with the progress. Raises DataError for lines that
    cannot be used, and ConfigError for an unknown baseline.
    """
    named = {name: _names(frame, name) for name in COLUMNS if name in frame and name != "score"}
    codes = {name: pair[0] for name, pair in named.items()}
    names = {name: pair[1] for name, pair in named.items()}
    values, systems = _values(frame, scale), names["system"]
    base = baseline if baseline is not None else systems[0]
    if base not in systems:
        raise ConfigError(f"baseline: {unknown('system', base, systems)}")
    unit = "run" if "run" in names else "seed"
    codes["unit"], numbers, named_alike = _units(codes, names, unit)
    every = _tasks(frame, codes, names, values, shared)
    tasks = [task for task in every if len(task.groups)]
    if not any(task.has[systems.index(base)].any() for task in tasks):
        raise ConfigError(f"baseline: {base} shares no example with all others: name another")
    subject = "group" if "group" in names else "example"
    pairs = codes[subject] * len(every) + codes["task"]
    apart = len(np.unique(pairs)) == len(names[subject])
    order = _in_order(tasks)
    found = compare_all(tasks, order, told, apart=apart, unit=unit, named_alike=named_alike)
    board = _Scored(tasks, systems, numbers, systems.index(base), unit, found)
    rows = board.rows(order)
    told("ranks")
    fewer = _left_out(every, codes, len(names["example"])) if shared else []
    gone = [task.name for task in every if not len(task.groups)]
    gone += [name for name in systems if name not in {row.label for row in rows}]
    return Board(
        baseline=base,
        tasks=tuple(task.name for task in tasks),
        rows=rows,
        notes=(
            *(*notes, *missing(rows, unit), *board.notes()),
            *([f"left out: {listed(gone)}: {_APART}"] if gone else []),
            *([f"left out, as some system lacks them: {listed(fewer)}"] if fewer else []),
            *(*needs_steady_runs(rows), *lying_apart(rows, unit)),
        ),
        groups={ALL: tuple(task.name for task in tasks)} if len(tasks) > 1 else {},
        pairs=tuple(
            Versus(each.column, systems[first], systems[second], comparison)
            for each, compared in zip(found, judged(found), strict=True)
            for first, second, comparison in zip(each.first, each.second, compared, strict=True)
        ),
        compared_with=base,
        runs=(Run(NOWHERE, (), base, experiment=title, alias=title),),
        given=Given(board.above(rows), board.facts(title), unit, named_alike and board.is_paired),
    )


def _names(frame: DataFrame, column: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return each line's number of a name, by first appearance, and the names; raises DataError."""
    import pandas as pd

    try:
        codes, found = pd.factorize(frame[column])
    except TypeError:  # lists
        raise DataError(
            f"column {column}: must hold texts or numbers: convert its values"
        ) from None
    if (codes < 0).any():
        where = _line(frame, (codes < 0).argmax())
        raise DataError(f"{where} has no {column}: give it one, or remove it")
    texts = [str(each).strip(" ") for each in found]
    if column in ("seed", "run"):  # a column with empty cells has numbers such as 1.0
        texts = [re.sub(r"^(\d+)\.0$", r"\1", text) for text in texts]
    places, names = pd.factorize(np.array(texts, dtype=object))
    is_shown = column not in ("example", "group")
    lines = places.astype(np.int64)[codes]
    for number, name in enumerate(names):
        if not name.strip() or (is_shown and _UNSEEN.search(name)):
            raise DataError(
                f"{_line(frame, (lines == number).argmax())}: {column} {name!r} is empty or has "
                "control characters, line breaks or signs without width: rename it"
            )
        if column == "task" and name == average_label(ALL):
            raise DataError(f"task {name!r}: this is the board's name of an average: rename it")
    return lines, list(names)


def _line(frame: DataFrame, line: Any, *columns: str) -> str:
    """Return a line and what it has in some columns; the index may also name the line's file."""
    place = frame.index[line]
    *files, number = place if isinstance(place, tuple) else (place,)
    texts = (f", {name} {UNPRINTED.sub(' ', str(frame[name].iloc[line]))}" for name in columns)
    return "".join([*(f"{file}: " for file in files), f"line {number + 1} of the table", *texts])


def _values(frame: DataFrame, scale: float) -> NDArray[np.float64]:
    """Return the scores (lines,) divided by `scale`; raises DataError."""
    import pandas as pd

    numbers = pd.to_numeric(frame["score"], errors="coerce")
    texts = np.flatnonzero(numbers.isna() & frame["score"].notna())
    if len(texts):
        where, text = _line(frame, texts[0], *NEEDED[:3]), frame["score"].iloc[texts[0]]
        comma = re.fullmatch(r"\s*\d*,\d+\s*", str(text))
        advice = ": write a point for the comma" if comma else ""
        raise DataError(f"{where}: score {text!r} is not a number{advice}")
    own = numbers.to_numpy("float64", na_value=np.nan)
    values: NDArray[np.float64] = own / scale
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if not len(bad):
        return values
    where = _line(frame, bad[0], *NEEDED[:3])
    hint = "--scale MAX divides all scores by MAX"
    if not np.isfinite(values[bad[0]]):
        hint = "count what has no answer as 0, or leave its line out"
    elif values[bad[0]] < 0:
        hint = "add a number to all scores; where lower is better, write 1 - score"
    score, more = own[bad[0]], f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    raise DataError(f"{where}: score {score:.16g} is not from 0 to {scale:g}{more}: {hint}")


def _units(
    codes: Mapping[str, NDArray[np.int64]], names: Mapping[str, Sequence[str]], unit: str
) -> tuple[NDArray[np.int64], dict[int, str], bool]:
    """Return each line's run, from 0, the runs' names by number, and whether names pair runs.

    Equal names are equal runs on the board, and numbers if all names are. Unless two systems share
    FEWEST names, nothing is paired, and each system's runs are numbered in the order of their
    names: a table of all names would be large.
    """
    import pandas as pd

    if unit not in names:
        return np.zeros_like(codes["system"]), {0: "0"}, True
    labels = sorted(names[unit], key=lambda name: (len(name), name))
    units = np.array([labels.index(name) for name in names[unit]])[codes[unit]]
    has = np.zeros((len(names["system"]), len(labels)), np.float32)
    has[codes["system"], units] = 1
    most = int(has.sum(1).max())
    if most < len(labels) and np.triu(has @ has.T, 1).max() < FEWEST:
        own = pd.Series(units).groupby(codes["system"]).rank("dense")
        numbers = {at: f"number {at + 1} of each system" for at in range(most)}
        return own.to_numpy(np.int64) - 1, numbers, False
    are_numbers = all(label.isascii() and label.isdigit() for label in labels)
    numbers = dict(zip(map(int, labels), labels, strict=True)) if are_numbers else {}
    return units, numbers if len(numbers) == len(labels) else dict(enumerate(labels)), True


def _tasks(
    frame: DataFrame,
    codes: Mapping[str, NDArray[np.int64]],
    names: Mapping[str, Sequence[str]],
    values: NDArray[np.float64],
    shared: bool,
) -> list[Task]:
    """Return all tasks; those whose examples are all left out have no groups."""
    order = np.argsort(codes["task"], kind="stable")
    starts = np.searchsorted(codes["task"][order], np.arange(1, len(names["task"])))
    tasks = [_task(each, frame, codes, names, values, shared) for each in np.split(order, starts)]
    if not any(task.whole.any() for task in tasks if len(task.groups)):
        raise DataError(
            "no system has all examples of a task: leave systems out, or use --shared if some "
            "examples have scores of all"
        )
    return tasks


def _left_out(
    tasks: Sequence[Task], codes: Mapping[str, NDArray[np.int64]], examples: int
) -> list[str]:
    """Return how many of each task's examples are left out, in words."""
    sizes = np.bincount(np.unique(codes["task"] * examples + codes["example"]) // examples)
    return [
        f"{size - len(task.groups)} of {size} examples of {task.name}"
        for task, size in zip(tasks, sizes.tolist(), strict=True)
        if len(task.groups) < size
    ]


def _task(
    lines: NDArray[np.int64],
    frame: DataFrame,
    codes: Mapping[str, NDArray[np.int64]],
    names: Mapping[str, Sequence[str]],
    values: NDArray[np.float64],
    shared: bool,
) -> Task:
    """Return the scores of one task, averaged over the seeds of a run; raises DataError."""
    of = {name: column[lines] for name, column in codes.items()}
    name = names["task"][of["task"][0]]
    metric = names["metric"][of["metric"][0]] if "metric" in of else "score"
    if "metric" in of and (unlike := of["metric"] != of["metric"][0]).any():
        two = (_line(frame, lines[at], "task", "system", "metric") for at in (0, unlike.argmax()))
        raise DataError(
            f"{', but '.join(two)}: scores of one metric can be compared; --metric NAME chooses one"
        )
    used, first, example = np.unique(of["example"], return_index=True, return_inverse=True)
    shape = (len(names["system"]), int(codes["unit"].max()) + 1, len(used))
    place = np.ravel_multi_index((of["system"], of["unit"], example), shape)
    one = place * len(names["seed"]) + of["seed"] if {"run", "seed"} <= names.keys() else place
    _, at, times = np.unique(one, return_index=True, return_counts=True)
    if times.max() > 1:
        parts = [part for part in (*NEEDED[:3], "run", "seed") if part in names]
        where = _line(frame, lines[at[times.argmax()]], *parts)
        raise DataError(
            f"{where}: has {times.max()} scores: drop rows that stand twice; a column system "
            "tells systems apart, and a column seed runs of one"
        )
    size = int(np.prod(shape))
    counts = np.bincount(place, minlength=size).reshape(shape)
    sums = np.bincount(place, values[lines], minlength=size).reshape(shape)
    full = counts == np.maximum(1, counts.max(-1, keepdims=True))  # with all seeds of the run
    groups = np.arange(len(used)) if "group" not in of else of["group"][first]
    if "group" in of and (unlike := groups[example] != of["group"]).any():
        which = _line(frame, lines[unlike.argmax()], "task", "example")
        raise DataError(f"{which}: is in two groups: give it one everywhere")
    scores = np.where(full, sums / np.maximum(1, counts), np.nan)
    whole = Task(name, metric, np.unique(groups, return_inverse=True)[1], scores)
    if not shared:
        return whole
    groups = np.unique(groups[whole.common], return_inverse=True)[1]
    return Task(name, metric, groups, scores[..., whole.common])


def _in_order(tasks: Sequence[Task]) -> NDArray[np.int64]:
    """Return the systems with any example, those with most tasks first, then by their mean."""
    there = np.any([task.has.any(1) for task in tasks], axis=0)
    scored = np.sum([task.whole.any(1) for task in tasks], axis=0)
    means = np.sum([task.means.mean(1) for task in tasks], axis=0)
    order = np.lexsort((-means, -scored))
    return order[there[order]]


@dataclass(frozen=True, eq=False)
class _Scored:
    """The systems of a board, and the differences of their pairs."""

    tasks: Sequence[Task]
    systems: Sequence[str]
    numbers: Mapping[int, str]  # of the runs, for each place in `Task.scores`, and their names
    base: int  # the system with which others are compared
    unit: str  # what a run is called: run or seed
    pairs: Sequence[Pairs]

    def rows(self, order: NDArray[np.int64]) -> tuple[BoardRow, ...]:
        """Return the rows, each compared with the baseline; all of these tests are one family."""
        kept = [(each.first == self.base) | (each.second == self.base) for each in self.pairs]
        against = [
            each.of(mask, np.where(each.second[mask] == self.base, 1.0, -1.0))
            for each, mask in zip(self.pairs, kept, strict=True)
            if mask.any()
        ]
        tests = {
            (each.column, int(first + second - self.base)): (comparison, 100 * float(delta))
            for each, compared in zip(against, judged(against), strict=True)
            for first, second, comparison, delta in zip(
                each.first, each.second, compared, each.difference.mean, strict=True
            )
        }
        return tuple(self._row(at, tests) for at in order.tolist())

    def _row(self, at: int, tests: Mapping[tuple[str, int], tuple[Comparison, float]]) -> BoardRow:
        label, base = self.systems[at], self.systems[self.base]
        cells, scores = dict[tuple[str, int], Result](), dict[str, Score | None]()
        for task in self.tasks:
            own = self._cells(task, at)
            cells |= {(task.name, cell.seed): cell for cell in own}
            seeds = {cell.seed: cell.percent for cell in own if cell.metrics}
            test, delta = tests.get((task.name, at), (None, None))
            score = Score(task.metric, seeds, len(task.groups), delta, test)
            scores[task.name] = score if seeds else None
        lacking = {task.name for task in self.tasks} - {task for task, _ in cells}
        gaps = [Gap(task, None, ABSENT) for task in scores if task in lacking]
        several = len(self.numbers) > 1
        gaps += [
            Gap(c.task, c.seed if several else None, c.error) for c in cells.values() if c.error
        ]
        mean_test, _ = tests.get((average_label(ALL), at), (None, None))
        averages = {ALL: mean_test} if mean_test else {}
        return BoardRow(label, {"name": label}, scores, None, cells, tuple(gaps), base, averages)

    def _cells(self, task: Task, at: int) -> list[Result]:
        """Return the results of the runs of a system, also of incomplete ones."""
        config = {"policy": {"name": self.systems[at]}, "task": {"name": task.name}}
        cells = []
        common = task.common.sum()
        hint = f" (--shared compares the {common} that all have)" if common else ""
        numbers = [*self.numbers]
        for place in np.flatnonzero(task.has[at]).tolist():
            n, total, error = len(task.groups), None, None
            if task.whole[at, place]:
                total = Total(task.metric, float(task.scores[at, place].mean()), n)
            else:
                error = f"has {task.has[at, place]} of {n} examples{hint}"
            names = (self.systems[at], task.name, numbers[place], ALL)
            cells.append(Result(*names, config, {}, total, error=error, folder=NOWHERE))
        return cells

    def notes(self) -> list[str]:
        """Return notes on differences that have no test."""
        mean = f" and on the {average_label(ALL)}" if len(self.tasks) > 1 else ""
        base = self.systems[self.base]
        one_group = listed([task.name for task in self.tasks if not task.groups.any()])
        lacking = listed([t.name for t in self.tasks if not t.whole[self.base].any()])
        texts = {
            f"no test on {one_group}{mean}: {_ONE_GROUP}": one_group,
            f"no difference on {lacking}{mean}: {base}, the baseline, has no complete score there; "
            "--baseline names another system": lacking,
        }
        return [text for text, holds in texts.items() if holds]

    @cached_property
    def most(self) -> int:
        """The largest number of complete runs of a system on a task."""
        return max(int(task.whole.sum(1).max()) for task in self.tasks)

    @property
    def draws_seeds(self) -> bool:
        """Whether the tests generalise to other runs."""
        return any(each.seeds >= FEWEST for each in self.pairs)

    @property
    def is_paired(self) -> bool:
        """Whether two systems are compared over the runs that both have, or all have the same."""
        return self.draws_seeds or not self._unequal

    @property
    def _unequal(self) -> str:
        """Why pairs have fewer runs in common than a system has, in words; "" if none has."""
        alike = all(each.seeds == self.most for each in self.pairs)
        named = "" if alike else f"systems have {self.unit}s of different names"
        return self._with_fewer(self.most) or named

    def _with_fewer(self, most: int) -> str:
        """Return which systems have fewer complete runs on which tasks, in words."""
        places = [
            f"{self.systems[at]} has {count} of {self.most} {self.unit}s on {task.name}"
            for task in self.tasks
            for at, count in enumerate(task.whole.sum(1))
            if 0 < count < most
        ]
        return listed(places, most=3)

    def above(self, rows: Sequence[BoardRow]) -> tuple[str, ...]:
        """Return what the tests generalise to, and which differences they find, in words."""
        if not any(each.tested.any() for each in self.pairs):
            return (self._without_test(len(rows)),)
        unit, why = self.unit, "Each system has one run"
        if len(self.numbers) > 1:
            fewer = self._with_fewer(FEWEST) or self._unequal
            why = (
                f"Tests with {unit}s need {FEWEST} complete ones that two systems have"
                f"{f' ({fewer})' if fewer else ''}, so {unit}s are averaged"
            )
        each = f"each system has {self.most} {unit}s"
        if self._unequal:
            each = f"two systems are compared on the {unit}s that both have ({self._unequal})"
        said = (_DRAWN if self.draws_seeds else _HELD).format(why=why, unit=unit, each=each)
        finds = sorted(
            (test.estimate.detectable, task, test.seeds)
            for row in rows
            for task, score in row.scores.items()
            if score and (test := score.comparison) and test.estimate
        )
        base, chance = self.systems[self.base], f"with a probability of {100 * stats.POWER:.0f}%"
        if not finds:
            return (said,)
        if finds[0][0] >= 100:
            return said, f"This board is too small to mark any difference to {base} {chance}."
        tasks, finds = {task for _, task, _ in finds}, [each for each in finds if each[0] < 100]
        small = sorted(tasks - {task for _, task, _ in finds})
        seeds = sorted(seeds for *_, seeds in finds)
        numbers = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
        runs = f"With {numbers} {unit}s, this" if self.draws_seeds else "This"
        ends = dict.fromkeys(
            f"{points(least)} points ({task})" for least, task, _ in (finds[0], finds[-1])
        )
        middle = f"; median {points(finds[len(finds) // 2][0])}" if len(finds) > 2 else ""
        return (
            said,
            f"{runs} board marks a true difference to {base} {chance} if it is at least "
            f"{' to '.join(ends)}{middle}{f'; on {listed(small)}, none' if small else ''}.",
        )

    def _without_test(self, systems: int) -> str:
        """Return that there is no test, and why, in words."""
        reasons = [each.reason for each in self.pairs]
        if not reasons:
            grouped = any(task.groups.any() for task in self.tasks)
            reasons = ["two systems need a task in common" if grouped else _ONE_GROUP]
        why = "there is only one system" if systems == 1 else listed([*dict.fromkeys(reasons)])
        return f"This board has no test, so it says nothing about other examples: {why}."

    def facts(self, title: str) -> dict[str, str]:
        """Return what the scores are, by name."""
        sizes = [
            f"{task.name} {len(task.groups):,}"
            + (f" in {groups:,} group{'s'[: groups > 1]}" if groups < len(task.groups) else "")
            for task in self.tasks
            for groups in [int(task.groups.max(initial=-1)) + 1]
        ]
        facts = {"scores": f"given, of single examples: {title}", "examples": listed(sizes)}
        named = [f"{at} is {name}" for at, name in self.numbers.items() if name != str(at)]
        count = f"{self.most}{f' ({listed(named, most=20)})' if named else ''}"
        return facts | ({f"{self.unit}s": count} if len(self.numbers) > 1 else {})
