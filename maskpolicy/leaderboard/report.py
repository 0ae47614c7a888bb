"""Write a leaderboard as JSON, Markdown, CSV and LaTeX, and as a table for the terminal."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskpolicy import markdown
from maskpolicy.config.budgets import TRAININGS
from maskpolicy.files import write_file
from maskpolicy.leaderboard import description, latex, not_significant
from maskpolicy.leaderboard.board import VERSION, WORK, Board, BoardRow, Score, average_label
from maskpolicy.leaderboard.comparisons import Comparison
from maskpolicy.leaderboard.stats import LEVEL
from maskpolicy.majority import LABEL, SENTENCE
from maskpolicy.types import Json

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_DIGITS = 4
_WIDEST = 32  # characters of a label that the terminal's table keeps together
_TEST = ("low", "high", "p", "p_holm", "significant", "detectable")
SIGNIFICANT = "†"
RANKS = (
    "95% confidence sets of the ranks of all rows together, from tests of all pairs of rows; "
    "=: tied with the best, no row is significantly better"
)


def save_report(board: Board, out: Path, *, work: bool = False) -> None:
    """Write leaderboard.json, .md, .csv and .tex, each atomically."""
    document = json.dumps(to_json(board, work=work), ensure_ascii=False, indent=1, allow_nan=False)
    write_file(out / "leaderboard.json", f"{document}\n".encode())
    write_file(out / "leaderboard.md", to_markdown(board, work=work).encode())
    write_file(out / "leaderboard.csv", to_csv(board, work=work).encode())
    write_file(out / "leaderboard.tex", latex.render(board).encode())


def to_json(board: Board, *, work: bool = False) -> Json:
    """Return the board as JSON, with scores in percent and null for missing values.

    `work` adds the work of the intermediate stage to each row.
    """
    columns = [description.column(board, task) for task in board.tasks]
    return {
        "version": VERSION,
        "baseline": board.baseline,
        "measured": {
            "settings": description.facts(board, most=None),
            "tasks": {
                each.task: {
                    "title": each.title,
                    "sources": list(each.sources),
                    "invented": each.is_invented,
                    "n": list(each.n),
                }
                for each in columns
            },
        },
        LABEL: {task: round(one.percent, _DIGITS) for task, one in board.majority.items()},
        "majority_rules": {task: one.rule for task, one in board.majority.items()},
        "rows": [
            {
                "policy": row.label,
                "config": row.config,
                **({"trainings": row.trainings} if row.trainings else {}),
                **({"tuning": row.tuning} if row.tuning else {}),
                "scores": {task: _score(row.scores[task]) for task in board.tasks},
                "baseline": row.against,
                **({"work": row.work} if work else {}),
            }
            for row in board.rows
        ],
        "ranks": {
            column: {label: [one.low, one.high] for label, one in ranks.items()}
            for column, ranks in board.standings.items()
        },
        "tied_with_best": tied_with_best(board),
        "pairs": [
            {"column": each.column, "row": each.row, "other": each.other}
            | _comparison(each.comparison, each.comparison.is_significant)
            for each in board.pairs
        ],
        "notes": list(board.notes),
    }


def tied_with_best(board: Board) -> dict[str, list[str]]:
    """Return, by task or average, the rows that no other row beats significantly."""
    return {
        column: [label for label, one in ranks.items() if one.is_tied_with_best]
        for column, ranks in board.standings.items()
    }


def to_pairs(board: Board) -> Table | str:
    """Return the differences of all pairs of rows as a table for the terminal, or why none is."""
    from rich.table import Table

    tests = sum(each.comparison.estimate is not None for each in board.pairs)
    if not tests:
        reasons = dict.fromkeys(filter(None, (each.comparison.reason for each in board.pairs)))
        return f"no pair of rows can be tested: {'; '.join(reasons) or 'there is only one row'}"
    adjusted = f"p adjusted for {tests} test{'s'[: tests != 1]} (Holm)"
    table = Table("column", "row", "minus", title=f"all pairs of rows, in points; {adjusted}")
    for name in ("difference", "95% interval", "p", "p (Holm)", "finds"):
        table.add_column(name, justify="right")
    for each in board.pairs:
        column = description.title(board, each.column)
        table.add_row(column, each.row, each.other, *_pair(each.comparison))
    return table


def to_ranks(board: Board) -> Table:
    """Return the possible ranks of each row as a table for the terminal."""
    from rich.table import Table

    table = Table("policy", title=RANKS)
    for column in board.standings:
        table.add_column(description.title(board, column), justify="right")
    for row in board.rows:
        table.add_row(row.label, *ranks_of(board, row))
    return table


def ranks_of(board: Board, row: BoardRow) -> list[str]:
    """Return the possible ranks of one row for each column, e.g. "1-3 =".

    "=" marks a tie with the best. "–" means that the row has no score, "" that it has no test.
    """
    texts = []
    for column, ranks in board.standings.items():
        one = ranks.get(row.label)
        if one is None:
            texts.append("" if board.has_score(row, column) else "–")
        else:
            texts.append(f"{one}{' =' if one.is_tied_with_best else ''}")
    return texts


def _pair(comparison: Comparison) -> list[str]:
    test = comparison.estimate
    if test is None or comparison.p_holm is None:
        return [f"no test: {comparison.reason}", "", "", "", ""]
    mark = SIGNIFICANT if comparison.is_significant else ""
    return [
        f"{test.difference:+.1f}{mark}",
        f"{test.low:+.1f} to {test.high:+.1f}",
        f"{test.p:.3g}",
        f"{comparison.p_holm:.3g}",
        f"±{test.detectable:.1f}",
    ]


def to_markdown(board: Board, *, work: bool = False) -> str:
    """Return the board as a Markdown table, followed by facts, notes, tests and ranks."""
    head, body = cells(board, work)
    shown = "one seed" if board.seeds == 1 else "mean ± standard deviation over seeds"
    about = [f"Percent: {shown} (difference to {markdown.plain(board.compared_with)})."]
    if any(SIGNIFICANT in cell for line in body for cell in line[1:]):
        about.append(f"{SIGNIFICANT}: p < {LEVEL} over seeds and examples, after Holm.")
    if board.majority:
        about.append(f"{SENTENCE}.")
    about += map(markdown.plain, not_significant.lines(board))
    facts = description.facts(board)
    about += ["", *(f"* {name}: {markdown.plain(fact)}" for name, fact in facts.items())]
    notes = [f"* {markdown.plain(note)}" for note in board.notes]
    table = markdown.plain_table(head, body, numbers=True)
    parts = [
        table,
        "",
        *about,
        *([""] if notes else []),
        *notes,
        *not_significant.to_markdown(board),
    ]
    if board.standings:
        lines = [[row.label, *ranks_of(board, row)] for row in board.rows]
        columns = [description.title(board, column) for column in board.standings]
        ranks = markdown.plain_table(["policy", *columns], lines, numbers=True)
        parts += ["", f"{RANKS}.", "", ranks]
    return "\n".join(parts) + "\n"


def to_csv(board: Board, *, work: bool = False) -> str:
    """Return the board as CSV, one line for each policy and task; missing values are empty.

    The column "majority" repeats the task's majority score in every row.
    """
    seeds = sorted(
        {s for row in board.rows for score in row.scores.values() if score for s in score.seeds}
    )
    head = ["policy", "task", "metric", "mean", "std", "delta", "n", *(f"seed {n}" for n in seeds)]
    about: tuple[str, ...] = ("data", "model", *TRAININGS)
    if any(row.tuning for row in board.rows):
        about += ("tuned", "tuning cost")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*head, *_TEST, LABEL, *about, *(WORK if work else ())])
    guessed = {task: round(one.percent, _DIGITS) for task, one in board.majority.items()}
    for row in board.rows:
        done = [(row.work or {}).get(name) for name in WORK] if work else []
        for task in board.tasks:
            score = _score(row.scores[task]) or {"seeds": {}}
            numbers = [score.get(key) for key in ("metric", "mean", "std", "delta", "n")]
            each = [score["seeds"].get(str(seed)) for seed in seeds]
            test = score.get("comparison") or {}
            if test.get("p") is None:  # no test, so neither significant nor not
                test = {**test, "significant": None}
            figures = [*(test.get(key) for key in _TEST), guessed.get(task)]
            facts = description.of_row(row, task)
            texts = [facts.get(key) for key in about]
            cells = [row.label, task, *numbers, *each, *figures, *texts, *done]
            writer.writerow(map(_no_formula, cells))
    return text.getvalue()


def _no_formula(cell: Json) -> Json:
    """Return a cell that spreadsheets do not take for a formula: such texts get a leading '."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(tuple("=+-@\t\r")) else cell


