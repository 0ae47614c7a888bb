"""Inputs of like length in batches, for answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.training.interfaces import Progress

BATCH = 64


def in_batches(
    model: Any, order: NDArray[np.int64], size: int = BATCH, progress: Progress | None = None
) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of each batch: `size` of `order`, which sorts the inputs by length.

    The model is set to evaluation.
    """
    model.eval()
    for begin in range(0, len(order), size):
        yield order[begin : begin + size]
        if progress:
            progress(min(begin + size, len(order)), len(order), "")
