"""What happens in a run, as one stream of events, and the outcome of each stage."""

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

    A hit was in the store when the run began. An outcome without artifact and error was not
    needed, because everything that would use it exists. `seconds` is the time of the computation,
    of a hit too, earlier attempts included.
    """

    stage: Stage
    artifact: Path | None = None  # its folder; verified if the stage is a target or computed here
    error: str | None = None  # one line
    seconds: float = 0.0
    hit: bool = False
    exception: Exception | None = field(default=None, repr=False)  # of the stage that failed
    here: bool = False  # this run computed it, or tried to


@dataclass(frozen=True)
class Event:
    """Something that happened to a stage: it waits for another command, began, went on, or ended.

    `finished` comes once for each stage: found, computed, failed, or not run for an input.
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

    A lock beside the file tells that the run goes on. A second run of the same plan, or one in a
    store that cannot be written, writes none.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{path}.lock", fallback_to_soft=False, thread_local=False)
        lock.acquire(blocking=False)
        path.write_text("")
    except (OSError, Timeout):
        yield listener
        return
    author = {"host": platform.node(), "pid": os.getpid()}
    latest: dict[str, float] = {}

    def listen(event: Event) -> None:
        listener(event)
        line = _line(event)
        now = time.monotonic()
        if event.what == "advanced" and now - latest.get(event.stage.key, 0.0) < _INTERVAL:
            return
        latest[event.stage.key] = now
        if line is not None:
            clock = datetime.now(UTC).isoformat(timespec="seconds")
            with suppress(OSError), path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"time": clock, **author, **line}) + "\n")

    try:
        yield listen
    finally:
        lock.release()


def _line(event: Event) -> dict[str, Json] | None:
    """Return what a file says of an event; None for stages that were found or not run."""
    line = {"what": event.what, "key": event.stage.key, "stage": event.stage.name}
    if event.outcome is None:
        return line | {"done": event.done, "total": event.total, "note": event.note}
    if not event.outcome.here:
        return None
    return line | {"error": event.outcome.error}


def read_events(path: Path) -> tuple[list[dict[str, Json]], bool]:
    """Return the lines of a file of events, and whether the run that writes it goes on."""
    lines: list[dict[str, Json]] = []
    if not path.exists():
        return lines, False
    with suppress(OSError):
        for text in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a line that was not written to its end
                lines.append(json.loads(text))
    try:
        with FileLock(f"{path}.lock", timeout=0, fallback_to_soft=False):
            return lines, False
    except Timeout:
        return lines, True
    except OSError:
        return lines, False
