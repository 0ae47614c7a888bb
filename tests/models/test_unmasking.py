"""Masks are filled in steps, from the distributions that a model predicts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from maskpolicy.models.training.specials import Specials
from maskpolicy.models.unmasking import unmasked

SPECIALS = Specials(bos=0, eos=2, pad=1, mask=4, start=None, vocabulary=8, special=(0, 1, 2, 3, 4))


class Known(nn.Module):
    """Predicts token 5 in a quarter of the cases and 6 in the others, but special tokens mostly."""

    def __init__(self):
        super().__init__()
        self.masks: list[int] = []  # of the texts that it has read

    def forward(self, input_ids, attention_mask):
        self.masks.append(int((input_ids == SPECIALS.mask).sum()))
        chances = torch.tensor([9, 9, 9, 9, 9, 0.25, 0.75, 0, 7])  # the last is no token
        return SimpleNamespace(logits=chances.log().expand(*input_ids.shape, -1))


@pytest.mark.parametrize(
    ("steps", "masks"), [(1, [6]), (3, [6, 4, 2]), (4, [6, 4, 2, 1]), (9, [6, 5, 4, 3, 2, 1])]
)
def test_an_equal_share_of_the_masks_is_filled_in_each_step(steps, masks):
    source = np.asarray([0, 7, 4, 4, 4, 7, 4, 4, 4, 2], np.int32)
    model = Known()
    filled = unmasked(model, source, SPECIALS, steps, np.random.default_rng(0))
    assert model.masks == masks
    assert (filled[source != 4] == source[source != 4]).all()
    assert set(filled[source == 4].tolist()) <= {5, 6}


def test_tokens_are_drawn_from_what_the_model_predicts():
    source = np.full(2000, 4, np.int32)
    filled = unmasked(Known(), source, SPECIALS, 2, np.random.default_rng(0))
    assert np.bincount(filled, minlength=8)[5:].tolist() == pytest.approx([500, 1500, 0], abs=60)
