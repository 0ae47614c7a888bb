"""Draw plots as SVG and PNG, with the same bytes every time."""

from __future__ import annotations

import io
import itertools
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.analyses.plots import look
from maskpolicy.analyses.plots.plot_data import Bars, Grid, Lines, Marked, Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

_COLUMNS = 3  # the most panels side by side
_SLANTED: dict[str, Any] = {"rotation": 30, "horizontalalignment": "right"}  # labels of ticks
_WIDTH = 14.0  # inches: of wide panels fewer stand side by side, so that labels stay readable


def draw(plots: Sequence[Plot], title: str = "", *, rows: Sequence[str] = ()) -> dict[str, bytes]:
    """Return one figure of one or more panels as {"svg": bytes, "png": bytes}.

    Series named as one of `rows`, a run's, have the same colour in every figure of the run.
    The background is transparent. In the SVG, text and axes have the colour `currentColor`, which
    is look.INK unless the embedding page sets it (`svg.maskpolicy-plot { color: .. }`). Raises
    ValueError if texts (Marked) are mixed with other panels.
    """
    if len({isinstance(plot, Marked) for plot in plots}) > 1:
        raise ValueError("a figure has texts (Marked) or panels, not both")
    with _styled():
        figure = _figure(plots, title, rows)
        images = {}
        for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            buffer = io.BytesIO()
            figure.savefig(
                buffer, format=ending, transparent=True, bbox_inches="tight", metadata=metadata
            )
            images[ending] = buffer.getvalue()
    text = images["svg"].decode().replace(look.INK, "currentColor")
    body = text[text.index("<svg ") + 5 :]  # drops the document type, which some parsers fetch
    images["svg"] = f'<svg class="maskpolicy-plot" color="{look.INK}" {body}'.encode()
    return images


def figure(plots: Sequence[Plot], title: str = "", *, rows: Sequence[str] = ()) -> Figure:
    """Return one figure of one or more panels, to show or to change; see `draw`."""
    with _styled():
        return _figure(plots, title, rows)


def figures(parts: Sequence[tuple[str, Sequence[Plot]]]) -> Figure:
    """Return several figures as one, each below the one before it, from their titles and panels.

    The panels are not texts (Marked).
    """
    grids = [_layout(plots) for _, plots in parts]
    heights = [grid.height for grid in grids]
    size = (max(grid.width for grid in grids), sum(heights))
    with _styled():
        whole = _new_figure(figsize=size, layout="constrained")
        places = whole.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)
        for place, (title, plots), grid in zip(places.flat, parts, grids, strict=True):
            _fill(place, plots, grid, title)
    return whole


