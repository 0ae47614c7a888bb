"""What the page's table shows: columns in their groups, and every cell as text and marks."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from maskpolicy.leaderboard import measured, tested
from maskpolicy.leaderboard.board import Board, Row, Score
from maskpolicy.types import Json

GIVEN = "given the context"  # the group of tasks that are not closed-book here
STEPS = (0.5, 2.0, 5.0, 10.0)  # points of difference from which a colour is one step stronger
UP, DOWN, EVEN = "▲", "▼", "="


@dataclass(frozen=True)
class Column:
    """One column: a task, or the average of a group."""

    title: str
    under: str  # the metric
    group: str
    index: int | None  # of the task; None: an average
    task: str  # the plugin's name; of an average its group
    context: bool = False
    invented: bool = False  # whether its questions are about the embedded world


@dataclass(frozen=True)
class Cell:
    """One cell; texts are empty where there is nothing to say."""

    score: str = ""
    std: str = ""
    delta: str = ""
    arrow: str = ""
    interval: str = ""
    detectable: str = ""  # the difference that would have been marked, where none is
    effect: int = 0  # -4..4
    best: bool = False
    significant: bool = False
    incomplete: str = ""  # why some or all of it is missing
    by_score: str = ""  # what the table is sorted by
    by_delta: str = ""


@dataclass(frozen=True)
class Line:
    """One row."""

    label: str
    about: str  # the policy's settings
    cells: tuple[Cell, ...]
    is_baseline: bool


@dataclass(frozen=True)
class Table:
    """All that the table shows."""

    baseline: str  # in words, which tell if there are several
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    groups: tuple[tuple[str, int], ...]  # and the number of their columns
    untested: tuple[str, ...]  # where differences have no test, and why
    lacks_runs: bool  # whether for want of seeds with intermediate runs of their own
    seeds: int  # the most that a score has
    tests: int  # differences that were tested
    majority: tuple[tuple[str, str], ...] = ()  # by column: what a guess reaches, and its rule

    @property
    def summary(self) -> str:
        """How much there is."""
        tasks = sum(column.index is not None for column in self.columns)
        numbers = ((len(self.lines), "policy"), (tasks, "task"), (self.seeds, "seed"))
        return " × ".join(f"{number} {_plural(word, number)}" for number, word in numbers)

    @property
    def has_averages(self) -> bool:
        """Whether a column is the average of a group."""
        return any(column.index is None for column in self.columns)

    @property
    def scale(self) -> list[tuple[int, str]]:
        """The steps of colour, from worst to best, and the points at which they begin."""
        ends = {len(STEPS): "≥ +", -len(STEPS): "≤ −"}
        labels = [(0, "0")]
        for step, points in enumerate(STEPS, 1):
            labels.append((step, f"{ends.get(step, '+')}{points:g}"))
            labels.insert(0, (-step, f"{ends.get(-step, '−')}{points:g}"))
        return labels

    @property
    def has_test(self) -> bool:
        """Whether any cell could be tested."""
        return self.tests > 0


def table(board: Board) -> Table:
    """Return the table of a board; tasks of one group stand together."""
    columns = _columns(board)
    best = board.best()
    lines = tuple(
        Line(
            row.label,
            _about(row.config),
            tuple(_cell(board, row, column, best) for column in columns),
            row.is_baseline,
        )
        for row in board.rows
    )
    groups = {column.group: 0 for column in columns}
    for column in columns:
        groups[column.group] += 1
    majority = tuple(_majority(board, column) for column in columns) if board.majority else ()
    return Table(
        board.compared_with,
        columns,
        lines,
        tuple(groups.items()),
        tested.untested(board),
        tested.lacks_runs(board),
        board.seeds,
        board.tests,
        majority,
    )


def _columns(board: Board) -> tuple[Column, ...]:
    about = {task: cell for row in board.rows for (task, _), cell in row.cells.items()}
    found: dict[str, list[Column]] = {}
    for index, task in enumerate(board.tasks):
        config = about[task].config["task"]
        given = bool(config.get("context"))
        group = GIVEN if given else about[task].group
        on = measured.column(board, task)
        texts = (board.metric(task), on.size, measured.INVENTED if on.is_invented else "")
        under = " · ".join(filter(None, texts))
        name = config.get("name", task)
        column = Column(on.title, under, group, index, name, given, on.is_invented)
        found.setdefault(group, []).append(column)
    for group, members in found.items():
        if group in board.groups and group != GIVEN:
            under = f"mean of {len(members)}"
            members.append(Column("average", under, group, None, group))
    return tuple(column for members in found.values() for column in members)


def _cell(board: Board, row: Row, column: Column, best: dict[str, set[str]]) -> Cell:
    if column.index is None:
        return _average(board, row, column.group)
    task = board.tasks[column.index]
    score = row.scores[task]
    gaps = [gap for gap in row.gaps if gap.task == task]
    missing = "; ".join(
        gap.reason if gap.seed is None else f"seed {gap.seed}: {gap.reason}" for gap in gaps
    )
    if score is None:
        return Cell(incomplete=missing or "not in these results")
    delta = None if row.is_baseline else score.delta
    return Cell(
        score=f"{score.mean:.1f}",
        std="" if score.std is None else f"{score.std:.1f}",
        interval=_interval(score),
        detectable=_detectable(score),
        best=score.is_complete and row.label in best[task],
        significant=delta is not None and score.is_significant,
        incomplete=missing,
        by_score=f"{score.mean:.6f}",
        **_difference(delta),
    )


def _average(board: Board, row: Row, group: str) -> Cell:
    mean = board.average(row, group)
    if mean is None:
        return Cell(incomplete=f"no average: {group} is not complete in this row")
    scores = [row.scores[task] for task in board.groups[group]]
    deltas = [score.delta for score in scores if score is not None and score.delta is not None]
    whole = len(deltas) == len(scores) and not row.is_baseline
    delta = statistics.fmean(deltas) if whole else None
    return Cell(score=f"{mean:.1f}", by_score=f"{mean:.6f}", **_difference(delta))


def _majority(board: Board, column: Column) -> tuple[str, str]:
    if column.index is None:
        mean = board.majority_average(column.group)
        return ("" if mean is None else f"{mean:.1f}"), ""
    guess = board.majority.get(board.tasks[column.index])
    return (f"{guess.percent:.1f}", guess.rule) if guess else ("", "")


def _difference(delta: float | None) -> Json:
    if delta is None:
        return {}
    text = f"{delta:+.1f}"
    flat = float(text) == 0
    size = sum(abs(delta) >= step for step in STEPS)
    return {
        "delta": "0.0" if flat else text.replace("-", "−"),
        "arrow": EVEN if flat else UP if delta > 0 else DOWN,
        "effect": size if delta > 0 else -size,
        "by_delta": f"{delta:.6f}",
    }


def _plural(word: str, number: int) -> str:
    if number == 1:
        return word
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def _interval(score: Score) -> str:
    found = score.comparison and score.comparison.found
    if not found:
        return ""
    return f"{found.low:+.1f} to {found.high:+.1f}".replace("-", "−")


def _detectable(score: Score) -> str:
    found = score.comparison and score.comparison.found
    if not found or score.is_significant or found.detectable <= 0:
        return ""
    return f"±{found.detectable:.1f}"


def _about(config: Json) -> str:
    settings = {key: value for key, value in config.items() if key != "name"}
    return ", ".join([config["name"], *(f"{key}: {value}" for key, value in settings.items())])
