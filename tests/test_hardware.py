"""Precision, attention and micro-batches are chosen from the machine, and settable."""

from __future__ import annotations

import pytest
import torch

from maskpolicy import hardware
from maskpolicy.config.budgets import Training, resolve_auto


def test_what_is_set_stays():
    spec = Training(precision="bf16", attention="sdpa", micro_tokens=77)
    assert resolve_auto(spec) == spec


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


def test_flags_and_description_name_this_machine():
    assert all(flag == flag.strip() and flag for flag in hardware.cpu_flags())
    assert len(hardware.describe().splitlines()) == 1
    assert hardware.device().type in ("cpu", "cuda")
