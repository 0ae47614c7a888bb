"""The loss of a BART in training and its gradients equal those of Transformers' own modules."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import small
import torch
from gradients import check_alike, found, recorded

from maskpolicy.models import bart_gradients
from maskpolicy.models import training_loss as losses
from maskpolicy.models.text_to_text_loss import token_loss, training_loss
from maskpolicy.training.batching import Pair, Pairs, collate

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


def check(given, **config):
    ours = found(bart(**config), training_loss(), given)
    check_alike(ours, found(bart(**config), token_loss, given))


@pytest.fixture(autouse=True)
def is_used(monkeypatch):
    """What `bart_gradients` found for the models of the test: None if Transformers computes."""
    yield from recorded(monkeypatch, bart_gradients, "bart_gradients")


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

    (values, gradient), (expected, autograd) = biased(training_loss()), biased(token_loss)
    assert values[0] == pytest.approx(expected[0], rel=1e-5)
    assert (gradient - autograd).norm() < 1e-5 * autograd.norm()
    assert is_used[0].bias is not None


def test_bf16_is_as_near_to_fp32_as_autograd_is(is_used):
    given = [batch()]
    _, exact = found(bart(), token_loss, given)
    _, ours = found(bart(), training_loss(), given, bf16=True)
    _, autograd = found(bart(), token_loss, given, bf16=True)
    error, usual = ((each - exact).norm() / exact.norm() for each in (ours, autograd))
    assert 0 < error < 1.2 * usual < 0.1
    assert is_used[0] is not None


def test_labels_of_a_single_token(is_used):
    check([batch((([0, 7, 2], [2]), ([0, 8, 9, 2], [2])))])


@pytest.mark.parametrize(
    "config",
    [
        {"attn_implementation": "sdpa"},
        {"encoder_layerdrop": 0.5},
        {"activation_function": "tanh"},
    ],
    ids=lambda config: " ".join(config),
)
def test_other_barts_are_computed_by_transformers(config, is_used):
    check([batch()], **config)
    assert is_used == [None]


def test_a_frozen_weight_is_left_to_transformers(is_used):
    model = bart()
    model.model.encoder.layers[0].fc1.weight.requires_grad_(False)
    values, _ = found(model, training_loss(), [batch()])
    assert is_used == [None] and values[0][0] > 0
    assert model.model.encoder.layers[0].fc1.weight.grad is None


def test_a_model_outside_of_a_training_is_left_to_transformers(is_used):
    loss, _ = training_loss()(bart(), batch())
    assert is_used == [None] and loss.requires_grad


def test_one_line_says_that_a_model_is_not_known(caplog, is_used):
    losses._say_once.cache_clear()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            training_loss()(bart(activation_function="tanh"), batch())
    (line,) = (record.message for record in caplog.records)
    assert line.startswith("bart: trained with Transformers' own layers")
