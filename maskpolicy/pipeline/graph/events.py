"""The events of a run, and the outcome of each stage."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

from filelock import FileLock, Timeout

from maskpolicy.core.keys import digest
from maskpolicy.core.types import Json
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.plugins.isolation import code_digest

_DIGITS = 16  # of a plan's digest
_INTERVAL = 12.0  # seconds between two lines of progress of one stage in a file


@dataclass(frozen=True)
class Outcome:
    """The outcome of a stage.

    A hit was in the store when the run began. An outcome without artifact and error was not needed,
    because everything that would use it exists. `seconds` is the time of the computation, which may
    be an earlier one, with all attempts.
    """

    stage: Stage
    artifact: Path | None = None  # its folder; verified for a target and a stage computed here
    error: str | None = None  # one line
    seconds: float = 0.0
    hit: bool = False
    exception: Exception | None = field(default=None, repr=False)  # of the stage that failed
    here: bool = False  # whether this run has computed it, or tried to


@dataclass(frozen=True)
class Event:
    """A stage waits for another command, has started, has advanced, or is finished.

    `finished` comes once for each stage, which was found, computed, failed, or not run.
    """

    what: Literal["waits", "started", "advanced", "finished"]
    stage: Stage
    done: int = 0  # units, e.g. steps
    total: int = 0  # 0: unknown
    note: str = ""
    outcome: Outcome | None = None  # of a finished stage


Listener: TypeAlias = Callable[[Event], None]
"""Receives the events of a run, in the thread that runs it."""


def silent(event: Event) -> None:
    """Ignore an event."""


def plan_digest(order: Iterable[Stage]) -> str:
    """Return a short digest of a plan's keys and of the files of its plugins.

    Keys hold digests of policies and tasks, but not of metrics, which such a file may also define.
    """
    stages = list(order)
    files = {Path(file) for stage in stages for file in stage.local.plugins}
    plugins = sorted(code_digest(file) for file in files if file.is_file())
    return digest([sorted(stage.key for stage in stages), plugins])[:_DIGITS]


@contextmanager
def recorded(path: Path, listener: Listener) -> Iterator[Listener]:
    """Yield a listener that also writes events to a file of JSON lines, which `status` reads.

    A lock beside the file shows that the run continues. A second run of the same plan writes events
    once the first has ended, and a run with a read-only store none.
    """
    lock = FileLock(f"{path}.lock", fallback_to_soft=False, thread_local=False)
    author = {"host": platform.node(), "pid": os.getpid()}
    latest: dict[str, float] = {}

    def take_file() -> None:
        with suppress(OSError, Timeout):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=False)
            path.write_text("")

    def listen(event: Event) -> None:
        listener(event)
        now, outcome = time.monotonic(), event.outcome
        if event.what == "advanced" and now - latest.get(event.stage.key, 0.0) < _INTERVAL:
            return
        latest[event.stage.key] = now
        if not lock.is_locked:
            take_file()
        is_unknown = outcome is not None and not outcome.here  # the stage was found or not run
        if is_unknown or not lock.is_locked:
            return
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **author}
        line |= {"what": event.what, "key": event.stage.key, "stage": event.stage.name}
        if outcome is None:
            line |= {"done": event.done, "total": event.total, "note": event.note}
        else:
            line["error"] = outcome.error
        with suppress(OSError), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    take_file()
    try:
        yield listen
    finally:
        lock.release()


def read_events(path: Path) -> tuple[list[dict[str, Json]], bool]:
    """Return the lines of a file of events, and whether the run that writes them continues."""
    lines: list[dict[str, Json]] = []
    with suppress(OSError):
        for text in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # an unfinished line
                lines.append(json.loads(text))
        try:
            with FileLock(f"{path}.lock", timeout=0, fallback_to_soft=False):
                return lines, False
        except Timeout:
            return lines, True
    return lines, False
