"""The loss of a model on data that it is not trained on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from maskpolicy import hardware
from maskpolicy.training.interfaces import Loss, Progress, Step


def held_out_losses(
    module: Any,
    loss: Loss,
    steps: Callable[[int], Step],
    count: int,
    progress: Progress = lambda done, total, note: None,
) -> tuple[list[float], list[int]]:
    """Return the summed loss and the number of units of each of the first `count` steps.

    The module must be on the device; it is in evaluation mode afterwards.
    """
    import torch

    module.eval()
    sums, units = [], []
    with torch.no_grad():
        for number in range(count):
            found = [loss(module, each.to(hardware.device())) for each in steps(number).batches]
            sums.append(float(sum(value.item() for value, _ in found)))
            units.append(sum(size for _, size in found))
            progress(number + 1, count, "")
    return sums, units
