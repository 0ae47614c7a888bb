"""On a CPU, losses and gradients of BART and RoBERTa equal those of Transformers' modules."""

from dataclasses import replace
from functools import partial

import encoders as tiny
import numpy as np
import pytest
import small
import torch
import transformers
from small import MASK
from torch.nn.functional import cross_entropy, linear

from maskpolicy.experiment.policy_blocks import AT_POSITIONS
from maskpolicy.models import crossentropy, encoders, text_to_text
from maskpolicy.models.cpu import backpropagation
from maskpolicy.models.finetuning.encoder_tasks import LabelTask, SpanTask
from maskpolicy.models.finetuning.tag_tasks import TagTask
from maskpolicy.models.loading import set_attention
from maskpolicy.models.text_to_text import token_loss, training_loss
from maskpolicy.models.training.batching import IGNORE
from maskpolicy.models.training.optimization import Weights

label, span, tags = LabelTask(), SpanTask(), TagTask()
SIZES = {"encoder_layers": 2, "decoder_layers": 2, "attn_implementation": "eager"}
DROPOUT = {"dropout": 0.2, "attention_dropout": 0.3, "activation_dropout": 0.1}
TEXTS = (([0, 7, MASK, 9, 10, 2], [0, 7, 8, 2]), ([0, 11, 12, MASK, 2], [0, 13, 14, 15, 16, 2]))


def batch(texts=TEXTS, excluded=False):
    """Two texts of different lengths, with padding in sources and targets."""
    return small.batch([(a, b, small.excluding(a) if excluded else None) for a, b in texts], 2)


def found(model, loss, given, bf16=False):
    """Return (loss, units) of each micro-batch, and the gradient of all weights."""
    weights = Weights(model, bf16)
    torch.manual_seed(0)
    values = []
    for each in given:
        value, units = loss(model, each)
        assert value.dtype == torch.float32
        (value * 0.25).backward()
        values.append((value.item(), units))
    return values, weights.collected.float()


def check_alike(ours, autograd, close=1e-5):
    """Fail unless two results of `found` are alike."""
    (values, gradient), (expected, other) = ours, autograd
    assert [units for _, units in values] == [units for _, units in expected]
    one, two = ([value for value, _ in each] for each in (values, expected))
    np.testing.assert_allclose(one, two, rtol=close)
    assert gradient.abs().max() > 0.1
    assert (gradient - other).norm() < close * other.norm()


def bart(**config):
    return small.bart(**(SIZES | {"init_std": 0.3} | config)).train()


def check(given, **config):
    ours = found(bart(**config), training_loss(), given)
    check_alike(ours, found(bart(**config), token_loss, given))


@pytest.fixture
def is_used(monkeypatch):
    """What was found for each model of the test: None if Transformers computes."""
    models = []

    def recording(of, *given):
        models.append(None)
        models[-1] = of(*given)
        return models[-1]

    for name in ("BartGradients", "PretrainingGradients", "TaskGradients"):
        monkeypatch.setattr(
            backpropagation, name, partial(recording, getattr(backpropagation, name))
        )
    yield models
    assert models


@pytest.mark.parametrize(
    ("activation", "dropout", "excluded"),
    [("relu", {}, True), ("gelu", {}, False), ("relu", DROPOUT, False), ("gelu", DROPOUT, True)],
)
def test_loss_and_gradients_equal_those_of_autograd(activation, dropout, excluded, is_used):
    check([batch(excluded=excluded)] * 2, activation_function=activation, **dropout)
    assert is_used[0] is not None


def test_a_bias_of_the_logits(is_used):
    def biased(loss):
        model = bart()
        model.final_logits_bias += torch.arange(model.config.vocab_size) / 50
        return found(model, loss, [batch()])

    check_alike(biased(training_loss()), biased(token_loss))
    assert is_used[0].head.bias is not None


def weighted(given):
    """The same batch, with a weight for each label."""
    weights = torch.arange(given.labels.numel()).view(given.labels.shape) / 5
    return replace(given, weights=weights)


def test_weights_of_labels(is_used):
    check([weighted(batch())] * 2)
    check_encoder([weighted(masked_batch())] * 2)
    check_encoder([weighted(masked_batch())], family="bert")
    assert [each is not None for each in is_used] == [True, True, False]


def test_transformers_computes_a_model_with_a_frozen_weight(is_used):
    model = bart()
    model.model.encoder.layers[0].fc1.weight.requires_grad_(False)
    values, _ = found(model, training_loss(), [batch()])
    assert is_used == [None] and values[0][0] > 0
    assert model.model.encoder.layers[0].fc1.weight.grad is None


MLM, MAE = AT_POSITIONS, replace(AT_POSITIONS, mask_exclusion=1.0)
DEEP = replace(AT_POSITIONS, shallow_decoder=True)
ENCODER_DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
MASKED = ([0, 7, MASK, 9, MASK, MASK, 2], [0, MASK, 12, 13, 2])


def masked_batch(texts=MASKED, how=MLM):
    """Texts of different lengths, with labels at their masks."""
    rows = []
    for text in texts:
        masks = small.excluding(text)
        labels = np.where(masks, 20 + np.arange(len(text)), IGNORE)
        rows.append((text, labels, masks if how.mask_exclusion else None))
    return small.batch(rows)


def module_of(how=MLM, family="roberta", head="new", **settings):
    model = tiny.model(family, **settings)
    model = model if head == "own" else model.base_model
    module = encoders.training_module(model, how, 2, seed=0).train()
    set_attention(module, "eager")
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if name in ("bias", "model.lm_head.bias"):
                weight += torch.arange(len(weight)) / 50
    return module


