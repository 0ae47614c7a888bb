"""Plots as data, and their drawing as SVG and PNG."""

from __future__ import annotations

from maskpolicy.plots.data import PLOTS, Bars, Grid, Lines, Marked, Plot, Series
from maskpolicy.plots.drawing import draw
from maskpolicy.plots.look import GREY

__all__ = ["GREY", "PLOTS", "Bars", "Grid", "Lines", "Marked", "Plot", "Series", "draw"]
