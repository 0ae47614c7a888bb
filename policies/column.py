"""Hide spans that the corpus brings along: answers, key words, what you have marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from maskpolicy import ConfigError, Count, Passage, Spans, as_spans, policy


@policy("column", target="spans")
@dataclass(frozen=True)
class Column:
    """Hide spans of a column of the corpus, drawn uniformly (in its block: columns: [NAME])."""

    column: str  # the column's name in the corpus
    spans: Count | Literal["all"] = 1  # how many to hide

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw `spans` of the column's spans without replacement; ConfigError if there is none."""
        if self.column not in passage.columns:
            there = ", ".join(sorted(passage.columns)) or "none"
            raise ConfigError(
                f"policy column: the corpus has no column {self.column!r} (it has: {there}): "
                "name it under `columns` in the block of the corpus"
            )
        found = passage.columns[self.column]
        count = len(found) if self.spans == "all" else self.spans
        return as_spans(found[np.sort(rng.permutation(len(found))[:count])])
