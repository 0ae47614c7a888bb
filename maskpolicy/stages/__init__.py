"""The stages of an experiment: what each computes, and how an experiment becomes their graph."""

from __future__ import annotations

from maskpolicy.stages.assembly import Graph, build, tokenizer

__all__ = ["Graph", "build", "tokenizer"]
