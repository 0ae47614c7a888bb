"""Mask the parts of speech that the model finds hard: POS-tagging weighted masking (PTW).

A moving average of the loss of each part of speech weights its tokens. Paper: Yang et al. 2023,
"Learning Better Masking for Better Language Model Pre-training", ACL 2023, arXiv 2208.10806; code:
https://github.com/mutonix/better_masking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Json, Passage, Range, Rate, Share, Spans, draw_weighted, policy
from maskpolicy.data.corpus import TAGS, pipeline_identity, tag_words
from maskpolicy.models.learned import Current


@policy("pos-weighted", target="spans")
@dataclass(frozen=True)
class PosWeighted:
    """Mask tokens more often, the higher the average loss of their part of speech (PTW)."""

    pipeline: str  # name or folder of a spaCy pipeline with a tagger, such as en_core_web_sm
    ratio: Rate = 0.15  # share of the tokens to mask
    decay: Share = 0.999  # of the moving average, for each step of the training
    every: Count = 100  # steps after which the losses are measured again
    sample: Count = 512  # most passages in a measurement
    hidden: Annotated[float, Range(gt=0, le=1)] = 0.3  # share masked at a time to measure
    # of the weights, sigmoid(sharpness * (loss - mean) / sd) over the parts of speech
    sharpness: Annotated[float, Range(ge=0)] = 2.0
    only_select: ClassVar = ("ratio",)  # fields that annotate and reannotate do not read

    def depends(self) -> Json:
        """Return the pipeline's name and version, and that of the rules for clitics and marks."""
        return {**pipeline_identity(self.pipeline), "clitics": 4}

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the column "tags": the index in TAGS of each token's word, (t,)."""
        found = zip(passages, tag_words(passages, self.pipeline), strict=True)
        sized = ((tags, one.words[:, 1] - one.words[:, 0]) for one, tags in found)
        return {"tags": [tags.repeat(sizes).astype(np.int32) for tags, sizes in sized]}

    def reannotate(
        self, passages: Sequence[Passage], current: Current
    ) -> dict[str, list[NDArray[Any]]]:
        """Return the column "weights": that of each token's part of speech, (t,)."""
        places = np.linspace(0, len(passages) - 1, min(self.sample, len(passages)))
        sample = [passages[place] for place in places.astype(int).tolist()]
        tags = np.concatenate([passage.columns["tags"] for passage in sample])
        losses = np.concatenate(current.guess(sample, self.hidden).losses)
        counts = np.bincount(tags, minlength=len(TAGS))
        sums = np.bincount(tags, losses.astype(np.float64), len(TAGS))
        seen = np.divide(sums, counts, out=np.full(len(TAGS), losses.mean()), where=counts > 0)
        before = current.state.get("averages", seen)
        kept = self.decay**self.every  # as if all steps since then had these losses
        now = np.where(counts > 0, kept * before + (1 - kept) * seen, before)
        current.state["averages"] = now
        weights = relative(now, counts > 0, self.sharpness)
        return {"weights": [weights[passage.columns["tags"]] for passage in passages]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw floor(ratio * t + u) of t tokens, u in [0, 1), in proportion to their weights."""
        return draw_weighted(passage.pieces, passage.columns["weights"], self.ratio, rng)


def relative(
    losses: NDArray[np.float64], occur: NDArray[np.bool_], sharpness: float
) -> NDArray[np.float64]:
    """Return sigmoid(sharpness * z), z being the standard scores of losses among those that occur.

    All arrays are (n,). Without a spread of the losses, all weights are 1/2.
    """
    among = losses[occur]
    spread = among.std(ddof=1) if len(among) > 1 else 0.0
    z = (losses - among.mean()) / (spread or np.inf)
    return np.asarray(1 / (1 + np.exp(-sharpness * z)))
