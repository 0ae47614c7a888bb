"""Flat weights: what the module computes in, what the optimizer steps, and the way back."""

from __future__ import annotations

import pytest
import small
import torch
from transformers import AutoModelForSeq2SeqLM

from maskpolicy.training.weights import Weights


class Mixed(torch.nn.Module):
    """A matrix, a vector, a frozen matrix and a buffer."""

    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Parameter(torch.randn(3, 3), requires_grad=False)
        self.linear = torch.nn.Linear(3, 2)
        self.register_buffer("table", torch.randn(4))
        self.register_buffer("count", torch.tensor(0))


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def move(weights):
    """Take one step of the master, of a size that bf16 mostly rounds away."""
    weights.master.add_(torch.linspace(-1e-3, 1e-3, len(weights.master)))
    weights.spread()


def of_master(weights):
    parts = weights.master.split([p.numel() for p in weights.parameters])
    return dict(zip(weights.names, parts, strict=True))


@pytest.mark.parametrize("bf16", [False, True])
def test_released_weights_equal_the_master(bf16):
    model = small.bart()
    weights = Weights(model, bf16)
    move(weights)
    weights.release()
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad is None
        assert torch.equal(parameter.detach().flatten(), of_master(weights)[name])
    before = state(model)
    weights.master.zero_()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("bf16", [False, True])
def test_taking_and_releasing_changes_nothing(bf16):
    model = small.bart()
    before = state(model)
    Weights(model, bf16).release()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("bf16", [False, True])
def test_shared_embeddings_stay_shared(bf16):
    model = small.bart()
    weights = Weights(model, bf16)
    for _ in range(2):  # under training, and after it
        shared = model.model.shared.weight
        assert model.lm_head.weight is shared
        assert model.model.encoder.embed_tokens.weight is shared
        assert model.model.decoder.embed_tokens.weight is shared
        weights.release()


@pytest.mark.parametrize("bf16", [False, True])
def test_what_was_released_is_saved_and_loaded(bf16, tmp_path):
    model = small.bart()
    weights = Weights(model, bf16)
    move(weights)
    weights.release()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_bf16_computes_in_the_rounded_master():
    model = small.bart()
    weights = Weights(model, True)
    move(weights)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.bfloat16
        assert torch.equal(parameter.flatten(), of_master(weights)[name].bfloat16())


@pytest.mark.parametrize("bf16", [False, True])
def test_gradients_arrive_at_the_master_and_are_forgotten(bf16):
    module = Mixed()
    weights = Weights(module, bf16)
    for _ in range(2):
        for _ in range(2):
            module.linear(torch.ones(3, dtype=module.linear.weight.dtype)).sum().backward()
        weights.collect()
        assert weights.gradient.tolist() == [2.0] * 8
        weights.spread()


def test_vectors_have_no_weight_decay():
    weights = Weights(Mixed(), False)
    assert weights.names == ["linear.weight", "linear.bias"]
    assert (weights.decayed.numel(), weights.plain.numel()) == (6, 2)
    weights.plain.data.fill_(7)
    assert weights.master[6:].tolist() == [7, 7]


@pytest.mark.parametrize("bf16", [False, True])
def test_what_is_not_trained_comes_back_unrounded(bf16):
    module = Mixed()
    before = state(module)
    weights = Weights(module, bf16)
    move(weights)
    weights.release()
    for name in ("frozen", "table", "count"):
        assert torch.equal(module.state_dict()[name], before[name])
        assert module.state_dict()[name].dtype == before[name].dtype


def test_a_buffer_that_training_changed_stays_changed():
    module = Mixed()
    weights = Weights(module, True)
    module.table.fill_(3)
    weights.release()
    assert module.table.tolist() == [3.0] * 4


def test_another_master_can_be_loaded():
    module = Mixed()
    weights = Weights(module, True)
    other = torch.arange(8.0)
    weights.load(other)
    other.zero_()
    assert module.linear.bias.tolist() == [6.0, 7.0]
