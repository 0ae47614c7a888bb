"""A marker in the command's store: workers on other hosts check that they use the same store.

It is a claim on a random key, which no stage has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex

from maskpolicy.errors import ConfigError
from maskpolicy.store.artifacts import Store


@contextmanager
def hold_marker(store: Store) -> Iterator[str]:
    """Hold a claim on a random key until the block ends, and yield the key."""
    key = token_hex(32)
    with store.lock(key):
        yield key


def check_marker(marker: str | None, store: Store) -> None:
    """Raise ConfigError if a worker's store lacks the marker of the command (None: no check)."""
    if marker is not None and store.holder(marker) is None:
        raise ConfigError(
            f"the store {store.place} is another one on this host: put it on a file system that "
            "all hosts share, or in a bucket (--store s3://..)"
        )
