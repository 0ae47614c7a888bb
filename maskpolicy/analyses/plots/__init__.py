"""Plots as data, and their drawing as SVG and PNG."""

from __future__ import annotations

from maskpolicy.analyses.plots.drawing import draw
from maskpolicy.analyses.plots.look import GREY
from maskpolicy.analyses.plots.plot_data import PLOTS, Bars, Grid, Lines, Marked, Plot, Series

__all__ = ["GREY", "PLOTS", "Bars", "Grid", "Lines", "Marked", "Plot", "Series", "draw"]
