"""Colours, markers, hatches and labels of plots, for light and dark pages."""

from __future__ import annotations

import colorsys
import textwrap
from collections.abc import Mapping
from typing import Any

# Okabe and Ito's colour-blind safe palette, partly darkened: each colour has a contrast of at least
# 3 to white and to a dark page. Markers and hatches distinguish series without colour.
COLORS = ("#0a7bbd", "#d55e00", "#00946b", "#c061a0", "#b07d00", "#3d93c6", "#8470d8")
WIDTH = 28  # characters in a line of a wrapped label
GREY = -1  # colour index of series that are not policies, e.g. the corpus
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "///", "..", "xx", "---", "\\\\\\", "++")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")  # overlapping lines stay visible
INK = "#7a7a7a"  # text and axes: readable on light and dark pages
STYLE: Mapping[str, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "maskpolicy",
    "text.parse_math": False,  # labels may contain dollar signs
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "text.hinting": "no_hinting",
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "hatch.color": "white",
    "legend.frameon": False,
    **{key: INK for key in ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor")},
    **{key: INK for key in ("xtick.color", "ytick.color")},
}


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours #rrggbb, from 1 to 21 (WCAG 2.2)."""
    lights = sorted((_luminance(first), _luminance(second)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def color(place: int) -> str:
    """Return the colour of a colour index; no two indices share a colour."""
    if place == GREY:
        return "#8a8a8a"
    return COLORS[place] if place < len(COLORS) else _further(place)


def _further(place: int) -> str:
    """Return a colour for an index beyond COLORS, with a contrast as theirs."""
    hue, wanted = place * 0.618034 % 1, (0.15, 0.25)[place % 2]  # the golden ratio spreads hues
    low, high = 0.0, 1.0
    while high - low > 0.001:
        middle = (low + high) / 2
        shade = "#" + "".join(
            f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, middle, 0.7)
        )
        low, high = (middle, high) if _luminance(shade) < wanted else (low, middle)
    return shade


def lines(label: str) -> str:
    """Return a label wrapped into at most three lines."""
    return "\n".join(textwrap.wrap(label, WIDTH, max_lines=3, placeholder="…"))


def short(label: str, most: int = 60) -> str:
    """Return a label on one line, shortened to `most` characters."""
    line = " ".join(label.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def title(text: str) -> str:
    """Return a title wrapped into a few short lines."""
    return textwrap.fill(short(text, 120), 46)
