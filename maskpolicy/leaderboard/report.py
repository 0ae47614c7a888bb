"""Write a leaderboard as JSON, Markdown, CSV and LaTeX, and as a table for the terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskpolicy.core import markdown
from maskpolicy.core.files import write_file
from maskpolicy.core.types import Json
from maskpolicy.data.majority import LABEL, SENTENCE
from maskpolicy.experiment.budgets import TRAININGS
from maskpolicy.leaderboard import description
from maskpolicy.leaderboard.board import (
    MASKED,
    VERSION,
    WORK,
    Board,
    BoardRow,
    Score,
    average_label,
    masked,
)
from maskpolicy.leaderboard.comparisons import DIGITS, Comparison, Versus
from maskpolicy.leaderboard.stats import LEVEL, POWER
from maskpolicy.leaderboard.table import MISSING, SIGNIFICANT, signed, table
from maskpolicy.leaderboard.table import Table as WholeTable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_SEED_DIGITS = 10  # from which `site` computes means again
_WIDEST = 32  # characters of a label that the terminal's table keeps together
_TEST = ("low", "high", "p", "p_holm", "significant", "detectable")
_ESCAPES = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
}
_PREAMBLE = r"""% needs \usepackage{booktabs}; \textquotedbl also \usepackage[T1]{fontenc}
"""
_HEAD = ("task", "difference", "95% interval", "finds")
_NOT_SIGNIFICANT = (
    "Differences that are not significant: the confidence interval of each, and the difference "
    f"that would have been significant with a probability of {100 * POWER:.0f}%. "
    "Not significant does not mean that there is no difference"
)
_MASKED = (
    "What each policy masked in an intermediate run, and its cost: tokens of sources and targets"
)
RANKS = (
    "95% confidence sets of the ranks of all rows together, from tests of all pairs of rows; "
    "=: tied with the best, no row is significantly better"
)


def save_report(board: Board, out: Path, *, work: bool = False) -> None:
    """Write leaderboard.json, .md, .csv and .tex, each atomically; given scores have pairs.csv."""
    document = json.dumps(to_json(board, work=work), ensure_ascii=False, indent=1, allow_nan=False)
    write_file(out / "leaderboard.json", f"{document}\n".encode())
    write_file(out / "leaderboard.md", to_markdown(board, work=work).encode())
    write_file(out / "leaderboard.csv", to_csv(board, work=work).encode())
    write_file(out / "leaderboard.tex", to_latex(board).encode())
    if board.given is not None:
        lines = [_versus(each) for each in board.pairs]
        head = [*lines[0]] if lines else []
        write_file(out / "pairs.csv", _csv([head, *map(dict.values, lines)]).encode())


def to_json(board: Board, *, work: bool = False) -> Json:
    """Return the board as JSON, with scores in percent and null for missing values.

    `work` adds the work of the intermediate stage to each row.
    """
    columns = [board.column(task) for task in board.tasks]
    given: Json = {}
    if board.given is not None:  # `stored_board` reads it again
        gaps = [[r.label, gap.task, gap.seed, gap.reason] for r in board.rows for gap in r.gaps]
        title, above = board.runs[0].experiment, list(board.given.above)
        apart: Json = {} if board.given.paired else {"paired": False}
        told = {"title": title, "above": above, "gaps": gaps, "unit": board.unit, **apart}
        given = {"given": told}
    return {
        "version": VERSION,
        "baseline": board.baseline,
        **given,
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
        LABEL: _majority(board),
        "majority_rules": {task: one.rule for task, one in board.majority.items()},
        "rows": [
            {
                "policy": row.label,
                "config": row.config,
                **({"trainings": row.trainings} if row.trainings else {}),
                **({"tuning": row.tuning} if row.tuning else {}),
                **({"averages": averages} if (averages := _averages(board, row)) else {}),
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
        "tied_with_best": {
            column: [label for label, one in ranks.items() if one.is_tied_with_best]
            for column, ranks in board.standings.items()
        },
        "pairs": [_versus(each) for each in board.pairs],
        "notes": list(board.notes),
    }


def _versus(versus: Versus) -> dict[str, Json]:
    names = {"column": versus.column, "row": versus.row, "other": versus.other}
    return names | _comparison(versus.comparison, versus.comparison.is_significant)


def _averages(board: Board, row: BoardRow) -> dict[str, Json]:
    """Return the averages of a row by their titles, as `_score` has scores."""
    averages: dict[str, Json] = {}
    for group in board.groups:
        mean, test = board.average(row, group), row.averages.get(group)
        compared = test and _comparison(test, test.is_significant)
        delta = _rounded(board.average_delta(row, group))
        some = {"mean": _rounded(mean), "delta": delta, "comparison": compared}
        averages[average_label(group)] = None if mean is None else some
    return averages


def _majority(board: Board) -> dict[str, float]:
    """Return the majority scores of tasks, and of averages where they are known."""
    scores = {task: one.percent for task, one in board.majority.items()}
    means = {average_label(group): board.majority_average(group) for group in board.groups}
    scores |= {title: mean for title, mean in means.items() if mean is not None}
    return {title: round(score, DIGITS) for title, score in scores.items()}


def to_pairs(board: Board) -> Table | str:
    """Return the differences of all pairs of rows as a table for the terminal, or why not."""
    tests = sum(each.comparison.estimate is not None for each in board.pairs)
    if not tests:
        reasons = dict.fromkeys(filter(None, (each.comparison.reason for each in board.pairs)))
        none = "no two share a task with two groups of examples"
        reason = "; ".join(reasons) or (none if board.rows[1:] else "there is only one row")
        return f"no pair of rows can be tested: {reason}"
    adjusted = f"p adjusted for {tests} test{'s'[: tests != 1]} (Holm)"
    if any(each.comparison.seeds > 1 for each in board.pairs):
        adjusted += (
            "; noise between runs is estimated from all pairs, and on the leaderboard from "
            "differences to the baseline, so intervals differ a little"
        )
    head = ("column", "row", "minus", "difference", "95% interval", "p", "p (Holm)", "finds")
    rows = [
        [board.title(each.column), each.row, each.other, *_pair(each.comparison)]
        for each in board.pairs
    ]
    return _printed(head, rows, 3, title=f"all pairs of rows, in points; {adjusted}")


def to_ranks(board: Board) -> Table:
    """Return the possible ranks of each row as a table for the terminal."""
    head = [board.noun, *map(board.title, board.standings)]
    return _printed(head, [[row.label, *ranks_of(board, row)] for row in board.rows], title=RANKS)


def _printed(
    head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, **settings: Any
) -> Table:
    """Return a table for the terminal with `left` columns of texts before those of numbers."""
    from rich.table import Table
    from rich.text import Text

    printed = Table(**settings)
    for index, name in enumerate(head):
        printed.add_column(name, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        printed.add_row(*map(Text, row))
    return printed


def ranks_of(board: Board, row: BoardRow) -> list[str]:
    """Return the possible ranks of one row for each column, e.g. "1-3 =".

    "=" marks a tie with the best. "–" means that the row has no score.
    """
    texts = []
    for column, ranks in board.standings.items():
        one = ranks.get(row.label)
        if one is None:
            texts.append("no test" if board.has_score(row, column) else MISSING)
        else:
            texts.append(f"{one}{' =' if one.is_tied_with_best else ''}")
    return texts


def _pair(comparison: Comparison) -> list[str]:
    test = comparison.estimate
    if test is None or comparison.p_holm is None:
        return [f"no test: {comparison.reason}", "", "", "", ""]
    mark = SIGNIFICANT if comparison.is_significant else ""
    return [
        f"{signed(test.difference)}{mark}",
        test.interval,
        f"{test.p:.3g}",
        f"{comparison.p_holm:.3g}",
        test.finds,
    ]


def to_markdown(board: Board, *, work: bool = False) -> str:
    """Return the board as a Markdown table, followed by facts, notes, tests and ranks."""
    head, body = cells(board, work)
    said = legend(board, body)
    about = [each if each.startswith(SIGNIFICANT) else markdown.plain(each) for each in said]
    facts = description.facts(board)
    about += ["", *(f"* {name}: {markdown.plain(fact)}" for name, fact in facts.items())]
    notes = [f"* {markdown.plain(note)}" for note in board.notes]
    above = [] if board.given is None else [" ".join(board.given.above), ""]
    parts = [
        *map(markdown.plain, above),
        markdown.plain_table(head, body, numbers=True),
        "",
        *about,
        *([""] if notes else []),
        *notes,
    ]
    if rows := _not_significant(board):
        parts += ["", f"{_NOT_SIGNIFICANT}.", "", markdown.plain_table([board.noun, *_HEAD], rows)]
    if board.standings:
        lines = [[row.label, *ranks_of(board, row)] for row in board.rows]
        columns = [board.title(column) for column in board.standings]
        ranks = markdown.plain_table([board.noun, *columns], lines, numbers=True)
        parts += ["", f"{RANKS}.", "", ranks]
    if lines := [[row.label, *masked(row), _amount(row)] for row in board.rows if row.work]:
        head = [board.noun, *MASKED, "cost"]
        parts += ["", f"{_MASKED}.", "", markdown.plain_table(head, lines, numbers=True)]
    return "\n".join(parts) + "\n"


def legend(board: Board, body: Sequence[Sequence[str]]) -> list[str]:
    """Return what the cells in `body`, and their marks, mean: one line each."""
    shown = board.shown("mean ± standard deviation")
    about = [f"Percent: {shown} (difference to {board.compared_with})."]
    if any(SIGNIFICANT in cell for line in body for cell in line[1:]):
        about.append(f"{SIGNIFICANT}: p < {LEVEL} over {board.over}, after Holm.")
    if any(cell.endswith(" *") for line in body for cell in line[1:]):
        about.append(f"*: a {board.unit} is missing.")
    return [*about, *([f"{SENTENCE}."] if board.majority else []), *board.about_tests]


def to_csv(board: Board, *, work: bool = False) -> str:
    """Return the board as CSV, one line for each policy and task; missing values are empty.

    Averages have lines, too. The column "majority" repeats the column's majority score in every
    row. Given scores also have each row's ranks.
    """
    seeds = sorted(
        {s for row in board.rows for score in row.scores.values() if score for s in score.seeds}
    )
    of_score = ("metric", "mean", "std", "delta", "n")
    head = ["policy", "task", *of_score, *(f"{board.unit} {n}" for n in seeds)]
    about: tuple[str, ...] = () if board.given else ("data", "model", *TRAININGS)
    if any(row.tuning for row in board.rows):
        about += ("tuned", "tuning cost")
    ranks = ("rank_low", "rank_high") if board.given else ()
    lines = [[*head, *_TEST, LABEL, *ranks, *about, *(WORK if work else ())]]
    guessed = _majority(board)
    for row in board.rows:
        done = [(row.work or {}).get(name) for name in WORK] if work else []
        scores = {task: _score(row.scores[task]) for task in board.tasks}
        for task, score in (scores | _averages(board, row)).items():
            score = {"seeds": {}, **(score or {})}
            numbers = [score.get(key) for key in of_score]
            each = [score["seeds"].get(str(seed)) for seed in seeds]
            test = score.get("comparison") or {}
            if test.get("p") is None:  # no test, so neither significant nor not
                test = {**test, "significant": None}
            figures = [*(test.get(key) for key in _TEST), guessed.get(task)]
            if board.given:
                standing = board.standings.get(task, {}).get(row.label)
                figures += [standing.low, standing.high] if standing else [None, None]
            facts = description.of_row(row, task)
            texts = [facts.get(key) for key in about]
            cells = [row.label, task, *numbers, *each, *figures, *texts, *done]
            lines.append(cells)
    return _csv(lines)


def _csv(lines: Iterable[Iterable[Json]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(_no_formula, line) for line in lines)
    return text.getvalue()


def _no_formula(cell: Json) -> Json:
    """Return a cell that spreadsheets show as text: one that looks like a formula gets a '."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(tuple("=+-@\t\r")) else cell


