"""Compares a backward pass of our own with autograd's, and records which models have one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from maskpolicy.models.training.optimization import Weights


def recorded(monkeypatch: Any, module: Any, name: str) -> Iterator[list[Any]]:
    """Yield a list to which each call of a function adds what it found, None for nothing."""
    of = getattr(module, name)
    models: list[Any] = []

    def recording(*given: Any) -> Any:
        models.append(None)
        models[-1] = of(*given)
        return models[-1]

    monkeypatch.setattr(module, name, recording)
    yield models
    assert models


def found(model: Any, loss: Any, given: Any, bf16: bool = False) -> tuple[Any, Any]:
    """Return (loss, units) of each micro-batch, and the gradient of all weights."""
    weights = Weights(model, bf16)
    torch.manual_seed(0)
    values = []
    for each in given:
        value, units = loss(model, each)
        (value * 0.25).backward()
        values.append((value.item(), units))
    return values, weights.collected.float()


def check_alike(ours: tuple[Any, Any], autograd: tuple[Any, Any], close: float = 1e-5) -> None:
    """Fail unless two results of `found` are alike."""
    (values, gradient), (expected, other) = ours, autograd
    assert [units for _, units in values] == [units for _, units in expected]
    one, two = ([value for value, _ in each] for each in (values, expected))
    np.testing.assert_allclose(one, two, rtol=close)
    assert gradient.abs().max() > 0.1
    assert (gradient - other).norm() < close * other.norm()
