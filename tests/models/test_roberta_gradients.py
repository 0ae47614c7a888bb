"""The loss of an encoder in pre-training and its gradients equal those of Transformers' modules."""

from __future__ import annotations

from dataclasses import replace

import encoders as tiny
import numpy as np
import pytest
import torch
from gradients import check_alike, found, recorded

from maskpolicy.config.policy_blocks import AT_POSITIONS
from maskpolicy.finetuning import label, span
from maskpolicy.models import masked_lm, roberta_gradients
from maskpolicy.training.batching import IGNORE, Pair, Pairs, collate

MASK, PAD = 4, 1
MLM, MAE = AT_POSITIONS, replace(AT_POSITIONS, mask_exclusion=1.0)
DEEP = replace(AT_POSITIONS, shallow_decoder=True)
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
TEXTS = ([0, 7, MASK, 9, MASK, MASK, 2], [0, MASK, 12, 13, 2])


def batch(texts=TEXTS, how=MLM):
    """Texts of different lengths, with labels at their masks."""
    pairs = []
    for text in texts:
        ids = np.asarray(text, np.int32)
        labels = np.where(ids == MASK, 20 + np.arange(len(ids)), IGNORE).astype(np.int32)
        pairs.append(Pair(ids, labels, ids == MASK if how.mask_exclusion else None))
    return collate(Pairs.of(pairs), PAD, None)


def module_of(how=MLM, family="roberta", **settings):
    model = tiny.model(family, **settings).base_model
    module = masked_lm.training_module(model, how, 2, seed=0).train()
    module.set_attn_implementation("eager")
    with torch.no_grad():
        module.bias += torch.arange(len(module.bias)) / 50
    return module


def plain(losses):
    """The loss that autograd differentiates."""
    return losses.token_loss if losses is masked_lm else losses.loss


def check(given, *, of=module_of, losses=masked_lm, **settings):
    ours = found(of(**settings), losses.training_loss(), given)
    check_alike(ours, found(of(**settings), plain(losses), given))


@pytest.fixture
def is_used(monkeypatch):
    """What `roberta_gradients.pretraining_gradients` found for the modules of the test."""
    yield from recorded(monkeypatch, roberta_gradients, "pretraining_gradients")


@pytest.fixture
def is_used_for_tasks(monkeypatch):
    """What `roberta_gradients.task_gradients` found for the models of the test."""
    yield from recorded(monkeypatch, roberta_gradients, "task_gradients")


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dropout", [{}, DROPOUT], ids=["no dropout", "dropout"])
@pytest.mark.parametrize("how", [MLM, MAE, DEEP], ids=["MLM", "MAE-LM", "delta 1"])
def test_loss_and_gradients_are_those_of_autograd(how, dropout, activation, is_used):
    given = [batch(how=how), batch(TEXTS[:1], how)]
    check(given, how=how, hidden_act=activation, **dropout)
    assert is_used[0] is not None


@pytest.mark.parametrize(
    "config",
    [{"num_hidden_layers": 1}, {"num_attention_heads": 4}, {"type_vocab_size": 3}],
    ids=lambda config: " ".join(config),
)
def test_configurations_of_roberta(config, is_used):
    check([batch()], **config)
    assert is_used[0] is not None


def test_bf16_is_as_near_to_fp32_as_autograd_is(is_used):
    given = [batch()]
    _, exact = found(module_of(), masked_lm.token_loss, given)
    _, ours = found(module_of(), masked_lm.training_loss(), given, bf16=True)
    _, autograd = found(module_of(), masked_lm.token_loss, given, bf16=True)
    error, usual = ((each - exact).norm() / exact.norm() for each in (ours, autograd))
    assert 0 < error < 1.2 * usual < 0.1
    assert is_used[0] is not None


@pytest.mark.parametrize(
    "settings", [{"family": "bert"}, {"hidden_act": "tanh"}], ids=["BERT", "tanh"]
)
def test_other_encoders_are_computed_by_transformers(settings, is_used):
    check([batch()], **settings)
    assert is_used == [None]


def test_other_attention_is_left_to_transformers(is_used):
    module = module_of()
    module.set_attn_implementation("sdpa")
    loss, _ = masked_lm.training_loss()(module, batch())
    assert is_used == [None] and loss.requires_grad


def test_a_frozen_weight_is_left_to_transformers(is_used):
    module = module_of()
    module.encoder.encoder.layer[0].output.dense.weight.requires_grad_(False)
    values, _ = found(module, masked_lm.training_loss(), [batch()])
    assert is_used == [None] and values[0][0] > 0


def with_head(family="roberta", task=label, classes=3, **settings):
    """A model with a head for a task, as `start` makes it."""
    from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification

    auto = AutoModelForSequenceClassification if task is label else AutoModelForQuestionAnswering
    config = tiny.model(family, **settings).config
    config.num_labels = classes if task is label else 2
    torch.manual_seed(0)
    model = auto.from_config(config).train()
    model.set_attn_implementation("eager")
    return model


def examples(labels):
    """Two texts of different lengths with their labels."""
    pairs = [
        Pair(np.asarray(text, np.int32), np.asarray(own, np.int32), None)
        for text, own in zip(TEXTS, labels, strict=True)
    ]
    return collate(Pairs.of(pairs), PAD, None)


@pytest.mark.parametrize("dropout", [{}, DROPOUT], ids=["no dropout", "dropout"])
@pytest.mark.parametrize(
    ("task", "labels", "classes"),
    [(label, ([2], [0]), 3), (label, ([1.5], [0.5]), 1), (span, ([2, 4], [1, 3]), 2)],
    ids=["classes", "numbers", "spans"],
)
def test_a_task_has_the_loss_and_gradients_of_autograd(
    task, labels, classes, dropout, is_used_for_tasks
):
    given = [examples(labels)] * 2
    check(given, of=with_head, losses=task, task=task, classes=classes, **dropout)
    assert is_used_for_tasks[0] is not None


def test_a_task_of_another_encoder_is_computed_by_transformers(is_used_for_tasks):
    check([examples(([2], [0]))], of=with_head, losses=label, family="bert")
    assert is_used_for_tasks == [None]
