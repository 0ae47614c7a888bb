"""Mask easy concepts first, then those related to them: CCM (Lee et al., EMNLP 2022).

Paper: "Efficient Pre-training of Masked Language Model via Concept-based Curriculum Masking", arXiv
2212.07617; code: https://github.com/KoreaMGLEE/Concept-based-curriculum-masking. Concepts are the
nodes of a graph, such as ConceptNet. Of the `connected` concepts with the most neighbours, those
that occur at least `frequent` times in the corpus, at most `basic` of them, are the first stage of
a curriculum; each further stage adds the concepts that are `hops` edges away from the last one, and
the last stage has all concepts of the graph.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import (
    ConfigError,
    Count,
    DataError,
    Json,
    Passage,
    Rate,
    Schedule,
    Spans,
    Statistics,
    Weight,
    as_spans,
    fill,
    policy,
)
from maskpolicy.data.corpus import ngrams

LONGEST = 4  # words of a concept
CURRICULUM: Any = Schedule(0, 5)
RANDOM = 1 / 3  # share of random tokens among those masked after the last stage: 5% of 15%


@policy("concepts", target="spans")
@dataclass(frozen=True)
class Concepts:
    """Mask concepts of a graph: well-connected ones first, then those related to them (CCM)."""

    graph: str  # file with two concepts and a tab in each line, or ConceptNet's assertions
    ratio: Rate = 0.15  # share of the tokens to mask
    # 0: random tokens; 1 to `stages`: concepts of all stages up to this one; above `stages`: all
    # concepts and random tokens; the default ends at `stages` + 2
    stage: Weight = CURRICULUM
    stages: Count = 3  # of concepts; the last has all concepts of the graph
    hops: Count = 1  # edges between the concepts of one stage and of the next
    connected: Count = 5000  # concepts with the most neighbours, from which the basic ones come
    frequent: Count = 100  # occurrences of a basic concept in the corpus
    basic: Count = 3000  # the most concepts in the first stage
    only_select: ClassVar = ("ratio", "stage")  # fields that neither count nor annotate reads
    version: ClassVar = 2  # reads a graph's first concept after a BOM

    def __post_init__(self) -> None:
        """Let the default curriculum reach all stages."""
        if self.stages != Concepts.stages and self.stage is CURRICULUM:
            object.__setattr__(self, "stage", Schedule(0, self.stages + 2))

    def depends(self) -> Json:
        """Return the digest of the graph's file; raises ConfigError if it cannot be read."""
        try:
            with Path(self.graph).open("rb") as file:
                return {"graph": hashlib.file_digest(file, "sha256").hexdigest()}
        except OSError as error:
            raise ConfigError(f"graph: {self.graph} cannot be read: {error.strerror}") from None

    def count(self, passages: Sequence[Passage]) -> Counter[str]:
        """Count the n-grams of 1 to 4 words that are concepts of the graph."""
        concepts, _ = read_graph(self.graph)
        found = (text for passage in passages for *_, text in ngrams(passage, LONGEST))
        return Counter(text for text in found if text in concepts)

    def condense(self, statistics: Statistics) -> dict[str, int]:
        """Return the stage, from 1, of each concept that occurs in the corpus.

        Raises DataError if no concept is frequent and connected enough for the first stage.
        """
        concepts, edges = read_graph(self.graph)
        names = list(concepts)
        degrees = np.bincount(edges.ravel(), minlength=len(names))
        best = np.argsort(-degrees, kind="stable")[: self.connected]
        is_frequent = statistics.numbers([names[at] for at in best.tolist()]) >= self.frequent
        reached = np.zeros(len(names), bool)
        reached[best[is_frequent][: self.basic]] = True
        if not reached.any():
            raise DataError(
                f"policy concepts: none of the {len(best)} concepts of {self.graph} with the most "
                f"neighbours occurs {self.frequent} times in the corpus: lower `frequent`"
            )
        stages = np.where(reached, 1, self.stages)
        for stage in range(2, self.stages):
            for _ in range(self.hops):
                reached[edges[reached[edges].any(axis=1)]] = True
            stages[reached & (stages > stage)] = stage
        return {str(name): int(stages[concepts[str(name)]]) for name, _ in statistics.items()}

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None, statistics: Statistics
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the columns "concepts", token spans (n, 2), and "stages", theirs, (n,).

        Of concepts that overlap, the one with more words is found.
        """
        found = [_found(passage, statistics) for passage in passages]
        return {
            "concepts": [spans for spans, _ in found],
            "stages": [stages.astype(np.int32) for _, stages in found],
        }

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw concepts of the stage until they hold floor(ratio * t + u) of the t tokens.

        u is uniform in [0, 1). The last concept is masked whole.
        """
        budget = int(self.ratio * len(passage.tokens) + rng.random())
        stage = int(self.stage)
        tokens = budget if not stage else round(RANDOM * budget) * (stage > self.stages)
        concepts = passage.columns["concepts"][passage.columns["stages"] <= stage]
        spans = fill(concepts, budget - tokens, rng)
        is_free = np.ones(len(passage.tokens), bool)
        for start, end in spans.tolist():
            is_free[start:end] = False
        spans = np.concatenate([spans, fill(passage.pieces[is_free], tokens, rng)])
        return as_spans(spans[np.argsort(spans[:, 0])])