def to_table(board: Board, *, work: bool = False) -> Group:
    """Return the board for the terminal, with what its scores are; the caller prints the notes.

    Lines above and below the table have the width of the terminal, whatever that of the table.
    """
    from rich.console import Group
    from rich.text import Text

    head, body = cells(board, work)
    shown = board.shown("mean ± std")
    facts = [f"{name}: {fact}" for name, fact in description.facts(board).items()]
    about = [f"{SENTENCE}."] if board.majority else []
    title = Text(f"percent, {shown} (difference to {board.compared_with})", style="italic")
    printed = _printed(head, body)
    words = (word for line in body for word in line[0].split())
    widest = min(_WIDEST, max(map(len, words), default=0))
    printed.columns[0].min_width = widest  # labels are not cut inside a word
    if board.majority:
        printed.rows[0].end_section = True
    said = [] if board.given is None else [Text(" ".join(board.given.above)), Text("")]
    return Group(*said, title, printed, *(Text(line, style="dim") for line in (*about, *facts)))


def to_differences(board: Board) -> Table | None:
    """Return the differences that are not significant as a table for the terminal, if any."""
    rows = _not_significant(board)
    settings = {"title": _NOT_SIGNIFICANT, "title_justify": "left", "box": None}
    return _printed([board.noun, *_HEAD], rows, 2, **settings) if rows else None


