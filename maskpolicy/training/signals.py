"""A signal that ends the process waits for the end of a training step, to save a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HANDLED = (signal.SIGUSR2,)  # Slurm's notice, if submitit handles it


@contextmanager
def deferred(enabled: bool = True) -> Iterator[Callable[[], bool]]:
    """Keep the first signal that would end this process until the block ends; a second one acts.

    Yields a function that returns True once a signal has come. The signal is then handled as it
    would have been without the block. Signals are not kept outside the main thread, or unless
    `enabled`.
    """
    came: list[int] = []
    before = _handlers() if enabled else {}

    def keep(number: int, frame: object) -> None:
        if came:
            _restore(before)
            signal.raise_signal(number)
        came.append(number)

    for number in before:
        signal.signal(number, keep)
    try:
        yield lambda: bool(came)
    finally:
        _restore(before)
        if came:
            signal.raise_signal(came[0])


def _handlers() -> dict[int, signal._HANDLER]:
    """Return this process's handlers of the signals that end it, by number."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    known = {number: signal.getsignal(number) for number in (*_ENDING, *_HANDLED)}
    return {
        number: handler
        for number, handler in known.items()
        if callable(handler) or (number in _ENDING and handler == signal.SIG_DFL)
    }


def _restore(handlers: dict[int, signal._HANDLER]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
