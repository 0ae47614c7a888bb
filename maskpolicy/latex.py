"""A leaderboard as a LaTeX table for booktabs."""

from __future__ import annotations

from maskpolicy.leaderboard import Board, Score

_ESCAPES = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
}
_HEAD = r"""% needs \usepackage{booktabs}; \textquotedbl also \usepackage[T1]{fontenc}
% percent, mean and standard deviation over seeds; bold: best of its column
% dagger: differs from the baseline, p < 0.05 over seeds and examples after Holm
"""


def escape(text: str) -> str:
    """Return text as LaTeX prints it, on one line."""
    return "".join(_ESCAPES.get(sign, sign) for sign in " ".join(text.split()))


def render(board: Board) -> str:
    """Return a tabular of policies and tasks, with the averages of groups."""
    best = board.best()
    metrics = {
        task: next((s.metric for row in board.rows if (s := row.scores[task])), "")
        for task in board.tasks
    }
    columns = [*board.tasks, *(f"mean of {group}" for group in board.groups)]
    below = [
        *(metrics[task].replace("_", " ") for task in board.tasks),
        *([""] * len(board.groups)),
    ]
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        _line(["policy", *columns]),
        _line(["", *below]),
        r"\midrule",
    ]
    for row in board.rows:
        cells = [_cell(row.scores[task], row.label in best[task]) for task in board.tasks]
        means = [board.average(row, group) for group in board.groups]
        cells += ["--" if mean is None else f"{mean:.1f}" for mean in means]
        lines.append(f"{escape(row.label)} & {' & '.join(cells)} \\\\")
    return _HEAD + "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _cell(score: Score | None, is_best: bool) -> str:
    if score is None:
        return "--"
    mean = rf"\mathbf{{{score.mean:.1f}}}" if is_best else f"{score.mean:.1f}"
    std = "" if score.std is None else rf" \pm {score.std:.1f}"
    mark = r"^{\dagger}" if score.is_significant else ""
    return f"${mean}{std}{mark}$" + ("" if score.is_complete else "*")


def _line(cells: list[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"
