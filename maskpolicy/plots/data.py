"""Plots as data: what an analysis gives, and a file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


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
    color: int | None = None  # place in COLORS, or GREY; None: by order in the figure


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
PLOTS: Mapping[str, type[Plot]] = {
    "lines": Lines,
    "bars": Bars,
    "grid": Grid,
    "marked": Marked,
}
