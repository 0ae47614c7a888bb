"""Tag the words of passages to mask, with the network of learned policies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.types import Passage, Spans
from maskpolicy.models.learned import windows
from maskpolicy.models.learned.fit_tools import require
from maskpolicy.models.learned.windows import Window

if TYPE_CHECKING:
    import torch

    from maskpolicy.models.learned.extractor import Extractor, Texts

_LEAST = "least.json"  # the probability from which a word is tagged


def cut(passage: Passage, tagged: NDArray[np.bool_]) -> list[Window]:
    """Return the windows of a passage; its `tagged` words, (w,), are their gold spans."""
    return [
        Window.of(passage, begin, end, [(at, 0) for at in np.flatnonzero(tagged[begin:end])])
        for begin, end in (windows.bounds(passage.words) if len(passage.words) else ())
    ]


def loss(module: Extractor, texts: Texts) -> tuple[torch.Tensor, int]:
    """Return the sum of the texts' mean cross-entropies of their words, and the number of texts.

    The classes of a word are untagged and tagged (in `gold`); its first token has its logits.
    """
    import torch
    from torch.nn.functional import cross_entropy

    logits = module(texts.tokens, texts.lengths).float()
    rows = torch.arange(len(logits), device=logits.device)[:, None]
    tagged = texts.words.new_zeros(texts.words.shape[:2])
    there = texts.gold[..., 0] >= 0
    tagged[there.nonzero(as_tuple=True)[0], texts.gold[there][:, 0]] = 1
    losses = cross_entropy(
        logits[rows, texts.words[..., 0]].transpose(1, 2), tagged, reduction="none"
    )
    inside = torch.arange(tagged.shape[1], device=logits.device) < texts.counts[:, None]
    return (losses.where(inside, 0).sum(1) / texts.counts).sum(), len(logits)


def save(module: Extractor, passages: Sequence[Passage], share: float, folder: Path) -> float:
    """Write a tagger to a folder, and return the probability from which it tags a word.

    At this threshold it tags `share` of the words of `passages`. If few words are tagged, a
    probability above 0.5 may be rare.
    """
    every = np.concatenate([*probabilities(module.eval(), passages), np.zeros(1)])[:-1]
    least = float(np.quantile(every, 1 - share)) if len(every) else 1.0
    module.save(folder)
    (folder / _LEAST).write_text(json.dumps(least))
    return least


def tag(
    policy: str, fitted: Path | None, passages: Sequence[Passage]
) -> tuple[list[Spans], list[NDArray[np.float32]]]:
    """Return the tagged words of each passage, each (n, 2) tokens, and their probabilities (n,).

    `fitted` is the folder of a tagger. Raises ConfigError if it is None.
    """
    from maskpolicy.models.learned.extractor import loaded

    folder = require(policy, fitted)
    module = loaded(folder)
    least = json.loads((folder / _LEAST).read_text())
    every = probabilities(module, passages)
    spans = [one.words[own >= least] for one, own in zip(passages, every, strict=True)]
    return spans, [own[own >= least] for own in every]


def probabilities(module: Extractor, passages: Sequence[Passage]) -> list[NDArray[np.float32]]:
    """Return the probability of a tag for each word of each passage, each (w,)."""
    import torch

    every = [np.zeros(0, np.float32)] * len(passages)
    with torch.inference_mode():
        for batch in windows.with_words(passages):
            _, logits = windows.read(module, [passages[place] for place in batch])
            of_tokens = logits.softmax(-1)[..., 1].cpu().numpy()
            for row, place in enumerate(batch):
                every[place] = of_tokens[row, passages[place].words[:, 0]]
    return every
