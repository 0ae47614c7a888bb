"""A policy with its denoising objective, or several policies of which each passage draws one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError, MaskpolicyError
from maskpolicy.core.schema import at_progress
from maskpolicy.core.seeding import Streams
from maskpolicy.core.types import Denoising, Passage, Spans
from maskpolicy.experiment.policy_blocks import member_blocks
from maskpolicy.masking.selection import follows_progress, select
from maskpolicy.plugins import hooks
from maskpolicy.plugins.plugin_errors import plugin_error, plugin_name
from maskpolicy.plugins.statistics import Statistics


@dataclass(frozen=True, eq=False)
class Selection:
    """What is masked in each of n passages, and how that is written."""

    passages: list[Passage]
    spans: list[Spans]
    denoisings: list[Denoising]


@dataclass(frozen=True, eq=False)
class Masker:
    """A policy that selects, or one that draws a member for each passage.

    The leaves are the policies that select. Each has a view of the passages, with its own columns.
    """

    policy: Any
    denoising: Denoising
    members: tuple[Masker, ...] = ()
    level: int = 0  # the number of policies around this one that draw members
    statistics: Statistics | None = None  # of the corpus, for a leaf that reads them

    @classmethod
    def of(
        cls, policy: Any, denoising: Denoising, statistics: Iterable[Statistics | None] = ()
    ) -> Masker:
        """Return the masker of a policy; raises ConfigError for a member that cannot be used.

        `statistics` are those that each leaf reads.
        """
        return cls._of(policy, denoising, iter(statistics), 0)

    @classmethod
    def _of(
        cls, policy: Any, denoising: Denoising, rest: Iterator[Statistics | None], level: int
    ) -> Masker:
        members = tuple(
            cls._of(block.policy, block.denoising, rest, level + 1)
            for block in member_blocks(policy, plugin_name("policy", policy))
        )
        return cls(policy, denoising, members, level, None if members else next(rest, None))

    @property
    def leaves(self) -> tuple[Masker, ...]:
        """The policies that select, in the order of their blocks."""
        if not self.members:
            return (self,)
        return tuple(leaf for member in self.members for leaf in member.leaves)

    @property
    def follows_progress(self) -> bool:
        """Whether what is masked depends on the progress of the training."""
        return any(map(follows_progress, [self.policy, *(leaf.policy for leaf in self.leaves)]))

    def select(
        self,
        views: Sequence[Sequence[Passage]],
        items: Sequence[int],
        seed: int,
        epochs: Sequence[int],
        streams: Streams | None = None,
        progress: float = 0.0,
    ) -> Selection:
        """Return what is masked in the passages `items` in their `epochs`; see `selection.select`.

        `views` holds the same passages for each leaf. Raises ConfigError as `select` does, and for
        a drawn member that does not exist.
        """
        streams = streams or Streams()
        if not self.members:
            passages = [views[0][item] for item in items]
            given = (seed, epochs, streams, progress, self.statistics)
            spans = select(self.policy, passages, *given)
            return Selection(passages, spans, [self.denoising] * len(items))
        drawn = self._draw([views[0][item] for item in items], seed, epochs, streams, progress)
        parts, order, first = [], np.argsort(drawn, kind="stable"), 0
        for number, member in enumerate(self.members):
            at = np.flatnonzero(drawn == number).tolist()
            own = views[first : first + len(member.leaves)]
            first += len(member.leaves)
            rows, turns = [items[i] for i in at], [epochs[i] for i in at]
            parts.append(member.select(own, rows, seed, turns, streams, progress))
        return _merged(parts, np.argsort(order).tolist())

    def _draw(
        self,
        passages: Sequence[Passage],
        seed: int,
        epochs: Sequence[int],
        streams: Streams,
        progress: float,
    ) -> NDArray[np.int64]:
        policy = at_progress(self.policy, progress)
        more = dict.fromkeys(hooks.CHOOSE_MEMBER.extra(policy), progress)
        drawn = []
        for passage, epoch in zip(passages, epochs, strict=True):
            rng = streams.at(seed, epoch, passage.id, f"member {self.level}")
            try:
                number = policy.choose_member(passage, rng, **more)
            except MaskpolicyError:
                raise
            except Exception as error:
                doing = f"choose_member of passage {passage.id!r}"
                raise plugin_error("policy", policy, doing, error) from error
            if not isinstance(number, int | np.integer) or not 0 <= number < len(self.members):
                raise ConfigError(
                    f"{plugin_name('policy', policy)}, passage {passage.id!r}: choose_member must "
                    f"return a number from 0 to {len(self.members) - 1}, not {number!r:.60}"
                )
            drawn.append(int(number))
        return np.asarray(drawn, np.int64)


def _merged(parts: Sequence[Selection], back: Sequence[int]) -> Selection:
    names = ("passages", "spans", "denoisings")
    columns = [[row for part in parts for row in getattr(part, name)] for name in names]
    return Selection(*([column[i] for i in back] for column in columns))
