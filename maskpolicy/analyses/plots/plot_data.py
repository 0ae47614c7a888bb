"""Plots as data: returned by analyses and stored in their JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, get_args


@dataclass(frozen=True)
class Series:
    """One line, or the bars of one colour; `low` and `high` bound optional intervals.

    `x` has the positions of a line; bars have no `x`, but one `y` for each name. None: unknown.
    """

    label: str
    y: Sequence[float | None]
    x: Sequence[float] = ()
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    color: int | None = None  # index in COLORS, or GREY; None: that of the row, or a free one


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
    """Bars, one group for each name."""

    title: str
    y: str
    names: Sequence[str]
    series: Sequence[Series]


@dataclass(frozen=True)
class Grid:
    """A coloured table of numbers, rows x columns; None: unknown."""

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
    """A text with marked spans: (first character, end, weight 0..1)."""

    label: str
    text: str
    marks: Sequence[tuple[int, int, float]]
    color: int = 0


Plot: TypeAlias = Lines | Bars | Grid | Marked
PLOTS: Mapping[str, type[Plot]] = {kind.__name__.lower(): kind for kind in get_args(Plot)}
