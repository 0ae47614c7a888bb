"""Compute the data of training steps in order, in this process or in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from maskpolicy.errors import MaskpolicyError, StageError, cause

T = TypeVar("T")
_AHEAD = 8  # steps that each worker computes in advance


def prefetch(
    made: Callable[[int], T], start: int, end: int, workers: int
) -> Generator[tuple[int, T]]:
    """Yield (number, made(number)) for `start` <= number < `end`, computed in `workers` processes.

    With 0 workers, they are computed in this process, one at a time. Raises the error of `made`;
    in a worker, errors other than MaskpolicyError become a StageError with the same line.
    """
    from torch.utils.data import DataLoader

    numbers = range(start, end)
    if not workers:
        yield from ((number, made(number)) for number in numbers)
        return
    dataset: Any = _Items(made, numbers)
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=workers, prefetch_factor=_AHEAD)
    for number, item in zip(numbers, loader, strict=True):
        if isinstance(item, MaskpolicyError):
            raise item
        yield number, item


class _Items(Sequence[T]):
    """A map-style dataset that returns errors, because the DataLoader would rewrite their lines."""

    def __init__(self, made: Callable[[int], T], numbers: range) -> None:
        self.made, self.numbers = made, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.made(self.numbers[index])
        except MaskpolicyError as error:
            return error
        except Exception as error:  # noqa: BLE001 - raised again in the training's process
            return StageError(cause(error))
