"""Call a policy's `select` with a stream seeded by (seed, epoch, passage); validate the spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from maskpolicy.core.errors import ConfigError, MaskpolicyError
from maskpolicy.core.schema import at_progress, scheduled_fields
from maskpolicy.core.seeding import Streams
from maskpolicy.core.types import Passage, Policy, Spans
from maskpolicy.plugins import hooks
from maskpolicy.plugins.plugin_errors import plugin_error, plugin_name, statistics_for
from maskpolicy.plugins.statistics import Statistics

_SPANS = {(2, (2,), True)}  # number of dimensions, size of the last one, integer or not


def follows_progress(policy: Any) -> bool:
    """Return whether what a policy masks or draws depends on the progress of the training."""
    extra = hooks.SELECT.extra(policy) | hooks.CHOOSE_MEMBER.extra(policy)
    return bool(scheduled_fields(policy)) or "progress" in extra


def select(
    policy: Policy,
    passages: Sequence[Passage],
    seed: int,
    epochs: Sequence[int],
    streams: Streams | None = None,
    progress: float = 0.0,
    statistics: Statistics | None = None,
) -> list[Spans]:
    """Return the spans that `policy` masks in each passage, validated as one batch.

    `progress` is the share of the training that is done, in [0, 1), and `statistics` those of the
    corpus, for a policy that reads them. Pass `streams` to reuse them over batches. Raises
    PluginError with the policy and the passage if a user's `select` fails, and ConfigError if the
    spans are not an integer array of shape (n, 2) with sorted, disjoint, non-empty ranges within
    the passage.
    """
    streams = streams or Streams()
    spans: list[Spans] = []
    more: dict[str, Any] = statistics_for(hooks.SELECT, policy, statistics)
    if "progress" in hooks.SELECT.extra(policy):
        more["progress"] = progress
    now = at_progress(policy, progress)
    for passage, epoch in zip(passages, epochs, strict=True):
        rng = streams.at(seed, epoch, passage.id)
        try:
            spans.append(now.select(passage, rng, **more))
        except MaskpolicyError:
            raise
        except Exception as error:
            doing = f"select of passage {passage.id!r}"
            raise plugin_error("policy", policy, doing, error) from error
    check(spans, passages, policy)
    return spans


def unrepeatable(policy: Policy) -> ConfigError:
    """Return the error for a policy whose `select` gives different spans for equal arguments."""
    return ConfigError(
        f"{plugin_name('policy', policy)}: `select` masks other tokens when it is called again "
        "with the same passage and rng: draw from `rng` alone, not from NumPy's or Python's global "
        "generator, and keep no state"
    )


def check(batch: Sequence[Spans], passages: Sequence[Passage], policy: Policy) -> None:
    """Raise ConfigError with the policy's name unless each array of token spans is valid."""
    if not batch:
        return
    if not _are_spans(batch):
        for spans, passage in zip(batch, passages, strict=True):
            if not _are_spans([spans]):
                raise _wrong(policy, passage, _what(spans))
    flat = np.concatenate(batch)
    counts = np.asarray([len(spans) for spans in batch])
    limit = np.repeat([len(passage.tokens) for passage in passages], counts)
    begin, end = flat.T
    follows = np.zeros(len(flat) + 1, bool)
    follows[1:-1] = begin[1:] < end[:-1]
    follows[counts.cumsum()] = False  # the first span of the next passage
    empty, outside = begin >= end, (begin < 0) | (end > limit)
    if not (empty | outside | follows[:-1]).any():
        return
    owner = counts.cumsum()
    for what, bad in (
        ("hold an empty or reversed range", empty),
        ("leave the passage", outside),
        ("overlap or are not sorted", follows[:-1]),
    ):
        if bad.any():
            at = int(np.searchsorted(owner, np.argmax(bad), side="right"))
            raise _wrong(policy, passages[at], what)


def _are_spans(batch: Sequence[Any]) -> bool:
    if {type(spans) for spans in batch} != {np.ndarray}:
        return False
    return {(spans.ndim, spans.shape[-1:], spans.dtype.kind in "iu") for spans in batch} == _SPANS


def _what(spans: Any) -> str:
    if not isinstance(spans, np.ndarray) or spans.ndim != 2 or spans.shape[1] != 2:
        shape = getattr(spans, "shape", type(spans).__name__)
        return f"are not an array of shape (n, 2) but {shape}"
    return f"are not integers but {spans.dtype}"


def _wrong(policy: Policy, passage: Passage, what: str) -> ConfigError:
    return ConfigError(
        f"{plugin_name('policy', policy)}, passage {passage.id!r} of {len(passage.tokens)} tokens: "
        f"its spans {what}; select must return sorted, disjoint, non-empty token ranges (n, 2)"
    )
