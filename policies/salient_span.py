"""Hide one named entity or date and recover it: salient span masking (Guu et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from maskpolicy import ConfigError, Json, Passage, Spans, policy, unknown
from maskpolicy.corpus import Labelled, entity_labels, find_entities, pipeline_identity

NAMES_AND_DATES = (
    *("NAME", "DATE"),  # of the built-in rules
    *("PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT", "WORK_OF_ART", "LAW"),
    "LANGUAGE",  # of OntoNotes, as spaCy's English pipelines have them; DATE is there too
    *("PER", "MISC"),  # of CoNLL's four types, as in many other languages' pipelines
)
"""What salient span masking hides (Guu et al. 2020): no time of day, number, share or price."""


@policy("salient-span", target="spans")
@dataclass(frozen=True)
class SalientSpan:
    """Hide named entities and dates, drawn uniformly from those of the passage (+SSM)."""

    pipeline: str | None = None  # a spaCy pipeline's name or folder; null: the built-in rules
    # which entities may be hidden; all (or an empty list): numbers and times of day as well
    labels: tuple[str, ...] | Literal["all"] = NAMES_AND_DATES
    spans: int = 1  # entities to hide
    only_select: ClassVar = ("spans",)  # what annotate does not read

    def __post_init__(self) -> None:
        """Refuse a number of spans that hides nothing, and labels that the rules do not know."""
        if self.spans < 1:
            raise ConfigError(f"spans: must be 1 or more, not {self.spans}")
        if self.pipeline is None and not self._takes_all:
            ours = entity_labels()
            known = {*ours, *NAMES_AND_DATES} if ours & {*self.labels} else ours
            for label in self.labels:
                if label not in known:
                    raise ConfigError(
                        f"labels: {unknown('label', label, ours)}; others need a `pipeline`"
                    )

    @property
    def _takes_all(self) -> bool:
        return not self.labels or self.labels == "all"

    def depends(self) -> Json:
        """Return what `annotate` rests on beside the fields: name and version of the pipeline."""
        return pipeline_identity(self.pipeline)

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[Spans]]:
        """Return the column "entities": the token spans of each passage's entities.

        Raises ConfigError where the pipeline has none of `labels`.
        """
        found = self.entities([passage.text for passage in passages])
        return {
            "entities": [
                passage.at([entity[:2] for entity in each])
                for passage, each in zip(passages, found, strict=True)
            ]
        }

    def entities(self, texts: Sequence[str]) -> list[Labelled]:
        """Return the entities of each text that may be hidden; raises ConfigError as `annotate`."""
        if not self._takes_all:
            known = entity_labels(self.pipeline)
            if known and known.isdisjoint(self.labels):
                raise ConfigError(
                    f"labels: the pipeline {self.pipeline} has none of them, but "
                    f"{', '.join(sorted(known))}: name some of these, or set labels: all"
                )
        return [
            [entity for entity in each if self._takes_all or entity[2] in self.labels]
            for each in find_entities(texts, self.pipeline)
        ]

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw `spans` entities without replacement; none where the passage has none."""
        found = passage.columns["entities"]
        drawn = rng.permutation(len(found))[: self.spans]
        drawn.sort()
        return found.take(drawn, axis=0)
