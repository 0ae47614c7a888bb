"""Precision, attention and micro-batches are chosen from the machine, and settable."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is about glibc")
def test_freed_memory_is_kept_until_it_is_returned():
    program = """
import resource
import torch
from maskpolicy import hardware

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        [torch.empty(16 * 2**20, dtype=torch.uint8).fill_(1) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

torch.set_num_threads(1)
usual = faults()
hardware.keep_freed_memory()
faults()
kept, before = faults(), resident()
hardware.return_freed_memory()
print(usual, kept, before - resident())
"""
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    usual, kept, returned = map(int, found.stdout.split())
    assert kept < usual / 10
    assert returned > 50 * 2**20