def _not_significant(board: Board) -> list[list[str]]:
    """Return policy, task, difference, interval and detectable difference of each such cell."""
    whole = table(board).in_order()
    return [
        [row.label, title, cell.delta, cell.interval, cell.detectable or MISSING]
        for row, cells in whole.rows
        for (title, _), cell in zip(_titles(whole), cells, strict=True)
        if cell.interval and not cell.significant
    ]


def cells(board: Board, work: bool = False) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows, majority first; columns are tasks, averages and work."""
    whole = table(board).in_order()
    head = [
        board.noun,
        *(f"{name}: {', '.join(under)}" if under else name for name, under in _titles(whole)),
    ]
    head += [name.replace("_", " ") for name in WORK] if work else []
    body = []
    if whole.majority:
        body.append([LABEL, *(guess or MISSING for guess, _ in whole.majority)])
        body[0] += [MISSING] * (len(WORK) if work else 0)
    for row, texts in whole.rows:
        line = [row.label, *map(str, texts)]
        line += [str((row.work or {}).get(name, MISSING)) for name in WORK] if work else []
        body.append(line)
    return head, body


def _titles(whole: WholeTable) -> list[tuple[str, tuple[str, ...]]]:
    """Return the title of each column with what stands under it; averages name their group."""
    return [
        (average_label(column.group), ()) if column.index is None else (column.title, column.under)
        for column in whole.columns
    ]


def _amount(row: BoardRow) -> str:
    return MISSING if row.tokens is None else f"{row.tokens:,}"


def _score(score: Score | None) -> Json:
    if score is None:
        return None
    parts = {name: round(value, DIGITS) for name, value in score.parts.items()}
    return {
        "metric": score.metric,
        "mean": round(score.mean, DIGITS),
        "std": None if score.std is None else round(score.std, DIGITS),
        "seeds": {str(seed): _rounded(value, _SEED_DIGITS) for seed, value in score.seeds.items()},
        "n": score.n,
        "delta": _rounded(score.delta),
        "comparison": comparison_json(score),
        **({"parts": parts} if parts else {}),
    }


def _rounded(value: float | None, digits: int = DIGITS) -> float | None:
    """Return a rounded number, without a minus before 0."""
    return None if value is None else round(value, digits) + 0.0


def comparison_json(score: Score) -> Json:
    """Return a score's comparison as JSON; without a test, its numbers are null."""
    if score.comparison is None:
        return None
    return _comparison(score.comparison, score.is_significant)


