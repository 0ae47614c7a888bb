"""The cross-entropy whose gradient is made in the forward pass equals the ordinary one."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from maskpolicy.models import crossentropy


def inputs(dtype, rows=7, width=5, vocabulary=11):
    draw = torch.Generator().manual_seed(0)
    states, weight = (
        torch.randn(n, width, generator=draw).to(dtype).requires_grad_() for n in (rows, vocabulary)
    )
    bias = torch.randn(vocabulary, generator=draw).to(dtype)
    return states, weight, bias, torch.randint(vocabulary, (rows,), generator=draw)


def gradients(loss, states, weight):
    return torch.autograd.grad(loss / 3, (states, weight))


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_value_and_gradients_are_those_of_the_ordinary_way(dtype, close):
    states, weight, bias, labels = inputs(dtype)
    ours = crossentropy.summed(states, weight, bias, labels)
    plain = cross_entropy(linear(states, weight, bias).float(), labels, reduction="sum")
    assert ours.dtype == torch.float32
    assert torch.allclose(ours, plain, rtol=1e-5)
    for one, other in zip(
        gradients(ours, states, weight), gradients(plain, states, weight), strict=True
    ):
        assert one.dtype == dtype
        assert torch.allclose(one, other, rtol=close, atol=close)


def test_a_label_of_likelihood_zero_has_its_loss():
    states, weight, _, labels = inputs(torch.float32)
    bias = torch.zeros(11)
    bias[labels[0]] = -1000.0
    ours = crossentropy.summed(states, weight, bias, labels)
    plain = cross_entropy(linear(states, weight, bias), labels, reduction="sum")
    assert ours > 900 and torch.allclose(ours, plain, rtol=1e-6)
    found = gradients(ours, states, weight)
    expected = gradients(plain, states, weight)
    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(found, expected, strict=True))


def test_no_label_is_no_loss():
    states, weight, bias, labels = inputs(torch.float32, rows=0)
    loss = crossentropy.summed(states, weight, bias, labels)
    assert loss.item() == 0
    assert not gradients(loss, states, weight)[1].any()


def test_a_second_derivative_is_refused():
    states, weight, bias, labels = inputs(torch.float32)
    loss = crossentropy.summed(states, weight, bias, labels)
    (first,) = torch.autograd.grad(loss, states, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        first.sum().backward()
