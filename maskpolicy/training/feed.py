"""The data of a training's steps, in smaller micro-batches once memory has run out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from typing import Any

from maskpolicy import hardware
from maskpolicy.errors import StageError
from maskpolicy.training.interfaces import Step
from maskpolicy.training.optimization import Optimization
from maskpolicy.training.prefetch import prefetch

_log = logging.getLogger(__name__)


class Feed:
    """The (number, step) pairs that a training has left."""

    def __init__(
        self, steps: Callable[[int], Step], run: Optimization, done: int, workers: int, name: str
    ) -> None:
        """Take what `loop.train` got; a resumed training keeps its smaller micro-batches."""
        self._run, self._workers, self._name = run, workers, name
        self._most = run.shrunk.get("micro_tokens", run.spec.micro_tokens)
        self._steps = _with_micro_tokens(steps, self._most) if run.shrunk else steps
        self._data = prefetch(self._steps, done, run.end, workers)

    def __iter__(self) -> Iterator[tuple[int, Step]]:
        while (found := next(self._data, None)) is not None:
            yield found

    def shrink(self, number: int) -> Step:
        """Halve micro_tokens until a step has more micro-batches, and return that step.

        All later steps have the same limit. Raises StageError if the step cannot be divided.
        """
        before, most = len(self._steps(number).batches), self._most
        while most > 1:
            most //= 2
            steps = _with_micro_tokens(self._steps, most)
            if len(steps(number).batches) > before:
                break
        else:
            raise StageError(
                f"memory ran out in step {number + 1}, whose micro-batches cannot be smaller: "
                "lower max_source, max_target or the size of the model"
            )
        if self._name:
            _log.warning(
                "%s: memory ran out in step %d: it goes on with micro_tokens=%d instead of %d",
                self._name,
                number + 1,
                most,
                self._most,
            )
        self._most, self._steps = most, steps
        self._run.shrunk = {"micro_tokens": most, "step": number + 1}
        self._data.close()  # ends the processes that computed steps ahead
        hardware.return_freed_memory()
        self._data = prefetch(steps, number, self._run.end, self._workers)
        return next(self._data)[1]


def _with_micro_tokens(steps: Callable[[int], Step], most: int) -> Callable[[int], Step]:
    """Return the same steps with at most so many padded tokens in a micro-batch."""
    divided: Any = steps
    if not is_dataclass(steps) or not hasattr(steps, "spec"):
        return steps  # e.g. a function, whose micro-batches have no such limit
    found: Callable[[int], Step] = replace(divided, spec=replace(steps.spec, micro_tokens=most))
    return found