def to_table(board: Board, *, work: bool = False) -> Group:
    """Return the board for the terminal, with what its scores are; the caller prints the notes.

    Lines above and below the table have the width of the terminal, whatever that of the table.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    head, body = cells(board, work)
    shown = "one seed" if board.seeds == 1 else "mean ± std over seeds"
    facts = [f"{name}: {fact}" for name, fact in description.facts(board).items()]
    about = [f"{SENTENCE}."] if board.majority else []
    title = Text(f"percent, {shown} (difference to {board.compared_with})", style="italic")
    table = Table()
    words = (word for line in body for word in line[0].split())
    widest = min(_WIDEST, max(map(len, words), default=0))  # labels are not cut inside a word
    for index, name in enumerate(head):
        side: dict[str, Any] = {"min_width": widest} if index == 0 else {"justify": "right"}
        table.add_column(name, overflow="fold", **side)
    for index, line in enumerate(body):
        table.add_row(*line, end_section=index == 0 and bool(board.majority))
    return Group(title, table, *(Text(line, style="dim") for line in (*about, *facts)))


def cells(board: Board, work: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows, majority first; columns are tasks, averages and work."""
    head = ["policy"]
    for task in board.tasks:
        column = description.column(board, task)
        about = ", ".join(filter(None, (board.metric(task), column.size)))
        head.append(f"{column.title}: {about}")
    head += [average_label(group) for group in board.groups]
    head += [name.replace("_", " ") for name in WORK] if work else []
    body = [_majority(board, work)] if board.majority else []
    for row in board.rows:
        line = [row.label, *(_text(row.scores[task], row) for task in board.tasks)]
        line += [_number(board.average(row, group)) for group in board.groups]
        line += [str((row.work or {}).get(name, "–")) for name in WORK] if work else []
        body.append(line)
    return head, body


