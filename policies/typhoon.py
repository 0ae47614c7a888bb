"""Mask tokens by the gradient of a task's loss: Typhoon (Abdurrahman et al., arXiv 2303.15619).

The saliency of a type of token is an exponential moving average, over the batches of a label task,
of the absolute gradient of the loss in the token's one-hot input. The chance c that a token is
masked is proportional to its saliency, but at most 1: c(t) = min(1, k s(t)), with k such that the
expected share of masked tokens of the corpus is `ratio`, as each is drawn independently. The
authors' code, https://github.com/man2machine/cs324-final-project-2023, differs (docs/policies.md).

Use it as a negative control: in version 2 of their paper the authors withdraw the gain that version
1 reported. In 90 runs on MRPC and CoLA, none of its 12 paired comparisons with random and
whole-word masking was significant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Json, Passage, Range, Share, Spans, Statistics, policy
from maskpolicy.models.learned import Contexts, Tools, Training, require

FILE = "chances.npy"


@policy("typhoon", target="spans")
@dataclass(frozen=True)
class Typhoon:
    """Mask tokens on which the loss of the task `train_on` depends most (Typhoon)."""

    train_on: tuple[str, ...]  # one label task
    ratio: Share = 0.15  # expected share of the corpus's tokens to mask
    decay: Annotated[float, Range(ge=0, lt=1)] = 0.9  # of the moving average, at each batch
    passes: Count = 1  # passes over the examples of train
    learns_from: ClassVar = "labels"
    needs_classifier: ClassVar = True

    def count(self, passages: Sequence[Passage]) -> Counter[int]:
        """Count the types of tokens by their ids."""
        return Counter(np.concatenate([passage.tokens for passage in passages]).tolist())

    def fit(
        self,
        data: Sequence[Contexts],
        spec: Training,
        out: Path,
        tools: Tools,
        statistics: Statistics,
    ) -> Json:
        """Keep the chance of each type of token, (vocabulary,)."""
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
        counts = statistics.numbers(range(len(average)))
        found = chances(average, counts, self.ratio)
        np.save(out / FILE, found.astype(np.float32))
        expected = float(found @ counts / max(1, counts.sum()))
        return {"batches": total, "types": int((average > 0).sum()), "share": round(expected, 6)}

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Return the column "chances": that of each token of each passage, (t,)."""
        found = np.load(require("typhoon", fitted) / FILE)
        return {"chances": [found[passage.tokens] for passage in passages]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw each token with its chance, independently of the others."""
        return passage.pieces[rng.random(len(passage.tokens)) < passage.columns["chances"]]


def update(
    average: NDArray[np.float64],
    types: NDArray[np.int64],
    values: NDArray[np.float32],
    decay: float,
) -> None:
    """Update each type's moving average with the mean of its `values`; it begins at the first one.

    `types` and `values` (n,) belong to a batch's tokens; other types keep their average.
    """
    there, places, counts = np.unique(types, return_inverse=True, return_counts=True)
    means = np.bincount(places, weights=values) / counts
    before = average[there]
    average[there] = np.where(before > 0, decay * before + (1 - decay) * means, means)


def chances(
    saliency: NDArray[np.float64], counts: NDArray[np.int64], ratio: float
) -> NDArray[np.float64]:
    """Return min(1, k s) for each of n types, with k such that the mean over all tokens is `ratio`.

    `counts` (n,) has the tokens of each type. If too few tokens have a saliency above 0, each of
    these has the chance 1.
    """
    order = np.argsort(-saliency, kind="stable")[: int((saliency > 0).sum())]
    s, weights = saliency[order], counts[order].astype(np.float64)
    wanted = ratio * counts.sum()
    if wanted >= weights.sum():
        return (saliency > 0).astype(np.float64)
    certain = np.cumsum(weights) - weights  # tokens of earlier types, which have the chance 1
    rest = np.cumsum((weights * s)[::-1])[::-1]
    scales = np.divide(wanted - certain, rest, out=np.full(len(s), np.inf), where=rest > 0)
    scale = scales[np.argmax(scales * s <= 1)]
    return np.minimum(1, scale * saliency)
