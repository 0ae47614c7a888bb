"""Add up a policy's counts in the batches and shards of a corpus.

Each batch becomes a sorted table (`plugins.statistics`). The tables lie on disk and are merged part
by part, so memory holds a batch and one part of all tables, whatever the size of the corpus. The
sums are whole numbers, sorted by key: their bytes do not depend on the batches and shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Passage
from maskpolicy.data.corpus.annotation import BATCH, batched, span_of
from maskpolicy.plugins import hooks
from maskpolicy.plugins.registry import policy_errors, policy_name
from maskpolicy.plugins.statistics import Key, Statistics, StatisticsWriter, merged

_CHUNK = 1 << 18  # keys of `condense` that are sorted at a time
_AT_A_TIME = 256  # passages of a batch that a policy counts in
_TOGETHER = 1 << 18  # records of a part that is merged at a time


def count(
    policy: Any,
    passages: Sequence[Passage],
    out: Path,
    before: Statistics | None = None,
    least: int = 1,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write the sums of a policy's counts in all passages into the folder `out`.

    `before` are the statistics of the previous pass. Keys whose sum is below `least` are left out.
    Raises StageError or ConfigError with the policy and the passages if `count` fails.
    """

    def tables() -> Iterator[Statistics]:
        work, total = partial(_counted, policy, before), len(passages)
        for number, table in enumerate(batched(work, passages, workers), 1):
            yield table
            progress(min(number * BATCH, total), total)

    write(tables(), out, least)


def _counted(policy: Any, before: Statistics | None, batch: Sequence[Passage]) -> Statistics:
    """Return the sums of a batch; memory holds the keys of _AT_A_TIME passages."""
    cuts = range(0, len(batch), _AT_A_TIME)
    return merged([_counted_in(policy, before, batch[a : a + _AT_A_TIME]) for a in cuts])


def _counted_in(policy: Any, before: Statistics | None, passages: Sequence[Passage]) -> Statistics:
    more, name = dict.fromkeys(hooks.COUNT.extra(policy), before), policy_name(policy)
    with policy_errors(policy, lambda: f"counting {span_of(passages)}"):
        numbers = policy.count(passages, **more)
        if not isinstance(numbers, Mapping):
            kind = type(numbers).__name__
            raise ConfigError(f"{name}: count must return a mapping of keys to numbers, not {kind}")
        table = _table(policy, "count", numbers)
    if table.values.dtype != np.int64:
        raise ConfigError(
            f"{name}: count: numbers must be whole, so that their sum is the same in any order: "
            "count in smaller units"
        )
    return table


def _table(policy: Any, method: str, numbers: Mapping[Key, float]) -> Statistics:
    """Return the numbers from a policy's method as a table; ConfigError for a wrong key."""
    try:
        return Statistics.of(numbers)
    except ConfigError as error:
        raise ConfigError(f"{policy_name(policy)}: {method}: {error}") from error


def write(
    tables: Iterable[Statistics], out: Path, least: int = 1, kind: type[np.number[Any]] = np.int64
) -> None:
    """Write the sum of tables, which have one `kind` of numbers, into `out`; one is in memory."""
    spool = out / "spool"
    spool.mkdir()
    with StatisticsWriter(spool, kind) as writer:
        for table in tables:
            writer.append(table)
    whole = Statistics.open(spool)
    merge([whole.records(begin, end) for begin, end in pairwise(writer.ends)], out, least, kind)
    rmtree(spool)


def merge(
    tables: Sequence[Statistics],
    out: Path,
    least: int = 1,
    kind: type[np.number[Any]] = np.int64,
) -> None:
    """Write the sum of tables that lie on disk into the folder `out`, part by part."""
    parts = max(1, math.ceil(sum(map(len, tables)) / _TOGETHER))
    begins = [0] * len(tables)
    with StatisticsWriter(out, kind) as writer:
        for part in range(1, parts + 1):
            ends = [table.before(part, parts) for table in tables]
            bounds = zip(tables, begins, ends, strict=True)
            held = [table.records(begin, end) for table, begin, end in bounds if begin < end]
            if held:
                writer.append(merged(held, least))
            begins = ends


def condense(policy: Any, counted: Statistics, contrast: Statistics | None, out: Path) -> None:
    """Write a policy's condensed statistics into the folder `out`.

    `contrast` are the statistics of the contrasting corpus. Raises StageError or ConfigError with
    the policy if `condense` fails.
    """
    write(_condensed(policy, counted, contrast), out, kind=np.float64)


def _condensed(
    policy: Any, counted: Statistics, contrast: Statistics | None
) -> Iterator[Statistics]:
    more = dict.fromkeys(hooks.CONDENSE.extra(policy), contrast)
    with policy_errors(policy, lambda: "condense"):
        condensed = policy.condense(counted, **more)
        pairs = iter(condensed.items() if isinstance(condensed, Mapping) else condensed)
        while chunk := dict(islice(pairs, _CHUNK)):
            yield _table(policy, "condense", {key: float(value) for key, value in chunk.items()})


def statistics_of(
    policy: Any, passages: Sequence[Passage], contrast: Sequence[Passage] = ()
) -> Statistics:
    """Return the statistics that a policy reads, of passages in memory.

    Raises ConfigError if the policy also reads other passages and `contrast` is empty.
    """
    if not contrast and "contrast" in hooks.CONDENSE.extra(policy):
        raise ConfigError(
            f"{policy_name(policy)}: compares the corpus with another one: give "
            "`contrast`, general texts"
        )
    with TemporaryDirectory() as folder:
        root = Path(folder)
        counted = _all_passes(policy, passages, root / "own", hooks.MIN_COUNT.of(policy))
        if hooks.CONDENSE.of(policy) is not None:
            other = _all_passes(policy, contrast, root / "other", 1) if contrast else None
            condense(policy, counted, other, root)
            counted = Statistics.open(root)
        return replace(counted, folder=None)  # a file that is mapped outlives its folder


def _all_passes(policy: Any, passages: Sequence[Passage], out: Path, least: int) -> Statistics:
    passes: list[Statistics | None] = [None]
    for number in range(hooks.PASSES.of(policy)):
        folder = out / str(number)
        folder.mkdir(parents=True)
        count(policy, passages, folder, passes[-1], least)
        passes.append(Statistics.open(folder))
    return passes[-1] or Statistics.of({})