def read_graph(path: str) -> tuple[dict[str, int], NDArray[np.int64]]:
    """Return the concepts in lower case with their numbers, and the edges between these, (e, 2).

    Of ConceptNet's assertions the English ones are read. Raises DataError for other lines.
    """
    about = Path(path).stat()  # an edited file is read again
    return _read(path, (about.st_size, about.st_mtime_ns, about.st_ctime_ns))


@lru_cache(maxsize=1)
def _read(path: str, _: tuple[int, ...]) -> tuple[dict[str, int], NDArray[np.int64]]:
    places: dict[str, int] = {}
    try:
        edges = {
            (places.setdefault(first, len(places)), places.setdefault(second, len(places)))
            for first, second in map(sorted, _edges(path))
            if first != second
        }
    except (UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
        what = "not UTF-8" if isinstance(error, UnicodeDecodeError) else "cannot be read"
        raise DataError(f"policy concepts: {path}: {what}: {error}") from error
    if not edges:
        raise DataError(f"policy concepts: {path} has no edge between two English concepts")
    return places, np.asarray(sorted(edges), np.int64)


def _edges(path: str) -> Iterator[tuple[str, str]]:
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip("\n").split("\t")
            if len(fields) == 2:
                yield _name(fields[0]), _name(fields[1])
            elif len(fields) == 5 and fields[2].startswith("/c/"):
                if fields[2].startswith("/c/en/") and fields[3].startswith("/c/en/"):
                    yield _name(fields[2].split("/")[3]), _name(fields[3].split("/")[3])
            else:
                raise DataError(
                    f"policy concepts: {path}, line {number}: is neither two concepts with a tab "
                    "between them nor one of ConceptNet's assertions"
                )


def _name(concept: str) -> str:
    return " ".join(concept.replace("_", " ").lower().split())


def _found(passage: Passage, statistics: Statistics) -> tuple[Spans, NDArray[Any]]:
    every = sorted(ngrams(passage, LONGEST), key=lambda each: -each[0])
    stages = statistics.numbers([text for *_, text in every])
    is_free, words, kept = np.ones(len(passage.words), bool), passage.words, []
    for (size, first, _), stage in zip(every, stages.tolist(), strict=True):
        if stage and is_free[first : first + size].all():
            is_free[first : first + size] = False
            kept.append((words[first, 0], words[first + size - 1, 1], stage))
    found = np.asarray(sorted(kept), np.int64).reshape(-1, 3)
    return as_spans(found[:, :2]), found[:, 2]
