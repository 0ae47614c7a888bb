"""Mask named entities and dates: salient span masking (Guu et al. 2020), and variants of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from maskpolicy import (
    ConfigError,
    Json,
    Passage,
    Rate,
    Spans,
    as_spans,
    fill,
    omitted,
    policy,
    unknown,
)
from maskpolicy.data.corpus import Labelled, entity_labels, find_entities, pipeline_identity

NAMES_AND_DATES = (
    *("NAME", "DATE"),  # the built-in rules
    *("PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT", "WORK_OF_ART", "LAW"),
    "LANGUAGE",  # OntoNotes, as in spaCy's English pipelines, which have DATE too
    *("PER", "MISC"),  # CoNLL's four types, as in pipelines of many other languages
)
"""Labels of salient span masking (Guu et al. 2020), without times, numbers, shares and prices."""

_ELSEWHERE = (
    *("PRS", "EVN", "WRK", "OBJ", "TME"),  # Swedish
    *("GPE_LOC", "GPE_ORG", "EVT", "PROD"),  # Norwegian
    *("ORGANIZATION", "FACILITY", "NAT_REL_POL", "DATETIME"),  # Romanian
    *("persName", "placeName", "geogName", "orgName", "date"),  # Polish
    *("PS", "LC", "OG", "DT"),  # Korean
)
"""What other spaCy pipelines call names and dates: the default labels mean these, too."""


@dataclass(frozen=True)
class Entities:
    """The entities of passages, by rules or by a spaCy pipeline."""

    pipeline: str | None = None  # name or folder of a spaCy pipeline; null: the built-in rules
    # labels of the entities to mask; all (or an empty list): also numbers and times of day
    labels: tuple[str, ...] | Literal["all"] = NAMES_AND_DATES

    def __post_init__(self) -> None:
        """Raise ConfigError for labels that the built-in rules do not have."""
        if self.pipeline is None and not self._takes_all and self.labels != NAMES_AND_DATES:
            ours = entity_labels()
            for label in self.labels:
                if label not in ours:
                    raise ConfigError(
                        f"labels: {unknown('label', label, ours)}; others need a `pipeline`"
                    )

    @property
    def _takes_all(self) -> bool:
        return not self.labels or self.labels == "all"

    def depends(self) -> Json:
        """Return the pipeline's name and version: `annotate` depends on them besides the fields."""
        return pipeline_identity(self.pipeline)

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[Spans]]:
        """Return the column "entities": the token spans of each passage's entities.

        Raises ConfigError if the pipeline lacks one of `labels` (all of the default ones), and for
        text that is not English without a pipeline.
        """
        other = next((one.language for one in passages if one.language != "en"), "")
        if self.pipeline is None and other:
            raise ConfigError(
                "entities: the built-in rules are for English, and the text's language "
                f"is {other}: set `pipeline` to a spaCy pipeline of that language"
            )
        found = self.entities([passage.text for passage in passages])
        return {
            "entities": [
                passage.at([entity[:2] for entity in each])
                for passage, each in zip(passages, found, strict=True)
            ]
        }

    def entities(self, texts: Sequence[str]) -> list[Labelled]:
        """Return the entities of each text that have one of `labels`; raises as `annotate` does."""
        labels = self.labels
        if labels == NAMES_AND_DATES:
            labels = (*NAMES_AND_DATES, *_ELSEWHERE)
        if not self._takes_all:
            known = entity_labels(self.pipeline)
            missing = [label for label in labels if label not in known]
            # the default names the labels of several pipelines
            allowed = len(labels) - 1 if self.labels == type(self).labels else 0
            if known and len(missing) > allowed:
                lacks = "none of them" if len(missing) == len(labels) else f"no {missing[0]!r}"
                raise ConfigError(
                    f"labels: the pipeline {self.pipeline} has {lacks}; it has "
                    f"{', '.join(sorted(known))}: name some of these, or set labels: all"
                )
        return [
            [entity for entity in each if self._takes_all or entity[2] in labels]
            for each in find_entities(texts, self.pipeline)
        ]


@policy("salient-span", target="spans")
@dataclass(frozen=True)
class SalientSpan(Entities):
    """Mask named entities and dates, drawn uniformly from those of the passage (+SSM)."""

    spans: int = 1  # number of entities to mask
    # one: a passage is one example in each epoch; each: one example for each of its entities (T5)
    examples: Literal["one", "each"] = omitted("one")
    # a passage without an entity: keep it in the batch, where it adds no loss, or drop it
    without: Literal["keep", "drop"] = omitted("keep")
    only_select: ClassVar = ("spans", "examples", "without")  # annotate does not read them

    def __post_init__(self) -> None:
        """Raise ConfigError for `spans` below 1, or above 1 with an example for each entity."""
        super().__post_init__()
        if self.spans < 1:
            raise ConfigError(f"spans: must be 1 or more, not {self.spans}")
        if self.spans > 1 and self.examples == "each":
            raise ConfigError("spans: examples: each masks one entity at a time: leave spans out")

    def examples_of(self, passages: Sequence[Passage]) -> list[int] | None:
        """Return the number of examples of each passage; None: one of each."""
        if (self.examples, self.without) == ("one", "keep"):
            return None
        least, most = int(self.without == "keep"), None if self.examples == "each" else 1
        counts = (len(passage.columns["entities"]) for passage in passages)
        return [max(least, count if most is None else min(most, count)) for count in counts]

    def select(
        self, passage: Passage, rng: np.random.Generator, example: int | None = None
    ) -> Spans:
        """Draw `spans` entities without replacement; no span if the passage has no entity."""
        found = passage.columns["entities"]
        if example is not None and self.examples == "each":
            return found[example : example + 1]
        drawn = rng.permutation(len(found))[: self.spans]
        drawn.sort()
        return found.take(drawn, axis=0)


@policy("temporal", target="spans")
@dataclass(frozen=True)
class Temporal(SalientSpan):
    """Mask dates and times: temporal span masking (TSM, Cole et al. 2023, arXiv 2303.12860)."""

    # labels of pipelines with OntoNotes's types, and of the built-in rules
    labels: tuple[str, ...] | Literal["all"] = ("DATE", "TIME")


@policy("salient-first", target="spans")
@dataclass(frozen=True)
class SalientFirst(Entities):
    """Mask a share of the tokens: named entities and dates first, then other words."""

    ratio: Rate = 0.15  # share of the tokens to mask
    only_select: ClassVar = ("ratio",)  # fields that annotate does not read

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw entities, and words when none is left, until they hold the share of the tokens.

        That is floor(ratio * t + u) of t tokens, u uniform in [0, 1). The last one is drawn whole.
        """
        budget = int(self.ratio * len(passage.tokens) + rng.random())
        found = passage.columns["entities"]
        inside = np.searchsorted(found[:, 0], passage.words[:, 0], side="right") - 1
        is_free = passage.words[:, 0] >= np.append(found[:, 1], 0)[inside]
        first = fill(found, budget, rng)
        rest = budget - int((first[:, 1] - first[:, 0]).sum())
        spans = np.concatenate([first, fill(passage.words[is_free], rest, rng)])
        return as_spans(spans[np.argsort(spans[:, 0])])
