"""Dev carved from train, where a task has no official one: by groups, alike in every file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

SEED = 0


def carve(groups: Iterable[str], share: float, seed: int = SEED) -> set[str]:
    """Return the groups that belong to dev: those whose seeded hash is below `share`.

    So a group falls on the same side in every file. Of two groups or more, each side gets one.
    """
    ranks = {group: _rank(group, seed) for group in groups}
    if len(ranks) < 2:
        return set()
    ordered = sorted(ranks, key=ranks.__getitem__)
    below = sum(rank < share for rank in ranks.values())
    return set(ordered[: min(max(below, 1), len(ordered) - 1)])


def _rank(group: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed}:{group}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
