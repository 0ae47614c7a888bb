"""Mask spans that a column of the corpus marks, such as answers or key words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from maskpolicy import ConfigError, Count, Passage, Spans, as_spans, policy


@policy("column", target="spans")
@dataclass(frozen=True)
class Column:
    """Mask spans of a column of the corpus, drawn uniformly (corpus block: columns: [NAME])."""

    column: str  # the column's name in the corpus
    spans: Count | Literal["all"] = 1  # number of spans to mask

    @property
    def corpus_columns(self) -> tuple[str, ...]:
        """The column that `select` reads."""
        return (self.column,)

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw `spans` spans without replacement; raises ConfigError if the column is missing."""
        if self.column not in passage.columns:
            there = ", ".join(sorted(passage.columns)) or "none"
            raise ConfigError(
                f"policy column: the corpus has no column {self.column!r} (it has: {there}): "
                "name one of these; a corpus of files has those that `corpus.columns` names"
            )
        found = passage.columns[self.column]
        count = len(found) if self.spans == "all" else self.spans
        return as_spans(found[np.sort(rng.permutation(len(found))[:count])])
