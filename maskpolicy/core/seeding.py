"""Random generators seeded by passage, epoch and purpose, and equal for all policies."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Any

import numpy as np

_WORDS = Struct("<2Q").unpack  # of a key


def generator(seed: int, epoch: int, passage: str, purpose: str = "") -> np.random.Generator:
    """Return the generator of one passage in one epoch, which is the same for all policies."""
    key = np.frombuffer(_key(seed, epoch, passage, purpose), "<u8")
    return np.random.Generator(np.random.Philox(key=key))


def _key(seed: int, epoch: int, passage: str, purpose: str) -> bytes:
    text = f"{seed}/{epoch}/{purpose}/{passage}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16).digest()


class Streams:
    """Returns the generators of many passages, one at a time; faster, as it reuses one object."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._start: Any = self._bits.state  # words of a key are set faster from a tuple
        self._generator = np.random.Generator(self._bits)

    def at(self, seed: int, epoch: int, passage: str, purpose: str = "") -> np.random.Generator:
        """Return a generator that draws as that of `generator`; valid until the next call."""
        self._start["state"]["key"] = _WORDS(_key(seed, epoch, passage, purpose))
        self._bits.state = self._start
        return self._generator