def _new_figure(**settings: Any) -> Figure:
    """Return a figure that notebooks show although nothing imported pyplot."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", bbox_inches="tight")
            return buffer.getvalue()

    return NotebookFigure(**settings)


@contextmanager
def _styled() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about characters missing from the font
        mpl.rcdefaults()
        mpl.rcParams.update(dict[Any, Any](look.STYLE))
        yield


def _figure(plots: Sequence[Plot], title: str, rows: Sequence[str]) -> Figure:
    if plots and all(isinstance(plot, Marked) for plot in plots):
        return _text_figure([plot for plot in plots if isinstance(plot, Marked)])
    grid = _layout(plots, rows)
    figure = _new_figure(figsize=(grid.width, grid.height), layout="constrained")
    _fill(figure, plots, grid, title)
    return figure


@dataclass(frozen=True)
class _Layout:
    """How the panels of a figure lie beside and below each other, in inches."""

    columns: int
    heights: Sequence[float]  # of its rows
    width: float  # of all columns
    colors: Mapping[str, int]  # by the label of a series

    @property
    def height(self) -> float:
        """The height of all rows, the title and the legend."""
        legend = 0.19 * math.ceil(len(self.colors) / _legend_columns(self.colors, self.width))
        return sum(self.heights) + 0.4 + legend


def _layout(plots: Sequence[Plot], rows: Sequence[str] = ()) -> _Layout:
    sizes = [_size(plot) for plot in plots] or [(4.0, 1.0)]
    beside = max(1, int(_WIDTH / max(width for width, _ in sizes)))
    columns = min(_COLUMNS, beside, len(sizes))
    beside_each_other = [sizes[start : start + columns] for start in range(0, len(sizes), columns)]
    heights = [max(height for _, height in line) for line in beside_each_other]
    width = max(width for width, _ in sizes) * columns
    return _Layout(columns, heights, width, _colors(plots, rows))


def _fill(figure: FigureBase, plots: Sequence[Plot], grid: _Layout, title: str) -> None:
    """Draw panels, title and legend into a figure, or into a part of one."""
    if title:
        figure.suptitle(title, fontsize=11)
    rows, ratios = len(grid.heights), list(grid.heights)
    axes = list(figure.subplots(rows, grid.columns, squeeze=False, height_ratios=ratios).flat)
    drawers: Mapping[type, Any] = {Lines: _lines, Bars: _bars, Grid: _table}
    for axis, plot in zip(axes, plots, strict=False):
        drawers[type(plot)](axis, plot, grid.colors)
    for axis in axes[len(plots) :]:
        axis.set_axis_off()
    _legend(figure, axes, plots, grid)


def _colors(plots: Sequence[Plot], rows: Sequence[str]) -> dict[str, int]:
    """Return the colour index of each series: its own, its place among `rows`, or a free one.

    Rows of several runs have the same place: the first one takes its colour.
    """
    labels: dict[str, int | None] = {}
    for plot in plots:
        for series in getattr(plot, "series", ()):
            labels.setdefault(series.label, series.color)
    own: dict[str, int | None] = {}
    for label, color in labels.items():
        place = rows.index(label) if color is None and label in rows else color
        own[label] = None if place != look.GREY and place in own.values() else place
    free = (place for place in itertools.count() if place not in own.values())
    return {label: next(free) if color is None else color for label, color in own.items()}


def _legend(figure: FigureBase, axes: Sequence[Axes], plots: Sequence[Plot], grid: _Layout) -> None:
    """Add one legend for all panels; a figure of one series of bars needs none."""
    if len(grid.colors) < 2 and not any(isinstance(plot, Lines) for plot in plots):
        return
    drawn = [axis.get_legend_handles_labels() for axis in axes]
    entries = {label: handle for pair in drawn for handle, label in zip(*pair, strict=True)}
    if entries:
        figure.legend(
            handles=list(entries.values()),
            labels=list(map(look.short, entries)),
            loc="outside lower center",
            ncols=_legend_columns(grid.colors, grid.width),
        )


def _legend_columns(colors: Mapping[str, int], width: float) -> int:
    """Return how many entries of the legend stand side by side in a figure of `width` inches."""
    longest = max((len(look.short(label)) for label in colors), default=0)
    return min(5, max(1, int(width / (0.5 + 0.075 * longest))), max(1, len(colors)))


_CHARACTERS = 112  # characters in a line
_SIZE = 8  # font size in points; characters of DejaVu Sans Mono are 0.602 times as wide


def _wrapped(text: str) -> list[tuple[int, str]]:
    """Break a text into lines; return (index of the first character, line) for each."""
    lines, at = [], 0
    flat = "".join(" " if char.isspace() else char for char in text)
    for line in textwrap.wrap(flat, _CHARACTERS) or [""]:
        at = flat.index(line, at) if line else at
        lines.append((at, line))
        at += len(line)
    return lines


def _text_figure(plots: Sequence[Marked]) -> Figure:
    """Draw texts below each other; the x coordinate is the index of a character in its line."""
    broken = [_wrapped(plot.text) for plot in plots]
    height = sum(1.6 + len(lines) for lines in broken)
    drawn = _new_figure(figsize=(_CHARACTERS * 0.602 * _SIZE / 72, 0.19 * height))
    axis = drawn.add_axes((0, 0, 1, 1))
    axis.set_xlim(0, _CHARACTERS)
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


def _size(plot: Plot) -> tuple[float, float]:
    """Return the width and height of a panel in inches."""
    if isinstance(plot, Grid):
        longest = min(look.WIDTH, max((len(name) for name in plot.rows), default=0))
        return 1.6 + 0.07 * longest + 0.6 * len(plot.columns), 1.3 + 0.36 * len(plot.rows)
    if isinstance(plot, Bars):
        bars = max(0.16 * len(plot.names) * len(plot.series), 0.3 * len(plot.names))
        return min(12.0, max(4.0, 1.2 + bars)), 3.0
    return 4.2, 3.0


def _lines(axis: Axes, plot: Lines, colors: Mapping[str, int]) -> None:
    from matplotlib.ticker import MaxNLocator

    for series in plot.series:
        place = colors[series.label]
        style: dict[str, Any] = {
            "label": series.label,
            "color": look.color(place),
            "linestyle": look.DASHES[place % len(look.DASHES)],
            "marker": look.MARKERS[place % len(look.MARKERS)] if plot.markers else "",
        }
        axis.plot(series.x, _numbers(series.y), markersize=4, linewidth=1.6, zorder=3, **style)
        if series.low:
            ends = _numbers(series.low), _numbers(series.high)
            axis.fill_between(series.x, *ends, color=look.color(place), alpha=0.2, linewidth=0)
    values = (value for each in plot.series for value in (*each.y, *each.low, *each.high))
    known = [value for value in values if value is not None]
    if plot.log:
        _logarithmic(axis)
    elif min(known, default=0) >= 0:
        axis.set_ylim(0, None if any(known) else 1)
    if not plot.log and all(float(x).is_integer() for series in plot.series for x in series.x):
        axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # e.g. layers
    _axes(axis, plot.title, plot.x, plot.y)


def _numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Return an array of the values, with NaN for unknown ones."""
    return np.asarray(values, np.float64)


