"""The loss on data that is not trained on."""

from __future__ import annotations

import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.models.attention_and_dropout import set_dropout
from maskpolicy.models.text_to_text_loss import token_loss
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.training.held_out_loss import held_out_losses
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import MaskedSteps
from maskpolicy.types import Denoising


def test_losses_are_summed_step_by_step_without_dropout():
    model = small.bart()
    set_dropout(model, 0.5)
    spec = Training(steps=2, batch_size=4, micro_tokens=40)
    marks = Specials.of(small.tokenizer(), model.config.decoder_start_token_id)
    policy = find_plugin("policy", "random").plugin(ratio=0.5)
    steps = MaskedSteps(small.passages(), policy, Denoising(), marks, spec)
    assert len(steps(0).batches) > 1
    told = []
    sums, tokens = held_out_losses(
        model.train(), token_loss, steps, 2, lambda *how: told.append(how)
    )
    assert tokens == [steps(0).units, steps(1).units]
    assert told == [(1, 2, ""), (2, 2, "")]
    assert not model.training
    for number in range(2):
        with torch.no_grad():
            expected = sum(token_loss(model, each)[0].item() for each in steps(number).batches)
        assert sums[number] == pytest.approx(expected, rel=1e-6)
