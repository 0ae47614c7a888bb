"""The functions of all stages, and the graph of stages of an experiment."""

from __future__ import annotations

from maskpolicy.pipeline.stages.assembly import (
    Graph,
    build,
    choose_cells,
    corpus,
    statistics,
    tokenizer,
    train_examples,
)

__all__ = ["Graph", "build", "choose_cells", "corpus", "statistics", "tokenizer", "train_examples"]