def _logarithmic(axis: Axes) -> None:
    """Set both axes to log scale; tick labels are plain numbers, because math text is off."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_xscale("log")
    axis.set_yscale("log")
    for each in (axis.xaxis, axis.yaxis):
        each.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        each.set_minor_formatter(NullFormatter())


def _bars(axis: Axes, plot: Bars, colors: Mapping[str, int]) -> None:
    width = 0.8 / max(1, len(plot.series))
    for number, series in enumerate(plot.series):
        place = colors[series.label]
        x = [at + (number + 0.5) * width - 0.4 for at in range(len(plot.names))]
        style: dict[str, Any] = {"label": series.label, "color": look.color(place)}
        style |= {"hatch": look.HATCHES[place % len(look.HATCHES)], "edgecolor": "white"}
        axis.bar(x, _numbers(series.y), width, linewidth=0.3, **style)
        for where, low, high in zip(x, series.low, series.high, strict=False):
            if low is not None and high is not None:
                axis.plot([where, where], [low, high], color=look.INK, linewidth=1)
    if not any(any(each) for series in plot.series for each in (series.y, series.low, series.high)):
        axis.set_ylim(0, 1)
    names = [look.lines(name) for name in plot.names]
    is_slanted = sum(len(name) for name in names) > 42
    axis.set_xticks(range(len(names)), names, **(_SLANTED if is_slanted else {}))
    axis.set_xlim(-0.5, max(1, len(names)) - 0.5)  # also if all values are unknown
    _axes(axis, plot.title, "", plot.y)


def _axes(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(look.title(title))
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(axis="y", color=look.INK, alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)


def _table(axis: Axes, plot: Grid, colors: Mapping[str, int]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    known = [abs(value) for row in plot.values for value in row if value is not None]
    top = max(known, default=1.0) or 1.0
    below = ["#b34f00"] if plot.diverging else []
    scale = LinearSegmentedColormap.from_list("scale", [*below, "#f2f2f2", "#075a8c"])
    shown = list(map(_numbers, plot.values))
    if shown and plot.columns:  # pcolormesh, because imshow would embed a PNG in the SVG
        axis.pcolormesh(shown, cmap=scale, vmin=-top if plot.diverging else 0.0, vmax=top)
        axis.set_ylim(len(shown), 0)
    sign = "+" if plot.diverging else ""
    for row, values in enumerate(plot.values):
        for column, value in enumerate(values):
            ink = look.INK if value is None else _readable(scale, value / top, plot.diverging)
            text = "–" if value is None else f"{value:{sign}.{plot.digits}f}"
            axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=ink)
    columns = [look.lines(name) for name in plot.columns]
    axis.set_xticks([place + 0.5 for place in range(len(columns))], columns, **_SLANTED)
    rows = [look.lines(name) for name in plot.rows]
    axis.set_yticks([place + 0.5 for place in range(len(rows))], rows)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_title(look.title(plot.title))
    axis.set_xlabel(plot.x)
    axis.set_ylabel(plot.y)


def _readable(scale: Any, share: float, diverging: bool) -> str:
    """Return black or white, whichever has the higher contrast on a cell of the grid."""
    from matplotlib.colors import to_hex

    cell = to_hex(scale((share + 1) / 2 if diverging else share))
    return max("#000000", "#ffffff", key=lambda ink: look.contrast(ink, cell))