def _comparison(comparison: Comparison, is_significant: bool) -> dict[str, Json]:
    test = comparison.estimate
    return {
        "difference": test and _rounded(test.difference),
        "low": test and _rounded(test.low),
        "high": test and _rounded(test.high),
        "p": test and float(f"{test.p:.{DIGITS}g}"),
        "p_holm": None if comparison.p_holm is None else float(f"{comparison.p_holm:.{DIGITS}g}"),
        "significant": is_significant,
        "seeds": comparison.seeds,
        "groups": test and test.groups,
        "detectable": test and round(test.detectable, DIGITS),
        "reason": comparison.reason,
    }


def escape(text: str) -> str:
    """Return text on one line with the special characters of LaTeX escaped.

    A leading [ or * is put in braces, because LaTeX reads it as an argument of the row's end.
    """
    made = "".join(_ESCAPES.get(sign, sign) for sign in " ".join(text.split()))
    return f"{{{made[0]}}}{made[1:]}" if made[:1] in ("[", "*") else made


def to_latex(board: Board) -> str:
    """Return a `tabular` of policies x tasks, with the averages of groups, for booktabs."""
    whole = table(board).in_order()
    titles = _titles(whole)
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(titles)}}}",
        r"\toprule",
        _line([board.noun, *(title for title, _ in titles)]),
        *(_line(["", *("".join(under[at : at + 1]) for _, under in titles)]) for at in (0, 1)),
        r"\midrule",
    ]
    if whole.majority:
        lines += [_line([LABEL, *(guess or "--" for guess, _ in whole.majority)]), r"\midrule"]
    for row, cells in whole.rows:
        texts = (cell.to_latex() for cell in cells)
        lines.append(" & ".join([escape(row.label), *texts]) + r" \\")
    shown = board.shown("mean and standard deviation")
    about = f"% percent, {shown}; bold: best of a task\n"
    about += f"% (difference to {escape(board.compared_with)}; dagger: p < {LEVEL} after Holm)\n"
    starred = any(cell.score and cell.incomplete for _, cells in whole.rows for cell in cells)
    about += f"% *: a {board.unit} is missing\n" if starred else ""
    about += f"% {SENTENCE}\n" if board.majority else ""
    said = () if board.given is None else board.given.above
    about += "".join(f"% {escape(line)}\n" for line in (*said, *board.about_tests))
    lines += [
        r"\bottomrule",
        rf"\multicolumn{{{1 + len(titles)}}}{{p{{0.9\linewidth}}}}{{\footnotesize",
        *(escape(f"{name}: {fact}.") for name, fact in description.facts(board).items()),
        r"} \\",
        r"\end{tabular}",
    ]
    if board.given and board.standings:
        columns = [board.title(column) for column in board.standings]
        lines += ["", rf"% {RANKS}", rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", r"\toprule"]
        lines += [_line([f"ranks of a {board.noun}", *columns]), r"\midrule"]
        lines += [_line([row.label, *ranks_of(board, row)]) for row in board.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
    return _PREAMBLE + about + "\n".join(lines) + "\n"


def _line(texts: list[str]) -> str:
    return " & ".join(map(escape, texts)) + r" \\"
