"""Draw texts with marked spans, in a monospaced font."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from maskpolicy.plots import look
from maskpolicy.plots.data import Marked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 112  # characters in a line
_SIZE = 8  # font size in points; characters of DejaVu Sans Mono are 0.602 times as wide


def wrapped(text: str, width: int = _WIDTH) -> list[tuple[int, str]]:
    """Break a text into lines; return (index of the first character, line) for each."""
    lines, at = [], 0
    flat = "".join(" " if char.isspace() else char for char in text)
    for line in textwrap.wrap(flat, width) or [""]:
        at = flat.index(line, at) if line else at
        lines.append((at, line))
        at += len(line)
    return lines


def figure(plots: Sequence[Marked]) -> Figure:
    """Draw texts below each other; the x coordinate is the index of a character in its line."""
    from maskpolicy.plots.notebook_figure import NotebookFigure

    broken = [wrapped(plot.text) for plot in plots]
    height = sum(1.6 + len(lines) for lines in broken)
    drawn = NotebookFigure(figsize=(_WIDTH * 0.602 * _SIZE / 72, 0.19 * height))
    axis = drawn.add_axes((0, 0, 1, 1))
    axis.set_xlim(0, _WIDTH)
    axis.set_ylim(height, 0)
    axis.set_axis_off()
    row = 0.0
    for plot, lines in zip(plots, broken, strict=True):
        axis.text(0, row + 0.9, look.short(plot.label, 80), fontsize=_SIZE + 1, fontweight="bold")
        row += 1.2
        for at, line in lines:
            for start, end, weight in plot.marks:
                first, last = max(start, at) - at, min(end, at + len(line)) - at
                if first < last:
                    axis.add_patch(_box(first, row, last - first, plot.color, weight))
            for word in re.finditer(r"\S+", line):  # word by word, because widths are rounded
                style: dict[str, Any] = {"fontsize": _SIZE, "family": "DejaVu Sans Mono"}
                axis.text(word.start(), row + 0.72, word.group(), **style)
            row += 1
        row += 0.4
    return drawn


def _box(column: int, row: float, width: int, color: int, weight: float) -> Any:
    """Return a frame with a light tint that depends on the weight."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    tint = to_rgba(look.color(color), 0.08 + 0.22 * min(1.0, max(0.0, weight)))
    frame: dict[str, Any] = {"edgecolor": look.color(color), "linewidth": 1.2}
    return Rectangle((column, row + 0.04), width, 0.92, facecolor=tint, **frame)
