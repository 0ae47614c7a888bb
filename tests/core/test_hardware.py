"""Precision, attention and micro-batches are chosen from the machine, and settable."""

from __future__ import annotations

import os

import pytest
import torch

from maskpolicy.core import hardware
from maskpolicy.experiment.budgets import Training, resolve_auto


def test_nothing_is_left_open():
    found = resolve_auto(Training())
    assert found.precision in ("fp32", "bf16")
    assert found.attention in ("eager", "sdpa")
    assert found.micro_tokens > 0
    assert resolve_auto(found) == found


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
@pytest.mark.parametrize(
    ("flags", "precision"), [({"avx2"}, "fp32"), ({"avx512_bf16", "avx2"}, "bf16")]
)
def test_a_cpu_computes_in_bf16_where_it_has_units_for_it(monkeypatch, flags, precision):
    monkeypatch.setattr(hardware, "cpu_flags", lambda: flags)
    found = resolve_auto(Training())
    assert (found.precision, found.attention) == (precision, "eager")


def test_cores_memory_and_gpus_of_this_machine(monkeypatch):
    assert 1 <= hardware.cores() <= (os.cpu_count() or 1)
    assert hardware.memory() > 2**28
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert hardware.gpu_names() == ["3", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert hardware.gpu_names() == []


def test_a_container_may_have_less_than_its_machine(monkeypatch):
    limits = {"cpu.max": "50000 100000", "memory.max": str(2**28)}
    monkeypatch.setattr(hardware, "_limit", limits.__getitem__)
    assert (hardware.cores(), hardware.memory()) == (1, 2**28)
    monkeypatch.setattr(hardware, "_limit", {"cpu.max": "max 100000", "memory.max": "max"}.get)
    assert hardware.memory() > 2**28