def _majority(board: Board, work: bool) -> list[str]:
    known = [board.majority.get(task) for task in board.tasks]
    line = [LABEL, *(_number(None if one is None else one.percent) for one in known)]
    line += [_number(board.majority_average(group)) for group in board.groups]
    return line + ["–"] * (len(WORK) if work else 0)


def _text(score: Score | None, row: BoardRow) -> str:
    if score is None:
        return "–"
    text = _number(score.mean)
    if score.std is not None:
        text += f" ± {score.std:.1f}"
    if score.delta is not None and not row.is_baseline:
        mark = SIGNIFICANT if score.is_significant else ""
        text += f" ({score.delta:+.1f}{mark})"
    return text if score.is_complete else f"{text} *"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _score(score: Score | None) -> Json:
    if score is None:
        return None
    parts = {name: round(value, _DIGITS) for name, value in score.parts.items()}
    return {
        "metric": score.metric,
        "mean": round(score.mean, _DIGITS),
        "std": None if score.std is None else round(score.std, _DIGITS),
        "seeds": {
            str(seed): None if value is None else round(value, _DIGITS)
            for seed, value in score.seeds.items()
        },
        "n": score.n,
        "delta": None if score.delta is None else round(score.delta, _DIGITS),
        "comparison": comparison_json(score),
        **({"parts": parts} if parts else {}),
    }


def comparison_json(score: Score) -> Json:
    """Return a score's comparison as JSON; without a test, its numbers are null."""
    if score.comparison is None:
        return None
    return _comparison(score.comparison, score.is_significant)


def _comparison(comparison: Comparison, is_significant: bool) -> dict[str, Json]:
    test = comparison.estimate
    return {
        "difference": test and round(test.difference, _DIGITS),
        "low": test and round(test.low, _DIGITS),
        "high": test and round(test.high, _DIGITS),
        "p": test and float(f"{test.p:.{_DIGITS}g}"),
        "p_holm": None if comparison.p_holm is None else float(f"{comparison.p_holm:.{_DIGITS}g}"),
        "significant": is_significant,
        "seeds": comparison.seeds,
        "groups": test and test.groups,
        "detectable": test and round(test.detectable, _DIGITS),
        "reason": comparison.reason,
    }
