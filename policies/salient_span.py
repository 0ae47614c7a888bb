"""Hide one named entity, date or number and recover it: salient span masking (Guu et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskpolicy.entities import LABELS
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.pipelines import entities, identity
from maskpolicy.registry import policy
from maskpolicy.types import Json, Passage, Spans


@policy("salient-span", target="spans")
@dataclass(frozen=True)
class SalientSpan:
    """Hide entities drawn uniformly from those of the passage (Ye et al. 2021: +SSM)."""

    pipeline: str | None = None  # a spaCy pipeline's name or folder; null: the built-in rules
    labels: tuple[str, ...] = ()  # only entities with these labels; none given: all
    spans: int = 1  # entities to hide

    def __post_init__(self) -> None:
        """Refuse a number of spans that hides nothing, and labels that the rules do not know."""
        if self.spans < 1:
            raise ConfigError(f"spans: must be 1 or more, not {self.spans}")
        for label in self.labels if self.pipeline is None else ():
            if label not in LABELS:
                raise ConfigError(
                    f"labels: {unknown('label', label, LABELS)}; others need a `pipeline`"
                )

    def depends(self) -> Json:
        """Return what `annotate` rests on beside the fields: name and version of the pipeline."""
        return identity(self.pipeline)

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[Spans]]:
        """Return the column "entities": the token spans of each passage's entities."""
        found = entities((passage.text for passage in passages), self.pipeline)
        return {
            "entities": [
                passage.at([e[:2] for e in each if not self.labels or e[2] in self.labels])
                for passage, each in zip(passages, found, strict=True)
            ]
        }

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw `spans` entities without replacement; none where the passage has none."""
        found = passage.columns["entities"]
        drawn = rng.permutation(len(found))[: self.spans]
        drawn.sort()
        return found.take(drawn, axis=0)
