"""The functions of all stages, and the graph of stages of an experiment."""

from __future__ import annotations

from maskpolicy.pipeline.stages.assembly import Graph, build, statistics, tokenizer
from maskpolicy.pipeline.stages.chosen_cells import choose_cells

__all__ = ["Graph", "build", "choose_cells", "statistics", "tokenizer"]
