"""The loss of a BART in training and its gradients equal those of Transformers' own modules."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import small
import torch

from maskpolicy.models import bart_gradients
from maskpolicy.models.text_to_text_loss import TrainingLoss, token_loss
from maskpolicy.training.batching import Pair, Pairs, collate
from maskpolicy.training.weights import Weights

MASK, PAD, START = 4, 1, 2
SIZES = {"encoder_layers": 2, "decoder_layers": 2, "attn_implementation": "eager"}
DROPOUT = {"dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.1}
TEXTS = (([0, 7, MASK, 9, 10, 2], [0, 7, 8, 2]), ([0, 11, 12, MASK, 2], [0, 13, 14, 15, 16, 2]))


def batch(texts=TEXTS, excluded=False):
    """Two texts of different lengths, with padding in sources and targets."""
    pairs = []
    for source, target in texts:
        ids = np.asarray(source, np.int32)
        pairs.append(Pair(ids, np.asarray(target, np.int32), ids == MASK if excluded else None))
    return collate(Pairs.of(pairs), PAD, START)


def bart(**config):
    return small.bart(**(SIZES | {"init_std": 0.3} | config)).train()


def found(model, loss, given, bf16=False, scale=0.25):
    """The loss of two micro-batches, and the gradient of all weights."""
    weights = Weights(model, bf16)
    torch.manual_seed(0)
    values = []
    for each in given:
        value, units = loss(model, each)
        (value * scale).backward()
        values.append((value.item(), units))
    return values, weights.collected.float()


def check(given, *, bf16=False, close=1e-5, **config):
    values, gradient = found(bart(**config), TrainingLoss(), given, bf16)
    expected, autograd = found(bart(**config), token_loss, given, bf16)
    assert [units for _, units in values] == [units for _, units in expected]
    losses = [[value for value, _ in each] for each in (values, expected)]
    np.testing.assert_allclose(*losses, rtol=close)
    assert gradient.abs().max() > 0.1
    assert (gradient - autograd).norm() < close * autograd.norm()


@pytest.fixture(autouse=True)
def is_used(monkeypatch):
    """Each test takes the backward pass of our own."""
    of, models = bart_gradients.of, []
    monkeypatch.setattr(bart_gradients, "of", lambda model: models.append(of(model)) or models[-1])
    yield models
    assert models


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dropout", [{}, DROPOUT], ids=["no dropout", "dropout"])
@pytest.mark.parametrize("excluded", [False, True], ids=["all seen", "masks excluded"])
def test_loss_and_gradients_are_those_of_autograd(activation, dropout, excluded, is_used):
    check([batch(excluded=excluded)] * 2, activation_function=activation, **dropout)
    assert is_used[0] is not None


@pytest.mark.parametrize(
    "config",
    [
        {"scale_embedding": True},
        {"tie_word_embeddings": False},
        {"encoder_layers": 1, "decoder_layers": 3},
        {"encoder_attention_heads": 2, "decoder_attention_heads": 4},
    ],
    ids=lambda config: " ".join(config),
)
def test_configurations_of_bart(config, is_used):
    check([batch(), batch(TEXTS[:1])], **config)
    assert is_used[0] is not None


def test_a_bias_of_the_logits(is_used):
    def biased(loss):
        model = bart()
        model.final_logits_bias += torch.arange(model.config.vocab_size) / 50
        return found(model, loss, [batch()])

    (values, gradient), (expected, autograd) = biased(TrainingLoss()), biased(token_loss)
    assert values[0] == pytest.approx(expected[0], rel=1e-5)
    assert (gradient - autograd).norm() < 1e-5 * autograd.norm()
    assert is_used[0].bias is not None


def test_bf16_is_as_near_to_fp32_as_autograd_is(is_used):
    given = [batch()]
    _, exact = found(bart(), token_loss, given)
    _, ours = found(bart(), TrainingLoss(), given, bf16=True)
    _, autograd = found(bart(), token_loss, given, bf16=True)
    error, usual = ((each - exact).norm() / exact.norm() for each in (ours, autograd))
    assert 0 < error < 1.2 * usual < 0.1
    assert is_used[0] is not None


def test_labels_of_a_single_token(is_used):
    check([batch((([0, 7, 2], [2]), ([0, 8, 9, 2], [2])))])


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"attn_implementation": "sdpa"}, "sdpa"),
        ({"encoder_layerdrop": 0.5}, "LayerDrop"),
        ({"activation_function": "tanh"}, "tanh"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_other_barts_are_computed_by_transformers(config, kind, is_used):
    check([batch()], **config)
    assert is_used == [None]


def test_a_frozen_weight_is_left_to_transformers(is_used):
    model = bart()
    model.model.encoder.layers[0].fc1.weight.requires_grad_(False)
    values, _ = found(model, TrainingLoss(), [batch()])
    assert is_used == [None] and values[0][0] > 0
    assert model.model.encoder.layers[0].fc1.weight.grad is None


def test_a_model_outside_of_a_training_is_left_to_transformers(is_used):
    loss, _ = TrainingLoss()(bart(), batch())
    assert is_used == [None] and loss.requires_grad


def test_one_line_says_that_a_model_is_not_known(caplog, is_used):
    bart_gradients._say_once.cache_clear()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            TrainingLoss()(bart(activation_function="tanh"), batch())
    (line,) = (record.message for record in caplog.records)
    assert line.startswith("bart: trained with Transformers' own layers")


def test_a_second_derivative_is_refused(is_used):
    model = bart()
    Weights(model, False)
    loss, _ = TrainingLoss()(model, batch())
    (gradient,) = torch.autograd.grad(
        loss, model.lm_head.weight, create_graph=True, allow_unused=True
    )
    assert gradient is None
