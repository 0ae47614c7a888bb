"""Notes in the store by which processes inform each other: failures, deaths, and progress."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from maskpolicy.errors import ConfigError, DataError, MaskpolicyError, StageError, cause
from maskpolicy.graph.nodes import Stage
from maskpolicy.graph.outcomes import Outcome
from maskpolicy.store.artifacts import Store
from maskpolicy.store.holders import Holder
from maskpolicy.types import Json
from maskpolicy.version import VERSION

_ERRORS: dict[str, type[MaskpolicyError]] = {
    kind.__name__: kind for kind in (ConfigError, DataError, StageError)
}
_INTERVAL = 12.0  # seconds between two notes of progress
MOST_DEATHS = 3  # of processes at one stage, one after another without a new checkpoint


def _author() -> dict[str, Json]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host": platform.node(), "pid": os.getpid(), "time": now, "version": VERSION}


def note_failure(store: Store, stage: Stage, error: Exception) -> None:
    """Write a note that a stage failed, so that other processes do not try it."""
    kinds = (kind.__name__ for kind in (ConfigError, DataError) if isinstance(error, kind))
    note = {"stage": stage.name, "error": cause(error), "kind": next(kinds, StageError.__name__)}
    store.failures.write(stage.key, note | _author())


def noted_failure(store: Store, stage: Stage) -> Outcome | None:
    """Return the failure that another process noted, or None.

    A note of another version of maskpolicy does not count. The time of a note is never read: it is
    for people, and the clocks of machines differ.
    """
    note = store.failures.read(stage.key)
    if note is None or note.get("version") != VERSION:
        return None
    error = str(note.get("error"))
    kind = _ERRORS.get(str(note.get("kind")), StageError)
    return Outcome(stage, error=error, exception=kind(error))


def count_death(store: Store, stage: Stage) -> StageError | None:
    """Count the process that held a stage before this one, if it died; returns an error, or None.

    The caller holds the stage. The error says that too many processes died one after another: the
    stage may need more memory than there is. A process that was stopped for longer than its lease
    counts as dead.
    """
    former = store.former_holder(stage.key)
    if former is None:
        return None
    step = max(store.checkpoints(stage.key).steps(), default=0)
    note = store.deaths.read(stage.key) or {}
    deaths, before = (_number(note.get(name)) for name in ("deaths", "step"))
    deaths = 1 if step > before else deaths + 1
    known = {"stage": stage.name, "deaths": deaths, "step": step}
    store.deaths.write(stage.key, known | _author())
    if deaths < MOST_DEATHS:
        return None
    return StageError(
        f"{deaths} processes died in it one after another, the last one on {former.host} (process "
        f"{former.pid}): if memory ran out, give each process more, or lower micro_tokens; then "
        "run it again"
    )


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0


def forgive(store: Store, stages: Iterable[Stage]) -> None:
    """Remove the notes of failures and deaths of these stages, so that they are tried again."""
    keys = {stage.key for stage in stages}
    for notes in (store.failures, store.deaths):
        for key in notes.keys() & keys:
            notes.remove(key)


def noted_progress(
    store: Store, stage: Stage, holder: Holder | None = None
) -> tuple[int, int, str] | None:
    """Return done, total and text of a stage's last note of progress, or None.

    With `holder`, a note of another process does not count: a dead one may have left it.
    """
    known = store.progress.read(stage.key)
    if known is None:
        return None
    if holder is not None and (known.get("host"), known.get("pid")) != (holder.host, holder.pid):
        return None
    try:
        return int(known["done"]), int(known["total"]), str(known["note"])
    except (KeyError, TypeError, ValueError):  # of another version
        return None


class ProgressNotes:
    """Writes notes of the progress of one stage, at most one in 12 seconds."""

    def __init__(self, store: Store, stage: Stage) -> None:
        """Take the stage; nothing is written yet."""
        self._store = store
        self._stage = stage
        self._last = time.monotonic()
        self._is_written = False

    def advance(self, done: int, total: int, note: str) -> None:
        """Write a note that `done` of `total` units are finished, unless the last is recent."""
        if time.monotonic() - self._last < _INTERVAL:
            return
        known = {"stage": self._stage.name, "done": done, "total": total, "note": note}
        self._store.progress.write(self._stage.key, known | _author())
        self._last = time.monotonic()
        self._is_written = True

    def end(self) -> None:
        """Remove the note."""
        if self._is_written:
            self._store.progress.remove(self._stage.key)
