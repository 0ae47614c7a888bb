"""The stages of an experiment: what each computes, and how an experiment becomes their graph."""

from __future__ import annotations

from maskpolicy.stages.assembly import Graph, build, tokenizer
from maskpolicy.stages.parts import part

__all__ = ["Graph", "build", "part", "tokenizer"]
