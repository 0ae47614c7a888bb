"""Plots as data, and the one place that draws them: SVG and PNG, the same bytes every time."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours for the colour-blind, some darkened: each has a contrast of 3 and more to
# white and to a dark page. Markers and hatches tell series apart without any colour.
COLORS = ("#0a7bbd", "#d55e00", "#00946b", "#c061a0", "#b07d00", "#3d93c6", "#8a8a8a")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "///", "..", "xx", "---", "\\\\\\", "++")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")  # so that one line shows under another
INK = "#7a7a7a"  # text and axes: readable on white and on a dark page
_COLUMNS = 3  # panels beside each other
_WIDTH = 112  # characters in a line of a marked text
_SIZE = 8  # points of its font, DejaVu Sans Mono, whose characters are 0.602 of that wide
_STYLE: Mapping[str, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "maskpolicy",
    "text.parse_math": False,  # a label with dollar signs is text
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "hatch.color": "white",
    "legend.frameon": False,
    **{key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor")},
    **{key: INK for key in ("xtick.color", "ytick.color")},
}


@dataclass(frozen=True)
class Series:
    """One line or one colour of bars; `low` and `high` bound an interval, where there is one.

    `x` are places on the axis (lines), or nothing (bars: one `y` for each name). None: not known.
    """

    label: str
    y: Sequence[float | None]
    x: Sequence[float] = ()
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    color: int | None = None  # place in COLORS; None: by order in the figure


@dataclass(frozen=True)
class Lines:
    """Series over a numeric axis."""

    title: str
    x: str  # what the axis shows, with its unit
    y: str
    series: Sequence[Series]
    log: bool = False  # both axes
    markers: bool = True


@dataclass(frozen=True)
class Bars:
    """Series over names: one group of bars for each name."""

    title: str
    y: str
    names: Sequence[str]
    series: Sequence[Series]


@dataclass(frozen=True)
class Grid:
    """A table of numbers, coloured: rows x columns; None: not known."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    x: str = ""
    y: str = ""
    diverging: bool = False  # centred at 0: blue above, orange below
    digits: int = 1


@dataclass(frozen=True)
class Marked:
    """One text with the parts that somebody marked in it: (start, end, weight 0..1)."""

    label: str
    text: str
    marks: Sequence[tuple[int, int, float]]
    color: int = 0


Plot: TypeAlias = Lines | Bars | Grid | Marked
KINDS: Mapping[str, type[Plot]] = {
    "lines": Lines,
    "bars": Bars,
    "grid": Grid,
    "marked": Marked,
}


