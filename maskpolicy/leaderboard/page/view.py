"""The page's table as data: columns in groups, and the text and marks of every cell."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from maskpolicy.leaderboard import description, not_significant, tuning_notes
from maskpolicy.leaderboard.board import Board, BoardRow, Score
from maskpolicy.types import Json

GIVEN = "given the context"  # the group of tasks that are not closed-book
STEPS = (0.5, 2.0, 5.0, 10.0)  # points of difference at which the colour gets stronger
UP, DOWN, EVEN = "▲", "▼", "="


@dataclass(frozen=True)
class Column:
    """One column: a task, or the average of a group."""

    title: str
    under: str  # the metric
    group: str
    index: int | None  # of the task; None for an average
    task: str  # the plugin's name; for an average, the group
    context: bool = False  # whether the task is given a context
    invented: bool = False  # whether its questions are about the embedded world


@dataclass(frozen=True)
class Cell:
    """One cell; texts are "" if they do not apply."""

    score: str = ""
    std: str = ""
    delta: str = ""
    arrow: str = ""
    interval: str = ""
    detectable: str = ""  # the detectable difference, if the difference is not significant
    effect: int = 0  # step of colour, -4..4
    best: bool = False
    significant: bool = False
    incomplete: str = ""  # why seeds or the whole score are missing
    by_score: str = ""  # sort keys
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
    """The whole table."""

    baseline: str  # the baseline, or all baselines, in words
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    groups: tuple[tuple[str, int], ...]  # with their numbers of columns
    untested: tuple[str, ...]  # "tasks: reason" for missing tests
    lacks_runs: bool  # whether tests are missing because too few seeds have their own runs
    seeds: int  # the largest number of seeds of any score
    tests: int  # differences that were tested
    majority: tuple[tuple[str, str], ...] = ()  # by column: the score of a guess, and its rule

    @property
    def summary(self) -> str:
        """The size, e.g. "4 policies × 3 tasks × 2 seeds"."""
        tasks = sum(column.index is not None for column in self.columns)
        numbers = ((len(self.lines), "policy"), (tasks, "task"), (self.seeds, "seed"))
        return " × ".join(
            f"{n} {word if n == 1 else word.replace('policy', 'policie') + 's'}"
            for n, word in numbers
        )

    @property
    def has_averages(self) -> bool:
        """Whether a column is the average of a group."""
        return any(column.index is None for column in self.columns)

    @property
    def scale(self) -> list[tuple[int, str]]:
        """The steps of colour from worst to best, with the points at which they begin."""
        ends = {len(STEPS): "≥ +", -len(STEPS): "≤ −"}
        labels = [(0, "0")]
        for step, points in enumerate(STEPS, 1):
            labels.append((step, f"{ends.get(step, '+')}{points:g}"))
            labels.insert(0, (-step, f"{ends.get(-step, '−')}{points:g}"))
        return labels

    @property
    def has_test(self) -> bool:
        """Whether any difference was tested."""
        return self.tests > 0


def table(board: Board) -> Table:
    """Return the table of a board, with the tasks of each group side by side."""
    columns = _columns(board)
    best = board.best()
    lines = tuple(
        Line(
            row.label,
            _about(row),
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
        not_significant.untested(board),
        not_significant.lacks_runs(board),
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
        on = description.column(board, task)
        texts = (board.metric(task), on.size, description.INVENTED if on.is_invented else "")
        under = " · ".join(filter(None, texts))
        name = config.get("name", task)
        column = Column(on.title, under, group, index, name, given, on.is_invented)
        found.setdefault(group, []).append(column)
    for group, members in found.items():
        if group in board.groups and group != GIVEN:
            under = f"mean of {len(members)}"
            members.append(Column("average", under, group, None, group))
    return tuple(column for members in found.values() for column in members)


def _cell(board: Board, row: BoardRow, column: Column, best: dict[str, set[str]]) -> Cell:
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


def _average(board: Board, row: BoardRow, group: str) -> Cell:
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


def _interval(score: Score) -> str:
    test = score.comparison and score.comparison.estimate
    return f"{test.low:+.1f} to {test.high:+.1f}".replace("-", "−") if test else ""


def _detectable(score: Score) -> str:
    test = score.comparison and score.comparison.estimate
    if not test or score.is_significant or test.detectable <= 0:
        return ""
    return f"±{test.detectable:.1f}"


def _about(row: BoardRow) -> str:
    """Return a row's policy and its settings, with what it has in place of the file's budgets."""
    settings = {key: value for key, value in row.config.items() if key != "name"}
    for stage, values in row.trainings.items():
        settings |= {f"{stage}.{key}": value for key, value in values.items()}
    chosen = {tuning_notes.choice(cell) for cell in row.cells.values()} - {""}
    settings |= {tuning_notes.CHOICE: "; ".join(sorted(chosen))} if chosen else {}
    return ", ".join([row.config["name"], *(f"{key}: {value}" for key, value in settings.items())])
