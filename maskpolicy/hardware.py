"""What this machine can do."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device() -> torch.device:
    """Return the accelerator if there is one, else the CPU."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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
