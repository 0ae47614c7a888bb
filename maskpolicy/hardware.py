"""What this machine can do, and the precision and attention chosen from it."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy.config import Training

if TYPE_CHECKING:
    import torch


def device() -> torch.device:
    """Return the accelerator if there is one, else the CPU."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def resolve(spec: Training) -> Training:
    """Replace "auto" in `spec` by what suits this machine.

    bf16 where matrix units compute in it (2 to 4 times fp32 on such a CPU); eager attention on a
    CPU, where the backward of scaled-dot-product attention is the slowest kernel of all at the
    lengths of passages (docs/log.md), sdpa elsewhere.
    """
    import torch

    where = device()
    if where.type == "cuda":
        native = torch.cuda.is_bf16_supported()
    else:
        native = bool(cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"})
    if spec.precision == "auto":
        spec = replace(spec, precision="bf16" if native else "fp32")
    if spec.attention == "auto":
        spec = replace(spec, attention="eager" if where.type == "cpu" else "sdpa")
    if not spec.micro_tokens:
        spec = replace(spec, micro_tokens=4096 if where.type == "cpu" else 32768)
    return spec


def cpu_flags() -> set[str]:
    """Return the instruction sets that the processor names (Linux; elsewhere none)."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return set()
    for line in info.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()


def describe() -> str:
    """Return one line that names the machine: device, cores, memory."""
    import torch

    where = device()
    if where.type == "cuda":
        card = torch.cuda.get_device_properties(where)
        return f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
    return f"{_cpu_name()}, {torch.get_num_threads()} threads"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
