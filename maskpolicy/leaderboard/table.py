"""A leaderboard's table: columns in groups, and the text and marks of every cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from maskpolicy.core.types import Json
from maskpolicy.leaderboard.board import Board, BoardRow
from maskpolicy.leaderboard.comparisons import Comparison, points

GIVEN = "given the context"  # the group of tasks that are not closed-book
STEPS = (0.0, 2.0, 5.0, 10.0)  # points of difference at which the colour gets stronger
UP, DOWN, EVEN = "▲", "▼", "="
SIGNIFICANT, MISSING = "†", "–"
WIDTH, HEIGHT = 64, 8  # of the dots of a cell's seeds


@dataclass(frozen=True)
class Column:
    """One column: a task, or the average of a group."""

    title: str
    under: tuple[str, ...]  # lines: the metric, the number of test examples
    group: str
    index: int | None  # of the task; None for an average
    data_set: str = ""  # whose own questions are asked without a context; "" for other columns


@dataclass(frozen=True)
class Cell:
    """The text of one cell in every form of a leaderboard; texts are "" if they do not apply."""

    score: str = ""
    std: str = ""
    delta: str = ""  # difference to the baseline, e.g. "+1.3"
    interval: str = ""
    detectable: str = ""  # the detectable difference, if the difference is not significant
    seeds: str = ""  # where the seeds' scores lie: the path of an SVG of WIDTH x HEIGHT
    against: str = ""  # the baseline's mean there
    effect: int = 0  # step of colour of a significant difference, -4..4
    best: bool = False
    significant: bool = False
    guessed: bool = False  # not above the score of a guess without a model
    incomplete: str = ""  # why seeds or the whole score are missing
    by_score: str = ""  # sort keys
    by_delta: str = ""

    @property
    def arrow(self) -> str:
        """The sign of the difference as an arrow."""
        signs = {"": "", "0": EVEN, "+": UP, "-": DOWN}
        return signs[self.delta[:1]]

    def __str__(self) -> str:
        """Return the cell on one line, e.g. "41.2 ± 0.5 (+1.3†) *"; * if seeds are missing."""
        if not self.score:
            return MISSING
        std = f" ± {self.std}" if self.std else ""
        mark = SIGNIFICANT if self.significant else ""
        delta = f" ({self.delta}{mark})" if self.delta else ""
        return f"{self.score}{std}{delta}{' *' if self.incomplete else ''}"

    def to_latex(self) -> str:
        """Return the cell for a LaTeX table; the best of its column is bold."""
        if not self.score:
            return "--"
        mean = rf"\mathbf{{{self.score}}}" if self.best else self.score
        std = rf" \pm {self.std}" if self.std else ""
        mark = r"^{\dagger}" if self.significant else ""
        delta = f" (${self.delta}{mark}$)" if self.delta else ""
        return f"${mean}{std}${delta}{'*' if self.incomplete else ''}"


@dataclass(frozen=True)
class Table:
    """The whole table: the tasks of each group side by side, with their average."""

    board: Board
    columns: tuple[Column, ...]
    rows: tuple[tuple[BoardRow, tuple[Cell, ...]], ...]
    majority: tuple[tuple[str, str], ...] = ()  # by column: the score of a guess, and its rule

    @property
    def groups(self) -> Mapping[str, int]:
        """The groups of columns, with their numbers of columns."""
        return Counter(column.group for column in self.columns)

    def in_order(self) -> Table:
        """Return the table with columns as on the board, then averages.

        Averages of a run have differences if these are tested.
        """
        tasks = {column.index: at for at, column in enumerate(self.columns)}
        means = [at for at, column in enumerate(self.columns) if column.index is None]
        order = [*(tasks[index] for index in range(len(self.board.tasks))), *means]

        def shown(cell: Cell) -> Cell:
            return cell if cell.interval or self.board.given else replace(cell, delta="")

        rows = [
            (row, [shown(cell) if i in means else cell for i, cell in enumerate(cells)])
            for row, cells in self.rows
        ]
        return Table(
            self.board,
            tuple(self.columns[at] for at in order),
            tuple((row, tuple(cells[at] for at in order)) for row, cells in rows),
            tuple(self.majority[at] for at in order) if self.majority else (),
        )

    @property
    def summary(self) -> str:
        """The size, e.g. "4 policies × 3 tasks × 2 seeds"."""
        tasks = sum(column.index is not None for column in self.columns)
        seeds = (self.board.seeds, self.board.unit)
        numbers = ((len(self.rows), self.board.noun), (tasks, "task"), seeds)
        return " × ".join(
            f"{n} {word if n == 1 else word.replace('policy', 'policie') + 's'}"
            for n, word in numbers
        )

    @property
    def has_averages(self) -> bool:
        """Whether a column is the average of a group."""
        return any(column.index is None for column in self.columns)

    @property
    def has_costs(self) -> bool:
        """Whether a row has an intermediate stage whose tokens were counted."""
        return any(row.tokens is not None for row, _ in self.rows)

    @property
    def scale(self) -> list[tuple[int, str]]:
        """The steps of colour from worst to best, with the points at which they begin."""
        labels: list[tuple[int, str]] = []
        for step, least in enumerate(STEPS, 1):
            end, size = "≥ " if step == len(STEPS) else "", f"{least:g}" if least else ""
            labels.append((step, f"{end}+{size}"))
            labels.insert(0, (-step, f"{end.replace('≥', '≤')}−{size}"))
        return labels


def table(board: Board) -> Table:
    """Return the table of a board, with the tasks of each group side by side."""
    columns = _columns(board)
    best = board.best()
    rows = tuple(
        (row, tuple(_cell(board, row, column, best) for column in columns)) for row in board.rows
    )
    majority = tuple(_majority(board, column) for column in columns) if board.majority else ()
    return Table(board, columns, tuple(rows), majority)


def _columns(board: Board) -> tuple[Column, ...]:
    about = {task: cell for row in board.rows for (task, _), cell in row.cells.items()}
    found: dict[str, list[Column]] = {}
    for index, task in enumerate(board.tasks):
        config = about[task].config["task"]
        given = bool(config.get("context"))
        group = GIVEN if given else about[task].group
        on = board.column(task)
        under = tuple(filter(None, (board.metric(task), on.size)))
        is_official = not (given or on.is_invented or config.get("metrics"))
        data_set = config.get("name", task) if is_official else ""
        column = Column(on.title, under, group, index, data_set)
        found.setdefault(group, []).append(column)
    for group, members in found.items():
        if group in board.groups and group != GIVEN:
            mean = (f"mean of {len(members)}",)
            members.append(Column("average", mean, group, None))
    return tuple(column for members in found.values() for column in members)


def _cell(board: Board, row: BoardRow, column: Column, best: dict[str, set[str]]) -> Cell:
    if column.index is None:
        return _average(board, row, column.group)
    task = board.tasks[column.index]
    score = row.scores[task]
    gaps = [gap for gap in row.gaps if gap.task == task]
    missing = "; ".join(
        gap.reason if gap.seed is None else f"{board.unit} {gap.seed}: {gap.reason}" for gap in gaps
    )
    if score is None:
        return Cell(incomplete=missing or "not in these results")
    delta = None if row.is_baseline else score.delta
    is_significant = delta is not None and score.is_significant
    seeds, against = _dots(board, row, task) if board.seeds > 1 else ("", "")
    guess = board.majority.get(task)
    return Cell(
        score=points(score.mean),
        std="" if score.std is None else points(score.std),
        seeds=seeds,
        against=against,
        best=row.label in best[task],
        guessed=guess is not None and score.mean <= guess.percent,
        incomplete=missing,
        by_score=f"{score.mean:.6f}",
        **_difference(delta, score.comparison, is_significant),
    )


def _dots(board: Board, row: BoardRow, task: str) -> tuple[str, str]:
    """Return the SVG paths of a row's seeds and of its baseline's mean, on the scale of the task.

    The scale goes from the lowest to the highest score that any row has on the task.
    """
    known = {each.label: score for each in board.rows if (score := each.scores[task])}
    values = [value for score in known.values() for value in score.values]
    low, high = min(values), max(values)

    def place(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 0.5
        return f"{3 + (WIDTH - 6) * share:.1f}".removesuffix(".0")

    middle = HEIGHT // 2
    dots = "".join(f"M{place(value)} {middle}h0" for value in known[row.label].values)
    base = known.get(row.against)
    return dots, f"M{place(base.mean)} 0v{HEIGHT}" if base else ""


def _average(board: Board, row: BoardRow, group: str) -> Cell:
    mean = board.average(row, group)
    if mean is None:
        return Cell(incomplete=f"no average: {group} is not complete in this row")
    guess = board.majority_average(group)
    guessed = guess is not None and mean <= guess
    test = row.averages.get(group)
    significant = test is not None and test.is_significant
    compared = _difference(board.average_delta(row, group), test, significant)
    return Cell(score=points(mean), guessed=guessed, by_score=f"{mean:.6f}", **compared)


def _majority(board: Board, column: Column) -> tuple[str, str]:
    if column.index is None:
        mean = board.majority_average(column.group)
        return ("" if mean is None else points(mean)), ""
    guess = board.majority.get(board.tasks[column.index])
    return (points(guess.percent), guess.rule) if guess else ("", "")


def _difference(delta: float | None, comparison: Comparison | None, significant: bool) -> Json:
    """Return what a cell says of a difference and of its test."""
    test = comparison and comparison.estimate
    tested = {"interval": test.interval, "significant": significant} if test else {}
    if test and not significant and test.detectable > 0:
        tested["detectable"] = test.finds
    if delta is None:
        return tested
    shown = {"delta": signed(delta), "by_delta": f"{delta:.6f}"}
    size = sum(abs(delta) >= step for step in STEPS) if significant else 0
    return shown | tested | {"effect": size if delta > 0 else -size}


def signed(difference: float) -> str:
    """Return a difference in points with its sign; "0.0" if it rounds to zero."""
    text = points(difference, "+")
    return text if float(text) else "0.0"
