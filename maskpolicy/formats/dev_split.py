"""Groups of examples that stay in one split, and the dev split that is taken from train."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from maskpolicy.datafiles.fields import alike
from maskpolicy.types import Example

SEED, LIMIT_SEED = 0, 1


def linked(examples: Iterable[Example]) -> list[str]:
    """Return the group of each example: the same for examples that share a source or context."""
    texts = ([one.source, one.context] for one in examples)
    return connected([[alike(text) for text in both if text is not None] for both in texts])


def dev_groups(groups: Sequence[str], share: float, is_linked: bool) -> set[str]:
    """Return which of the examples' `groups` belong to a dev split that is carved from train.

    A linked group may be large. If it has more than `share` of the examples, it stays in train.
    """
    sizes = Counter(groups)
    large = {group for group, size in sizes.items() if size > share * len(groups)}
    return carve(sizes, share, stay=large if is_linked else set())


def connected(links: Sequence[Sequence[str]]) -> list[str]:
    """Return the group of each of `links`, a list of one or more texts.

    Two that share a text, directly or through others, have the same group. A group is named after
    its first text in alphabetical order.
    """
    parents: dict[str, str] = {}

    def root(text: str) -> str:
        while parents.setdefault(text, text) != text:
            parents[text] = parents[parents[text]]  # path halving
            text = parents[text]
        return text

    for texts in links:
        roots = sorted({root(text) for text in texts})
        for other in roots[1:]:
            parents[other] = roots[0]
    return [root(texts[0]) for texts in links]


def carve(
    groups: Iterable[str], share: float, seed: int = SEED, stay: Collection[str] = ()
) -> set[str]:
    """Return the groups that belong to dev: those whose seeded hash is below `share`.

    A group therefore falls on the same side in every file. With two groups or more, each side gets
    at least one. Groups of `stay` remain in train unless there are no others.
    """
    ranks = {group: _rank(group, seed) for group in groups}
    if len(ranks) < 2:
        return set()
    free = [group for group in ranks if group not in stay] or list(ranks)
    ordered = sorted(free, key=ranks.__getitem__)
    below = sum(ranks[group] < share for group in free)
    return set(ordered[: min(max(below, 1), len(ranks) - 1)])


def first(groups: Sequence[str], count: int) -> list[int]:
    """Return the places of `count` examples, in order: whole groups, and the first of one more.

    Groups are taken in the order of a seeded hash, so that a larger `count` adds examples and drops
    none.
    """
    ranks = {group: _rank(group, LIMIT_SEED) for group in groups}
    places = sorted(range(len(groups)), key=lambda place: (ranks[groups[place]], groups[place]))
    return sorted(places[:count])


def _rank(group: str, seed: int) -> float:
    digest = hashlib.sha256(f"{seed}:{group}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64