def plain(losses):
    """The loss that autograd differentiates."""
    return losses.token_loss if losses is encoders else losses.loss


def check_encoder(given, *, of=module_of, losses=encoders, **settings):
    ours = found(of(**settings), losses.training_loss(), given)
    check_alike(ours, found(of(**settings), plain(losses), given))


@pytest.mark.parametrize("head", ["own", "new"])
@pytest.mark.parametrize("dropout", [{}, ENCODER_DROPOUT], ids=["no dropout", "dropout"])
@pytest.mark.parametrize("how", [MLM, MAE, DEEP], ids=["MLM", "MAE-LM", "delta 1"])
def test_losses_and_gradients_of_an_encoder(how, dropout, head, is_used):
    given = [masked_batch(how=how), masked_batch(MASKED[:1], how)]
    check_encoder(given, how=how, hidden_act="relu" if dropout else "gelu", head=head, **dropout)
    assert is_used[0] is not None


@pytest.mark.parametrize(
    ("kind", "config", "is_ours"),
    [
        ("BART", {"scale_embedding": True}, True),
        ("BART", {"tie_word_embeddings": False}, True),
        ("BART", {"encoder_layers": 1, "decoder_layers": 3}, True),
        ("BART", {"encoder_attention_heads": 2, "decoder_attention_heads": 4}, True),
        ("BART", {"attn_implementation": "sdpa"}, False),
        ("BART", {"encoder_layerdrop": 0.5}, False),
        ("BART", {"activation_function": "tanh"}, False),
        ("encoder", {"num_hidden_layers": 1}, True),
        ("encoder", {"num_attention_heads": 4}, True),
        ("encoder", {"type_vocab_size": 3}, True),
        ("encoder", {"family": "bert"}, False),
        ("encoder", {"hidden_act": "tanh"}, False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
)
def test_configurations_that_we_or_transformers_compute(kind, config, is_ours, is_used):
    if kind == "BART":
        check([batch(), batch(TEXTS[:1])], **config)
    else:
        check_encoder([masked_batch()], **config)
    assert [each is not None for each in is_used] == [is_ours]


@pytest.mark.parametrize("kind", ["BART", "encoder"])
def test_bf16_is_as_close_to_fp32_as_autograd(kind, is_used):
    make, losses = (bart, text_to_text) if kind == "BART" else (module_of, encoders)
    given = [batch() if kind == "BART" else masked_batch()]
    _, exact = found(make(), losses.token_loss, given)
    _, ours = found(make(), losses.training_loss(), given, bf16=True)
    _, autograd = found(make(), losses.token_loss, given, bf16=True)
    error, usual = ((each - exact).norm() / exact.norm() for each in (ours, autograd))
    assert 0 < error < 1.2 * usual < 0.1
    assert is_used[0] is not None


def with_head(family="roberta", task=label, classes=3, **settings):
    """A model with a head for a task, as `start` makes it."""
    config = tiny.model(family, **settings).config
    config.num_labels = classes
    torch.manual_seed(0)
    model = getattr(transformers, task.auto_class).from_config(config).train()
    model.set_attn_implementation("eager")
    return model


def examples(labels):
    """Two texts of different lengths with their labels."""
    return small.batch([(text, own, None) for text, own in zip(MASKED, labels, strict=True)])


@pytest.mark.parametrize("dropout", [{}, ENCODER_DROPOUT], ids=["no dropout", "dropout"])
@pytest.mark.parametrize(
    ("task", "labels", "classes"),
    [
        (label, ([2], [0]), 3),
        (label, ([1.5], [0.5]), 1),
        (span, ([2, 4], [1, 3]), 2),
        (tags, ([IGNORE, 2, 0, IGNORE, 1, 0, IGNORE], [IGNORE, 1, IGNORE, 1, IGNORE]), 3),
    ],
    ids=["classes", "numbers", "spans", "tags"],
)
def test_a_task_has_the_loss_and_gradients_of_autograd(task, labels, classes, dropout, is_used):
    given = [examples(labels)] * 2
    check_encoder(given, of=with_head, losses=task, task=task, classes=classes, **dropout)
    assert is_used[0] is not None


def inputs(rows=7, width=5, vocabulary=11):
    draw = torch.Generator().manual_seed(0)
    states, weight = (
        torch.randn(n, width, generator=draw).requires_grad_() for n in (rows, vocabulary)
    )
    bias = torch.randn(vocabulary, generator=draw)
    return states, weight, bias, torch.randint(vocabulary, (rows,), generator=draw)


def gradients(loss, states, weight):
    return torch.autograd.grad(loss / 3, (states, weight))


def test_a_label_of_likelihood_zero_has_its_loss():
    states, weight, _, labels = inputs()
    bias = torch.zeros(11)
    bias[labels[0]] = -1000.0
    ours = crossentropy.summed(states, weight, bias, labels)
    plain = cross_entropy(linear(states, weight, bias), labels, reduction="sum")
    assert ours > 900 and torch.allclose(ours, plain, rtol=1e-6)
    found = gradients(ours, states, weight)
    expected = gradients(plain, states, weight)
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(found, expected, strict=True))


def test_a_second_derivative_raises():
    states, weight, bias, labels = inputs()
    loss = crossentropy.summed(states, weight, bias, labels)
    (first,) = torch.autograd.grad(loss, states, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        first.sum().backward()
