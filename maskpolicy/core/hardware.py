"""The machine: its GPUs, CPU, memory and name, and the end of its processes."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

Function = TypeVar("Function", bound=Callable[..., Any])

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>
_SMALL = 1.5 * 2**30  # bytes of a process that trains a small model
_OBJECTS = 50_000  # new objects between two garbage collections
_LARGE = 32 << 20  # bytes; larger arrays are always returned, against fragmentation


def device() -> torch.device:
    """Return the accelerator if there is one, else the CPU."""
    import torch

    return torch.device("cuda" if is_cuda() else "cpu")


def gpus() -> int:
    """Return the number of GPUs that this process may use."""
    if not is_cuda():
        return 0
    import torch

    return torch.cuda.device_count()


def is_cuda() -> bool:
    """Return whether PyTorch has a GPU; without a driver, PyTorch is not loaded."""
    if not may_have_gpus():
        return False
    import torch

    return torch.cuda.is_available()


def gpu_in_use() -> str | None:
    """Return the name of the GPU that this process has computed with, or None; loads nothing."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return str(torch.cuda.get_device_name())


def free_gpu_memory() -> int:
    """Return the bytes of the GPU's memory that no tensor and no other process has."""
    import torch

    kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return int(torch.cuda.mem_get_info()[0] + kept)


def ran_out(error: Exception) -> bool:
    """Return whether an error means that a GPU or the CPU has no memory left."""
    import torch
    from accelerate.utils.memory import should_reduce_batch_size

    if isinstance(error, MemoryError | torch.OutOfMemoryError) or should_reduce_batch_size(error):
        return True
    signs = ("error: out of memory", "[CUDA]: out of memory", "_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def use_expandable_segments() -> None:
    """Let PyTorch's GPU memory grow in place, against fragmentation by batches of many shapes.

    It has an effect before this process uses a GPU, and none if the user has set the variable.
    """
    if may_have_gpus() and "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def compiled(function: Function) -> Function:
    """Return a function as torch.compile makes it; without a C compiler, for example, it warns."""
    import torch
    from torch._dynamo import config

    return config.patch(suppress_errors=True)(torch.compile(function))


def may_have_gpus() -> bool:
    """Return whether a driver is installed; True if only PyTorch can tell."""
    drivers = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")  # CUDA, WSL, ROCm
    return platform.system() != "Linux" or any(Path(path).exists() for path in drivers)


def gpu_names() -> list[str]:
    """Return the names of the GPUs that this process may use, starting with its own."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(gpus())]


def small_processes() -> int:
    """Return how many processes can train a small model here: limited by cores and memory."""
    return min(cores(), int(memory() / _SMALL))


def collect_garbage_rarely() -> None:
    """Let Python collect garbage after 50,000 new objects instead of 700, for faster imports."""
    gc.set_threshold(_OBJECTS)


@cache
def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed arrays for the next ones (only glibc does).

    Otherwise it returns a megabyte or more to the system, which clears each page of the next array:
    up to 8% of a training step on a CPU (docs/development/log.md).
    """
    library = _libc()
    if library is not None:
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(_MMAP_THRESHOLD, _LARGE)


def return_freed_memory() -> None:
    """Return to the system the memory that `keep_freed_memory` has kept."""
    library = _libc()
    if library is not None:
        library.malloc_trim(0)


def _libc() -> ctypes.CDLL | None:
    if platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.CDLL(None)


def cores() -> int:
    """Return the number of cores that this process may use, within the limits of a container."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota, _, period = _limit("cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal():
        count = min(count, -(-int(quota) // int(period)))
    return max(1, count)


def memory() -> int:
    """Return the bytes of memory of this machine, or of its container if that has less."""
    count = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = _limit("memory.max")
    return min(count, int(most)) if most.isdecimal() else count


def shared_memory() -> int:
    """Return the bytes of /dev/shm, through which processes share tensors; without it, 2^40."""
    place = Path("/dev/shm")
    if not place.is_dir():
        return 2**40
    about = os.statvfs(place)
    return about.f_frsize * about.f_blocks


def _limit(name: str) -> str:
    """Return a limit of this container (cgroup v2), or "" if there is none."""
    path = Path("/sys/fs/cgroup") / name
    return path.read_text().strip() if path.is_file() else ""


def has_bf16() -> bool:
    """Return whether the GPU, or else the CPU's matrix units, compute in bf16 without emulation."""
    if not is_cuda():
        return bool(cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"})
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def cpu_flags() -> frozenset[str]:
    """Return the instruction sets of the processor (on Linux; elsewhere the set is empty)."""
    info = _cpu_info()
    return frozenset(info.get("flags", info.get("Features", "")).split())


@cache
def _cpu_info() -> dict[str, str]:
    """Return what Linux says of the first processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().partition("\n\n")[0].splitlines() if info.is_file() else []
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def describe() -> str:
    """Return one line that describes the machine: GPU and memory, or CPU and threads."""
    import torch

    where = device()
    if where.type == "cuda":
        card = torch.cuda.get_device_properties(where)
        return f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
    count = torch.get_num_threads()
    name = _cpu_info().get("model name") or platform.processor() or platform.machine()
    return f"{name}, {count} thread{'s' if count > 1 else ''}"


def end_with_parent(by: int = signal.SIGTERM, then: Callable[[], object] = lambda: None) -> None:
    """Send this process the signal `by`, and call then(), when the one that started it has ended.

    Processes of multiprocessing would otherwise outlive a parent that was killed.
    """
    threading.Thread(target=_end_with_parent, args=(by, then), daemon=True).start()


def _end_with_parent(by: int, then: Callable[[], object]) -> None:
    from multiprocessing import connection, parent_process

    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), by)
        then()
