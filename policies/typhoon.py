"""Mask tokens by the gradient of a task's loss: Typhoon (Abdurrahman et al., arXiv 2303.15619).

The saliency of a type of token is an exponential moving average, over the batches of a label task,
of the absolute gradient of the loss in the token's one-hot input. The chance c that a token is
masked is proportional to its saliency, but at most 1: c(t) = min(1, k s(t)), with k such that
the expected share of masked tokens is `ratio`; tokens are drawn independently.

Use it as a negative control: in version 2 of their paper the authors withdraw the gain that version
1 reported. In 90 runs on MRPC and CoLA, none of its 12 paired comparisons with random and
whole-word masking was significant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Json, Passage, Range, Rate, Spans, policy
from maskpolicy.learned import Contexts, Tools, Training, require

FILE = "saliency.npy"


@policy("typhoon", target="spans")
@dataclass(frozen=True)
class Typhoon:
    """Mask tokens on which the loss of the task `train_on` depends most (Typhoon)."""

    train_on: tuple[str, ...]  # one label task
    ratio: Rate = 0.15  # expected share of a passage's tokens to mask
    decay: Annotated[float, Range(ge=0, lt=1)] = 0.9  # of the moving average, at each batch
    passes: Count = 1  # passes over the examples of train
    only_select: ClassVar = ("ratio",)  # fields that neither fit nor annotate reads
    learns_from: ClassVar = "labels"
    needs_classifier: ClassVar = True

    def fit(self, data: Sequence[Contexts], spec: Training, out: Path, tools: Tools) -> Json:
        """Keep the saliency of each type of token, (vocabulary,)."""
        judge = tools.load_classifier(data[0], spec)
        examples = [context.example for context in data[0].train]
        steps, size = judge.steps(examples), judge.spec.batch_size
        average = np.zeros(len(tools.embeddings()))
        total = -(-self.passes * len(examples) // size)
        for number in range(total):
            batches = steps(number).batches
            types = [batch.source[batch.seen].numpy() for batch in batches]
            values = [np.abs(judge.gradients(batch))[batch.seen.numpy()] for batch in batches]
            update(average, np.concatenate(types), np.concatenate(values), self.decay)
            tools.run.progress(number + 1, total, "gradients")
        average[tools.load_tokenizer().all_special_ids] = 0
        np.save(out / FILE, average.astype(np.float32))
        return {"batches": total, "types": int((average > 0).sum())}

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Return the column "saliency": a number for each token of each passage."""
        saliency = np.load(require("typhoon", fitted) / FILE)
        return {"saliency": [saliency[passage.tokens] for passage in passages]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw each token with its chance, independently of the others."""
        given = chances(passage.columns["saliency"], self.ratio)
        return passage.pieces[rng.random(len(given)) < given]


def update(
    average: NDArray[np.float64],
    types: NDArray[np.int64],
    values: NDArray[np.float32],
    decay: float,
) -> None:
    """Take the mean of each type's `values` into its moving average; the first one is taken whole.

    `types` and `values` are (n,), those of a batch's tokens; other types keep their average.
    """
    there, places, counts = np.unique(types, return_inverse=True, return_counts=True)
    means = np.bincount(places, weights=values) / counts
    before = average[there]
    average[there] = np.where(before > 0, decay * before + (1 - decay) * means, means)


def chances(saliency: NDArray[np.floating], ratio: float) -> NDArray[np.float64]:
    """Return min(1, k s) for each of n saliencies, with k such that they add up to ratio * n.

    If fewer saliencies are above 0, each of these has the chance 1.
    """
    s = saliency.astype(np.float64)
    wanted, above = ratio * len(s), int((s > 0).sum())
    if wanted >= above:
        return (s > 0).astype(np.float64)
    ordered = np.sort(s)[::-1][:above]
    certain = np.arange(above)  # how many of the highest have the chance 1
    scales = (wanted - certain) / np.cumsum(ordered[::-1])[::-1]
    scale = scales[np.argmax(scales * ordered <= 1)]
    found: NDArray[np.float64] = np.minimum(1, scale * s)
    return found