def draw(plots: Sequence[Plot], title: str = "") -> dict[str, bytes]:
    """Return one figure of one or more panels as {"svg": bytes, "png": bytes}.

    The background is transparent. In the SVG, text and axes have the colour `currentColor`, which
    is INK unless the page that embeds it says otherwise (`svg.maskpolicy-plot { color: .. }`).
    Texts (Marked) and panels do not go into one figure: ValueError.
    """
    if len({isinstance(plot, Marked) for plot in plots}) > 1:
        raise ValueError("a figure holds texts (Marked) or panels, not both")
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a sign that the font lacks
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        figure = _figure(plots, title)
        made = {}
        for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            buffer = io.BytesIO()
            figure.savefig(
                buffer, format=ending, transparent=True, bbox_inches="tight", metadata=metadata
            )
            made[ending] = buffer.getvalue()
    made["svg"] = _inked(made["svg"])
    return made


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours #rrggbb, 1 to 21 (WCAG 2.2, relative luminance)."""
    lights = sorted((_luminance(first), _luminance(second)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _inked(svg: bytes) -> bytes:
    text = svg.decode().replace(INK, "currentColor")
    start = text.index("<svg ")  # the document type before it would be fetched by some parsers
    return ('<svg class="maskpolicy-plot" color="' + INK + '" ' + text[start + 5 :]).encode()


def _figure(plots: Sequence[Plot], title: str) -> Figure:
    from matplotlib.figure import Figure

    if plots and all(isinstance(plot, Marked) for plot in plots):
        return _texts([plot for plot in plots if isinstance(plot, Marked)])
    colors = _colors(plots)
    columns = min(_COLUMNS, max(1, len(plots)))
    rows = max(1, math.ceil(len(plots) / columns))
    sizes = [_size(plot) for plot in plots] or [(4.0, 1.0)]
    by_row = [sizes[start : start + columns] for start in range(0, len(sizes), columns)]
    heights = [max(height for _, height in row) for row in by_row]
    width = max(width for width, _ in sizes) * columns
    figure = Figure(figsize=(width, sum(heights) + 0.6), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=11)
    axes = list(figure.subplots(rows, columns, squeeze=False, height_ratios=heights).flat)
    for axis, plot in zip(axes, plots, strict=False):
        _DRAW[type(plot)](axis, plot, colors)
    for axis in axes[len(plots) :]:
        axis.set_axis_off()
    _legend(figure, plots, colors)
    return figure


def _size(plot: Plot) -> tuple[float, float]:
    """Return the inches that a panel wants."""
    if isinstance(plot, Grid):
        longest = max((len(name) for name in plot.rows), default=0)
        return 1.6 + 0.07 * longest + 0.75 * len(plot.columns), 1.3 + 0.33 * len(plot.rows)
    if isinstance(plot, Bars):
        bars = len(plot.names) * max(1, len(plot.series))
        return min(12.0, max(4.0, 1.2 + 0.16 * bars)), 3.0
    return 4.2, 3.0


def _colors(plots: Sequence[Plot]) -> dict[str, int]:
    """Return the colour's place of each series: its own, or by first appearance."""
    labels: dict[str, int] = {}
    for plot in plots:
        for series in getattr(plot, "series", ()):
            labels.setdefault(series.label, len(labels) if series.color is None else series.color)
    return labels


def _legend(figure: Figure, plots: Sequence[Plot], colors: Mapping[str, int]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if len(colors) < 2 and not any(isinstance(plot, Lines) for plot in plots):
        return
    is_bars = any(isinstance(plot, Bars) for plot in plots)
    markers = any(isinstance(plot, Lines) and plot.markers for plot in plots)
    handles = [
        Patch(facecolor=_color(place), hatch=HATCHES[place % len(HATCHES)], label=_short(label))
        if is_bars
        else Line2D(
            [],
            [],
            color=_color(place),
            linestyle=DASHES[place % len(DASHES)],
            marker=_marker(place) if markers else "",
            label=_short(label),
        )
        for label, place in colors.items()
    ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(5, len(handles)))


def _color(place: int) -> str:
    return COLORS[place % len(COLORS)]


def _marker(place: int) -> str:
    return MARKERS[place % len(MARKERS)]


def _short(label: str, most: int = 32) -> str:
    line = " ".join(label.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _title(text: str) -> str:
    return textwrap.fill(_short(text, 120), 46)


def _lines(axis: Axes, plot: Lines, colors: Mapping[str, int]) -> None:
    for series in plot.series:
        place = colors[series.label]
        y = [math.nan if value is None else value for value in series.y]
        style = {"color": _color(place), "linestyle": DASHES[place % len(DASHES)]}
        marker = _marker(place) if plot.markers else ""
        axis.plot(series.x, y, marker=marker, markersize=4, linewidth=1.6, zorder=3, **style)
        if series.low:
            low = [math.nan if value is None else value for value in series.low]
            high = [math.nan if value is None else value for value in series.high]
            axis.fill_between(series.x, low, high, color=_color(place), alpha=0.2, linewidth=0)
    known = [value for series in plot.series for value in series.y if value is not None]
    if plot.log:
        _logarithmic(axis)
    elif min(known, default=0) >= 0:
        axis.set_ylim(0, None if any(known) else 1)
    _axes(axis, plot.title, plot.x, plot.y)


def _logarithmic(axis: Axes) -> None:
    """Scale both axes; ticks are plain numbers, as powers would need mathematical text."""
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
        y = [math.nan if value is None else value for value in series.y]
        hatch = HATCHES[place % len(HATCHES)]
        axis.bar(x, y, width, color=_color(place), hatch=hatch, edgecolor="white", linewidth=0.3)
        for where, low, high in zip(x, series.low, series.high, strict=False):
            if low is not None and high is not None:
                axis.plot([where, where], [low, high], color=INK, linewidth=1)
    names = [_short(name) for name in plot.names]
    slanted = sum(len(name) for name in names) > 42
    axis.set_xticks(range(len(names)), names, rotation=30 if slanted else 0)
    for tick in axis.get_xticklabels() if slanted else []:
        tick.set_horizontalalignment("right")
    _axes(axis, plot.title, "", plot.y)


def _axes(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(_title(title))
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(axis="y", color=INK, alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)


def _grid(axis: Axes, plot: Grid, colors: Mapping[str, int]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    known = [abs(value) for row in plot.values for value in row if value is not None]
    top = max(known, default=1.0) or 1.0
    below = ["#b34f00"] if plot.diverging else []
    scale = LinearSegmentedColormap.from_list("scale", [*below, "#f2f2f2", "#075a8c"])
    shown = [[math.nan if value is None else value for value in row] for row in plot.values]
    if shown and plot.columns:  # cells and not one image, which an SVG would hold as a PNG
        axis.pcolormesh(shown, cmap=scale, vmin=-top if plot.diverging else 0.0, vmax=top)
        axis.set_ylim(len(shown), 0)
    for row, values in enumerate(plot.values):
        for column, value in enumerate(values):
            ink = INK if value is None else _readable(scale, value / top, plot.diverging)
            text = "–" if value is None else f"{value:+.{plot.digits}f}"
            text = text if plot.diverging or value is None else text.removeprefix("+")
            axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=ink)
    columns = [_short(name) for name in plot.columns]
    axis.set_xticks([place + 0.5 for place in range(len(columns))], columns, rotation=30)
    for tick in axis.get_xticklabels():
        tick.set_horizontalalignment("right")
    rows = [_short(name) for name in plot.rows]
    axis.set_yticks([place + 0.5 for place in range(len(rows))], rows)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_title(_title(plot.title))
    axis.set_xlabel(plot.x)
    axis.set_ylabel(plot.y)


def _readable(scale: Any, share: float, diverging: bool) -> str:
    """Return black or white, whichever is read better on a cell of the grid."""
    from matplotlib.colors import to_hex

    cell = to_hex(scale((share + 1) / 2 if diverging else share))
    return max("#000000", "#ffffff", key=lambda ink: contrast(ink, cell))


def _wrapped(text: str, width: int = _WIDTH) -> list[tuple[int, str]]:
    """Return (first character, line) of the lines that a text is broken into."""
    lines, at = [], 0
    flat = "".join(" " if char.isspace() else char for char in text)
    for line in textwrap.wrap(flat, width) or [""]:
        at = flat.index(line, at) if line else at
        lines.append((at, line))
        at += len(line)
    return lines


def _texts(plots: Sequence[Marked]) -> Figure:
    """Draw texts below each other in a font of one width: a character's number is its place."""
    from matplotlib.figure import Figure

    wrapped = [_wrapped(plot.text) for plot in plots]
    height = sum(1.6 + len(lines) for lines in wrapped)
    figure = Figure(figsize=(_WIDTH * 0.602 * _SIZE / 72, 0.19 * height))
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_xlim(0, _WIDTH)
    axis.set_ylim(height, 0)
    axis.set_axis_off()
    row = 0.0
    for plot, lines in zip(plots, wrapped, strict=True):
        axis.text(0, row + 0.9, _short(plot.label, 80), fontsize=_SIZE + 1, fontweight="bold")
        row += 1.2
        for at, line in lines:
            for start, end, weight in plot.marks:
                first, last = max(start, at) - at, min(end, at + len(line)) - at
                if first < last:
                    axis.add_patch(_box(first, row, last - first, plot.color, weight))
            axis.text(0, row + 0.72, line, fontsize=_SIZE, family="DejaVu Sans Mono")
            row += 1
        row += 0.4
    return figure


def _box(column: int, row: float, width: int, color: int, weight: float) -> Any:
    """Return a frame whose inside is tinted by the weight, so lightly that text stays readable."""
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Rectangle

    tint = to_rgba(_color(color), 0.08 + 0.22 * min(1.0, max(0.0, weight)))
    frame = {"edgecolor": _color(color), "linewidth": 1.2}
    return Rectangle((column, row + 0.04), width, 0.92, facecolor=tint, **frame)


_DRAW: Mapping[type, Any] = {Lines: _lines, Bars: _bars, Grid: _grid}
