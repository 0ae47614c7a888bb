"""Fill the masks of a text with an encoder in several steps: sampling of masked diffusion."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.models.training.specials import Specials


def unmasked(
    model: Any, source: NDArray[np.int32], specials: Specials, steps: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return a source, (n,) ids with special tokens, with its masks filled in.

    In each step, a masked language model predicts all remaining masks. An equal share of them,
    drawn at random, then get tokens, each drawn from its own distribution: the reverse process of
    MDLM (Sahoo et al. 2024) in equal steps of the linear schedule, with exact numbers of tokens.
    Special tokens are never drawn. With one step per mask, each token depends on all earlier ones.
    """
    import torch

    ids = source.copy()
    model.eval()
    for places in np.array_split(rng.permutation(np.flatnonzero(ids == specials.mask)), steps):
        if not len(places):
            continue
        given = torch.from_numpy(ids[None].astype(np.int64))
        with torch.inference_mode():
            every = model(input_ids=given, attention_mask=torch.ones_like(given)).logits[0]
            logits = every[places, : specials.vocabulary].double()
            logits[:, list(specials.special)] = -torch.inf
        chances = logits.softmax(1).numpy()
        ids[places] = [rng.choice(len(row), p=row) for row in chances]
    return ids
