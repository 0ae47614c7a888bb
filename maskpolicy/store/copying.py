"""Copy artifacts between stores, so that several people can combine their results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from maskpolicy.errors import StoreError
from maskpolicy.store import manifest
from maskpolicy.store.artifacts import Store


@dataclass
class Copied:
    """What a copy has done; keys of artifacts."""

    new: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)  # in the source
    missing: list[str] = field(default_factory=list)  # not in the source
    different: dict[str, list[str]] = field(default_factory=dict)  # the files that differ, by key


def copy(
    source: Store,
    target: Store,
    keys: Collection[str] | None = None,
    track: Callable[[Sequence[str]], Iterable[str]] = iter,
) -> Copied:
    """Copy the artifacts of `keys` (default: all) that `target` lacks, with their manifests.

    Each artifact is committed by itself, so a copy can be interrupted and repeated. Artifacts that
    both stores have are compared by the digests in their manifests. Nothing is claimed or changed
    in `source`. An artifact in `target` that lacks files is replaced. `track` wraps the keys, and
    may show how many of them are done. Raises StoreError if a store cannot be used.
    """
    if source.place == target.place:
        raise StoreError(f"store {source.place}: cannot be copied to itself: name two stores")
    there, done = source.committed(), target.committed()
    wanted = sorted(there if keys is None else set(keys))
    copied = Copied()
    for key in track(wanted):
        new_copies = [store for store in (source, target) if not store.path(key).exists()]
        if key not in there:
            if source.recall(key) is None:  # otherwise it was dropped after use
                copied.missing.append(key)
        elif key in done and (two := target.peek(key)) is not None:
            one = source.peek(key)
            if one and (names := manifest.differences(one, two)):
                copied.different[key] = names
        else:
            try:
                if (artifact := source.read(key)) is not None:
                    target.adopt(artifact)
                    copied.new.append(key)
            except manifest.Damaged:
                if source.has(key):  # otherwise it was dropped meanwhile
                    copied.damaged.append(key)
        for store in new_copies:
            store.evict(key)
    return copied
