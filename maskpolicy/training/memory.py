"""Which errors say that memory ran out, and how the memory that a failed step held is released."""

from __future__ import annotations


def ran_out(error: Exception) -> bool:
    """Return whether an error says that a GPU or a CPU has no memory left."""
    import torch
    from accelerate.utils.memory import should_reduce_batch_size

    kinds = (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, kinds) or should_reduce_batch_size(error)


def release() -> None:
    """Return memory that no tensor uses any more to the device."""
    from accelerate.utils.memory import clear_device_cache

    clear_device_cache(garbage_collection=True)
