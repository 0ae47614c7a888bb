"""Annotate passages with a policy's columns, in one process or several."""

from __future__ import annotations

import logging
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, StageError
from maskpolicy.core.ragged import TYPES
from maskpolicy.core.types import Passage, unwritable
from maskpolicy.data.corpus.passages import FIXED
from maskpolicy.plugins import discovery, hooks, isolation
from maskpolicy.plugins.registry import policy_errors, policy_fault, policy_name, statistics_for
from maskpolicy.plugins.statistics import Statistics

R = TypeVar("R")
BATCH = 2048  # passages that a process annotates at a time
log = logging.getLogger(__name__)


def annotate(
    policy: Any,
    passages: Sequence[Passage],
    fitted: Path | None = None,
    workers: int = 1,
    statistics: Statistics | None = None,
) -> dict[str, list[NDArray[Any]]]:
    """Return a policy's columns, one array per passage; they do not depend on `workers`.

    `statistics` are those of the corpus, for a policy that reads them. The arrays of a column have
    the same dtype and, except for the first dimension, the same shape: spans (n, 2), scores (n,).
    Raises StageError with the passages' ids if the policy fails.
    """
    columns: dict[str, list[NDArray[Any]]] = {}
    for found in batches(policy, passages, fitted, workers, statistics=statistics):
        for name, rows in found.items():
            columns.setdefault(name, []).extend(map(unwritable, rows))
    return columns


def batches(
    policy: Any,
    passages: Sequence[Passage],
    fitted: Path | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
    statistics: Statistics | None = None,
) -> Iterator[dict[str, list[NDArray[Any]]]]:
    """Yield a policy's columns for BATCH passages at a time; see `annotate`."""
    more = statistics_for(hooks.ANNOTATE, policy, statistics)
    names: set[str] = set()
    done = 0
    for found in batched(partial(_columns, policy, fitted, more), passages, workers):
        names = names or set(found)
        for odd in sorted(found.keys() ^ names):
            raise policy_fault(policy, f"column {odd!r} is missing for some passages")
        yield found
        done = min(done + BATCH, len(passages))
        progress(done, len(passages))


def batched(
    work: Callable[[Sequence[Passage]], R], passages: Sequence[Passage], workers: int
) -> Iterator[R]:
    """Yield work(batch) for batches of BATCH passages in order, in `workers` spawned processes.

    The batches do not depend on `workers`. `work` is pickled; each process first imports the plugin
    files of this process. Without processes if it cannot be pickled, as a class made in a function.
    """
    starts = range(0, len(passages), BATCH)
    batches = ([passages[i] for i in range(s, min(s + BATCH, len(passages)))] for s in starts)
    pickled = _pickled(discovery.Carried(work)) if min(workers, len(starts)) > 1 else None
    if pickled is None:
        yield from map(work, batches)
        return
    task = partial(_remote, pickled)
    notes: set[str] = set()
    for result, said in _pooled(task, batches, min(workers, len(starts))):
        for note in said:
            if note not in notes:
                notes.add(note)
                log.info(note)
        yield result


def _pickled(work: Callable[..., Any]) -> bytes | None:
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        log.info("annotates in one process: %s", error)
        return None


def _pooled(task: Callable[[Any], R], batches: Iterator[Any], workers: int) -> Iterator[R]:
    """Yield task(batch) in order, with at most two pending batches for each process."""
    from concurrent.futures import Future, ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    waiting: deque[Future[R]] = deque()
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), hardware.end_with_parent, (signal.SIGKILL,)
    )
    try:
        for batch in batches:
            waiting.append(pool.submit(task, batch))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise StageError(
            "a process that annotates passages was killed (out of memory?): use fewer workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _remote(work: bytes, batch: Sequence[Passage]) -> tuple[Any, list[str]]:
    """Run pickled work in a worker process; return its result and maskpolicy's log messages.

    Raises ConfigError if a plugin's file has changed since the work was pickled.
    """
    compute = pickle.loads(work)
    with _noted() as notes:
        result = compute(batch)
        isolation.name_unkeyed(())
    return result, notes


@contextmanager
def _noted() -> Iterator[list[str]]:
    """Collect the messages that maskpolicy logs."""
    messages: list[str] = []
    logger, handler = logging.getLogger("maskpolicy"), logging.Handler(logging.INFO)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def span_of(batch: Sequence[Passage]) -> str:
    """Return words for the passages of a batch."""
    return f"passages {batch[0].id!r} to {batch[-1].id!r}"


def _columns(
    policy: Any, fitted: Path | None, more: Mapping[str, Any], batch: Sequence[Passage]
) -> dict[str, list[NDArray[Any]]]:
    with policy_errors(policy, lambda: f"annotating {span_of(batch)}"):
        columns: dict[str, list[NDArray[Any]]] = policy.annotate(batch, fitted, **more)
        check_columns(policy, "annotate", columns, batch)
    return columns


def check_columns(policy: Any, hook: str, columns: Any, passages: Sequence[Passage]) -> None:
    """Raise StageError unless a policy's method `hook` returned columns, an array per passage each.

    Raises ConfigError for a column with the name of an array of the corpus.
    """
    count = len(passages)
    if not isinstance(columns, dict):
        kind = type(columns).__name__
        raise policy_fault(policy, f"{hook} must return a dict of columns, not {kind}")
    if not columns:
        raise policy_fault(policy, f"{hook} returned no column: return one at least")
    for name in sorted(columns.keys() & {*FIXED, *passages[0].columns}):
        raise ConfigError(
            f"{policy_name(policy)}: its column {name!r} has the name of an array of "
            "the corpus: rename the column"
        )
    for column, rows in columns.items():
        fault = ""
        is_list = isinstance(rows, Sequence | np.ndarray)
        arrays = rows if is_list else [rows]
        strange = [row for row in arrays if not isinstance(row, np.ndarray) or not row.ndim]
        if is_list and len(rows) != count:
            fault = f"{hook} returned {len(rows)} rows of {column!r} for {count} passages: return "
            fault += "one array per passage"
        elif strange:
            fault = f"{hook}: column {column!r} must have NumPy arrays of a dimension or more, one "
            fault += f"per passage, not {type(strange[0]).__name__} {strange[0]!r:.30}"
        elif not isinstance(column, str):
            fault = f"{hook}: column {column!r}: its name must be text"
        elif count and str(kind := rows[0].dtype) not in TYPES:
            types = ", ".join(TYPES)
            fault = f"{hook}: column {column!r} has arrays of {kind}, not of {types}"
        if fault:
            raise policy_fault(policy, fault)
