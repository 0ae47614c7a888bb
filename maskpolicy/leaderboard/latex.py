"""A leaderboard as a LaTeX table for booktabs."""

from __future__ import annotations

from maskpolicy.leaderboard import measured, tested
from maskpolicy.leaderboard.board import Board, Score, average_label
from maskpolicy.leaderboard.stats import LEVEL
from maskpolicy.majority import LABEL, SENTENCE

_ESCAPES = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
}
_HEAD = r"""% needs \usepackage{booktabs}; \textquotedbl also \usepackage[T1]{fontenc}
"""


def escape(text: str) -> str:
    """Return text as LaTeX prints it, on one line."""
    return "".join(_ESCAPES.get(sign, sign) for sign in " ".join(text.split()))


def render(board: Board) -> str:
    """Return a tabular of policies and tasks, with the averages of groups."""
    best = board.best()
    tasks = [measured.column(board, task) for task in board.tasks]
    groups = len(board.groups) * [""]
    columns = [*(each.title for each in tasks), *map(average_label, board.groups)]
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        _line(["policy", *columns]),
        _line(["", *map(board.metric, board.tasks), *groups]),
        _line(["", *(each.size for each in tasks), *groups]),
        r"\midrule",
    ]
    if board.majority:
        lines += [_majority(board), r"\midrule"]
    for row in board.rows:
        is_base = row.is_baseline
        cells = [_cell(row.scores[task], row.label in best[task], is_base) for task in board.tasks]
        means = [board.average(row, group) for group in board.groups]
        cells += ["--" if mean is None else f"{mean:.1f}" for mean in means]
        lines.append(f"{escape(row.label)} & {' & '.join(cells)} \\\\")
    shown = "one seed" if board.seeds == 1 else "mean and standard deviation over seeds"
    about = f"% percent, {shown}; bold: best of its column\n"
    about += f"% (difference to {escape(board.compared_with)}; dagger: p < {LEVEL} after Holm)\n"
    about += f"% {SENTENCE}\n" if board.majority else ""
    about += "".join(f"% {escape(line)}\n" for line in tested.lines(board))
    lines += [r"\bottomrule", *_facts(board, 1 + len(columns)), r"\end{tabular}"]
    return _HEAD + about + "\n".join(lines) + "\n"


def _facts(board: Board, width: int) -> list[str]:
    """Return what the board was measured on as a paragraph below the table."""
    texts = [escape(f"{name}: {fact}.") for name, fact in measured.facts(board).items()]
    start = rf"\multicolumn{{{width}}}{{p{{0.9\linewidth}}}}{{\footnotesize"
    return [start, *texts, r"} \\"]


def _majority(board: Board) -> str:
    known = [
        board.majority[task].percent if task in board.majority else None for task in board.tasks
    ]
    known += [board.majority_average(group) for group in board.groups]
    return _line([LABEL, *("--" if one is None else f"{one:.1f}" for one in known)])


def _cell(score: Score | None, is_best: bool, is_base: bool) -> str:
    if score is None:
        return "--"
    mean = rf"\mathbf{{{score.mean:.1f}}}" if is_best else f"{score.mean:.1f}"
    std = "" if score.std is None else rf" \pm {score.std:.1f}"
    delta = ""
    if score.delta is not None and not is_base:
        mark = r"^{\dagger}" if score.is_significant else ""
        delta = f" (${score.delta:+.1f}{mark}$)"
    return f"${mean}{std}${delta}" + ("" if score.is_complete else "*")


def _line(cells: list[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
