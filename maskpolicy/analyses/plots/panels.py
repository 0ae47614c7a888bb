"""Draw the panels of a figure: lines, bars and coloured tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from maskpolicy.analyses.plots import look
from maskpolicy.analyses.plots.plot_data import Bars, Grid, Lines, Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(axis: Axes, plot: Plot, colors: Mapping[str, int]) -> None:
    """Draw a panel; `colors` maps the label of a series to its colour index."""
    _DRAW[type(plot)](axis, plot, colors)


def size(plot: Plot) -> tuple[float, float]:
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
        y = [math.nan if value is None else value for value in series.y]
        style: dict[str, Any] = {"color": look.color(place), "linestyle": look.dash(place)}
        marker = look.marker(place) if plot.markers else ""
        axis.plot(series.x, y, marker=marker, markersize=4, linewidth=1.6, zorder=3, **style)
        if series.low:
            low = [math.nan if value is None else value for value in series.low]
            high = [math.nan if value is None else value for value in series.high]
            axis.fill_between(series.x, low, high, color=look.color(place), alpha=0.2, linewidth=0)
    known = [value for series in plot.series for value in series.y if value is not None]
    if plot.log:
        _logarithmic(axis)
    elif min(known, default=0) >= 0:
        axis.set_ylim(0, None if any(known) else 1)
    if not plot.log and all(float(x).is_integer() for series in plot.series for x in series.x):
        axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # e.g. layers
    _axes(axis, plot.title, plot.x, plot.y)


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
        y = [math.nan if value is None else value for value in series.y]
        style: dict[str, Any] = {"color": look.color(place), "hatch": look.hatch(place)}
        axis.bar(x, y, width, edgecolor="white", linewidth=0.3, **style)
        for where, low, high in zip(x, series.low, series.high, strict=False):
            if low is not None and high is not None:
                axis.plot([where, where], [low, high], color=look.INK, linewidth=1)
    if not any(any(each) for series in plot.series for each in (series.y, series.low, series.high)):
        axis.set_ylim(0, 1)
    names = [look.lines(name) for name in plot.names]
    slanted = sum(len(name) for name in names) > 42
    axis.set_xticks(range(len(names)), names, rotation=30 if slanted else 0)
    axis.set_xlim(-0.5, max(1, len(names)) - 0.5)  # also if all values are unknown
    for tick in axis.get_xticklabels() if slanted else []:
        tick.set_horizontalalignment("right")
    _axes(axis, plot.title, "", plot.y)


def _axes(axis: Axes, title: str, x: str, y: str) -> None:
    axis.set_title(look.title(title))
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.grid(axis="y", color=look.INK, alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)


def _grid(axis: Axes, plot: Grid, colors: Mapping[str, int]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    known = [abs(value) for row in plot.values for value in row if value is not None]
    top = max(known, default=1.0) or 1.0
    below = ["#b34f00"] if plot.diverging else []
    scale = LinearSegmentedColormap.from_list("scale", [*below, "#f2f2f2", "#075a8c"])
    shown = [[math.nan if value is None else value for value in row] for row in plot.values]
    if shown and plot.columns:  # pcolormesh, because imshow would embed a PNG in the SVG
        axis.pcolormesh(shown, cmap=scale, vmin=-top if plot.diverging else 0.0, vmax=top)
        axis.set_ylim(len(shown), 0)
    for row, values in enumerate(plot.values):
        for column, value in enumerate(values):
            ink = look.INK if value is None else _readable(scale, value / top, plot.diverging)
            text = "–" if value is None else f"{value:+.{plot.digits}f}"
            text = text if plot.diverging or value is None else text.removeprefix("+")
            axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=ink)
    columns = [look.lines(name) for name in plot.columns]
    axis.set_xticks([place + 0.5 for place in range(len(columns))], columns, rotation=30)
    for tick in axis.get_xticklabels():
        tick.set_horizontalalignment("right")
    rows = [look.lines(name) for name in plot.rows]
    axis.set_yticks([place + 0.5 for place in range(len(rows))], rows)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_title(look.title(plot.title))
    axis.set_xlabel(plot.x)
    axis.set_ylabel(plot.y)


def _readable(scale: Any, share: float, diverging: bool) -> str:
    """Return black or white, whichever has the higher contrast on a cell of the grid."""
    from matplotlib.colors import to_hex

    cell = to_hex(scale((share + 1) / 2 if diverging else share))
    return max("#000000", "#ffffff", key=lambda ink: look.contrast(ink, cell))


_DRAW: Mapping[type, Any] = {Lines: _lines, Bars: _bars, Grid: _grid}
