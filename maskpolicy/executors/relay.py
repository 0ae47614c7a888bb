"""What the workers of this machine report to the process that started them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from maskpolicy.errors import StageError
from maskpolicy.graph.nodes import Stage
from maskpolicy.graph.outcomes import Outcome, Progress, Silent

_APART = 0.5  # seconds between two reports of one stage


class Sender:
    """A worker's end of a pipe; several threads may send."""

    def __init__(self, pipe: Any) -> None:
        """Take the connection."""
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, *message: Any) -> None:
        """Send a message, unless the process that started this one has ended."""
        with suppress(OSError), self._lock:
            self._pipe.send(message)


class SentProgress(Silent):
    """A `Progress` that a worker sends to the process that started it."""

    def __init__(self, sender: Sender) -> None:
        """Take the worker's end of the pipe."""
        self._sender = sender
        self._key = ""
        self._last = 0.0

    def start(self, stage: Stage) -> None:
        """Send that a stage starts."""
        self._key, self._last = stage.key, time.monotonic()
        self._sender.send("advance", stage.key, 0, 0, "")

    def wait(self, stage: Stage) -> None:
        """Send nothing: the process that computes the stage sends its progress."""
        self._key = ""

    def advance(self, done: int, total: int, note: str) -> None:
        """Send progress in the stage of this worker, unless the last report is recent."""
        if self._key and (time.monotonic() - self._last >= _APART or done == total):
            self._last = time.monotonic()
            self._sender.send("advance", self._key, done, total, note)

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """Send the outcome of a stage that this worker computed."""
        if outcome.here:
            self._sender.send("finish", stage.key, outcome.seconds, outcome.error)


class Relayed:
    """A `Progress` that also shows what workers send, which is newer than notes in the store.

    Workers' messages come in a thread of their own.
    """

    def __init__(self, order: Iterable[Stage]) -> None:
        """Take the stages that workers may compute."""
        self._stages = {stage.key: stage for stage in order}
        self._inner: Progress = Silent()
        self._named = ""  # key of the stage that was named last
        self._lock = threading.Lock()
        self._own = ""  # key of the stage that this process computes
        self._reported: set[str] = set()  # keys of stages that workers have reported

    def watch(self, progress: Progress) -> Progress:
        """Show all reports on `progress` from now on."""
        self._inner = progress
        return self

    def receive(self, what: str, key: str, *about: Any) -> None:
        """Show the message of a worker's `SentProgress`.

        Messages of a lost worker may come when this process has taken over its stage; they are
        ignored.
        """
        stage = self._stages.get(key)
        with self._lock:
            if stage is None or key == self._own:
                return
            self._reported.add(key)
            if what == "advance":
                self._inner.elsewhere(stage, *about)
                return
            seconds, error = about
            failure = None if error is None else StageError(error)
            place = Path() if error is None else None
            self._inner.finish(stage, Outcome(stage, place, error, seconds, exception=failure))

    def start(self, stage: Stage) -> None:
        """Pass a report on."""
        self._named = stage.key
        with self._lock:
            self._own = stage.key
            self._reported.discard(stage.key)
            self._inner.start(stage)

    def wait(self, stage: Stage) -> None:
        """Pass a report on."""
        self._named = stage.key
        with self._lock:
            self._own = ""
            self._inner.wait(stage)

    def advance(self, done: int, total: int, note: str) -> None:
        """Pass a report on, unless it is an older one of a worker's stage."""
        with self._lock:
            if self._named not in self._reported:
                self._inner.advance(done, total, note)

    def elsewhere(self, stage: Stage, done: int, total: int, note: str) -> None:
        """Pass a report on, unless it is an older one of a worker's stage."""
        with self._lock:
            if stage.key not in self._reported:
                self._inner.elsewhere(stage, done, total, note)

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """Pass a report on."""
        with self._lock:
            if stage.key == self._own:
                self._own = ""
            self._inner.finish(stage, outcome)
