"""Candidate spans of learned policies: ranked once per passage, one is drawn in each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Passage, Spans
from maskpolicy.masking.selection import choose
from maskpolicy.models.learned.fit_tools import require

KEPT = 20  # number of candidates stored per passage, with their scores
MOST = 512  # limit of words per span (a window has as many tokens) and of spans compared (memory)


def check(train_on: Sequence[str], top_k: int, max_words: int) -> None:
    """Raise ConfigError if `train_on` is empty, `top_k` above KEPT or `max_words` above MOST."""
    if not train_on:
        raise ConfigError("train_on: is empty: name at least one task")
    if top_k > KEPT:
        raise ConfigError(f"top_k: must be at most {KEPT}, not {top_k}")
    if max_words > MOST:
        raise ConfigError(f"max_words: must be at most {MOST}, not {max_words}")


def find(
    policy: str,
    fitted: Path | None,
    passages: Sequence[Passage],
    max_words: int,
    overlap: bool = False,
) -> dict[str, list[NDArray[Any]]]:
    """Return the columns "candidates" (token spans, best first) and "scores".

    `fitted` is the folder of an extractor. Raises ConfigError if it is None.
    """
    from maskpolicy.models.learned.extractor import loaded
    from maskpolicy.models.learned.windows import candidates

    reader = loaded(require(policy, fitted))
    best = candidates(reader, passages, KEPT, max_words, overlap)
    return {"candidates": [spans for spans, _ in best], "scores": [scores for _, scores in best]}


def draw(passage: Passage, top_k: int, rng: np.random.Generator) -> Spans:
    """Draw one of the `top_k` best candidates with probability proportional to exp(score).

    Returns spans (1, 2), or (0, 2) if the passage has no word.
    """
    spans = passage.columns["candidates"][:top_k]
    if len(spans) < 2:
        return spans
    scores = passage.columns["scores"][: len(spans)].astype(np.float64)
    drawn = choose(np.exp(scores - scores[0]).tolist(), rng)
    return spans[drawn : drawn + 1]
