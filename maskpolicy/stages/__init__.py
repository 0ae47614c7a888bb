"""The functions of all stages, and the graph of stages of an experiment."""

from __future__ import annotations

from maskpolicy.stages.assembly import Graph, build, statistics, tokenizer
from maskpolicy.stages.parts import part

__all__ = ["Graph", "build", "part", "statistics", "tokenizer"]
