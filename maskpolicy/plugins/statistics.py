"""Statistics of a corpus: a number for each of many keys, in sorted arrays that may lie on disk.

The records are sorted by a hash of their keys, to find a key by bisection, and to merge tables of
any size part by part: a part is a range of hashes in all tables. Two keys with the same hash are
compared by their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.ragged import Ragged

Key: TypeAlias = str | int | tuple[str | int, ...]
"""What is counted: e.g. a word, the id of a token, or several of these."""

_REMEMBERED = 100_000  # numbers to cache that were looked up one by one
_READ = 1 << 16  # records at a time
_FILES = {  # an artifact's, each an array without a header
    "hashes": ("hashes.u64", "<u8"),
    "ends": ("ends.i64", "<i8"),
    "codes": ("keys.json", "u1"),
}
_VALUES = {"i": ("values.i64", "<i8"), "f": ("values.f64", "<f8")}  # by kind of number


@dataclass(frozen=True, eq=False)
class Statistics:
    """The numbers of n keys; all other keys have the number 0, as in a Counter."""

    hashes: NDArray[np.uint64]  # (n,) of the keys, ascending
    values: NDArray[Any]  # (n,) int64 or float64
    ends: NDArray[np.int64]  # (n,) where each key ends in `codes`
    codes: NDArray[np.uint8]  # the keys as JSON, one after the other
    folder: Path | None = None  # of the artifact that holds the arrays
    _known: dict[Key, float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, numbers: Mapping[Key, float]) -> Statistics:
        """Return the statistics with these numbers, all of them whole or all of them float.

        Raises ConfigError for a key or a number of another type.
        """
        codes = [_code(key) for key in numbers]
        lengths = np.fromiter(map(len, codes), np.int64, len(codes))
        flat = np.frombuffer(b"".join(codes), np.uint8)
        hashes = np.frombuffer(b"".join(map(_digest, codes)), "<u8").astype(np.uint64)
        return _sorted(hashes, _numbers(numbers), Ragged.cut(flat, lengths))

    @classmethod
    def open(cls, folder: Path) -> Statistics:
        """Map the statistics in a folder into memory; raises DataError if it has none."""
        for name, dtype in _VALUES.values():
            if (folder / name).is_file():
                mapped = {key: _mapped(folder / file, kind) for key, (file, kind) in _FILES.items()}
                values = _mapped(folder / name, dtype)
                return cls(mapped["hashes"], values, mapped["ends"], mapped["codes"], folder)
        raise DataError(f"{folder}: holds no statistics: name the folder of a `count` artifact")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder instead of the arrays that it holds."""
        if self.folder is not None:
            return Statistics.open, (self.folder,)
        return Statistics, (self.hashes, self.values, self.ends, self.codes)

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, key: Key) -> float:
        """Return the number of a key, 0 if it has none."""
        if (known := self._known.get(key)) is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = self.numbers([key])[0].item()
        return known

    def __contains__(self, key: Key) -> bool:
        """Return whether a key has a number other than 0."""
        return self[key] != 0

    def __iter__(self) -> Iterator[Key]:
        """Yield every key, in the order of `items`."""
        return (key for key, _ in self.items())

    def numbers(self, keys: Sequence[Key]) -> NDArray[Any]:
        """Return the numbers of many keys, (n,); faster than one by one."""
        codes = [_code(key) for key in keys]
        wanted = np.frombuffer(b"".join(map(_digest, codes)), "<u8").astype(np.uint64)
        places = np.searchsorted(self.hashes, wanted)
        found = np.zeros(len(codes), self.values.dtype)
        inside = places < len(self.hashes)
        inside[inside] = self.hashes[places[inside]] == wanted[inside]
        for at in np.flatnonzero(inside).tolist():
            place = int(places[at])
            while place < len(self.hashes) and self.hashes[place] == wanted[at]:
                if self._code(place) == codes[at]:
                    found[at] = self.values[place]
                    break
                place += 1
        return found

    def items(self) -> Iterator[tuple[Key, float]]:
        """Yield every key with its number, in an order that depends on the keys alone."""
        for begin in range(0, len(self), _READ):
            values = self.values[begin : begin + _READ].tolist()
            for place, value in enumerate(values, begin):
                key = json.loads(self._code(place))
                yield tuple(key) if isinstance(key, list) else key, value

    def before(self, part: int, parts: int) -> int:
        """Return the number of records before one of `parts` equal ranges of hashes."""
        bound = (part << 64) // parts
        return int(np.searchsorted(self.hashes, np.uint64(bound))) if part < parts else len(self)

    def records(self, begin: int, end: int) -> Statistics:
        """Return the records with these places."""
        first = int(self.ends[begin - 1]) if begin else 0
        ends = np.asarray(self.ends[begin:end])
        codes = self.codes[first : int(ends[-1]) if len(ends) else first]
        return Statistics(self.hashes[begin:end], self.values[begin:end], ends - first, codes)

    def _code(self, place: int) -> bytes:
        first = int(self.ends[place - 1]) if place else 0
        return self.codes[first : int(self.ends[place])].tobytes()


class StatisticsWriter(AbstractContextManager["StatisticsWriter"]):
    """Writes tables one after the other into the files of a folder, in constant memory.

    `ends` has the number of records after each table. The tables are a `Statistics` if their hashes
    ascend.
    """

    def __init__(self, folder: Path, kind: type[np.number[Any]]) -> None:
        """Open the files in the folder, for numbers of this kind."""
        names = {**_FILES, "values": _VALUES[np.dtype(kind).kind]}
        self.files = {
            name: ((folder / file).open("wb"), dtype) for name, (file, dtype) in names.items()
        }
        self.ends, self._codes = [0], 0

    def append(self, table: Statistics) -> None:
        """Write one table."""
        for name, (file, dtype) in self.files.items():
            array = getattr(table, name)
            if name == "ends":
                array = array + self._codes
            file.write(np.ascontiguousarray(array, dtype).data)
        self.ends.append(self.ends[-1] + len(table))
        self._codes += len(table.codes)

    def __exit__(self, *_: object) -> None:
        for file, _dtype in self.files.values():
            file.close()


def _mapped(path: Path, dtype: str) -> NDArray[Any]:
    """Map an array without a header into memory."""
    if not path.stat().st_size:
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, "r")


def merged(tables: Sequence[Statistics], least: int = 1) -> Statistics:
    """Add the numbers of equal keys up; sums below `least` are left out if it is above 1."""
    lengths = np.concatenate([np.diff(table.ends, prepend=0) for table in tables])
    whole = _sorted(
        np.concatenate([table.hashes for table in tables]),
        np.concatenate([table.values for table in tables]),
        Ragged.cut(np.concatenate([table.codes for table in tables]), lengths),
    )
    if not len(whole):
        return whole
    codes = Ragged(whole.codes, np.append(np.int64(0), whole.ends))
    first = np.append(True, ~_same(whole.hashes, codes))
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(whole.values, starts)
    if least > 1:
        starts, sums = starts[sums >= least], sums[sums >= least]
    kept = codes.take(starts)
    return Statistics(whole.hashes[starts], sums, kept.bounds[1:], kept.flat)


def _sorted(hashes: NDArray[np.uint64], values: NDArray[Any], codes: Ragged) -> Statistics:
    """Return records in the order of their hashes, and of their keys where hashes are equal."""
    order = np.argsort(hashes, kind="stable")
    hashes, values, codes = hashes[order], values[order], codes.take(order)
    equal = hashes[1:] == hashes[:-1]
    clash = np.flatnonzero(equal & ~_same(hashes, codes))
    for shared in np.unique(hashes[clash]):
        begin, end = np.searchsorted(hashes, shared), np.searchsorted(hashes, shared, "right")
        rows = sorted(range(int(begin), int(end)), key=lambda row: codes[row].tobytes())
        order = np.arange(len(hashes))
        order[begin:end] = rows
        values, codes = values[order], codes.take(order)
    return Statistics(hashes, values, codes.bounds[1:], codes.flat)


def _same(hashes: NDArray[np.uint64], codes: Ragged) -> NDArray[np.bool_]:
    """Return whether each record but the first has the key of the one before it, (n - 1,)."""
    same: NDArray[np.bool_] = hashes[1:] == hashes[:-1]
    same &= codes.lengths[1:] == codes.lengths[:-1]
    pairs = np.flatnonzero(same)
    if len(pairs):
        one, other = codes.take(pairs), codes.take(pairs + 1)
        same[pairs] = np.logical_and.reduceat(one.flat == other.flat, one.bounds[:-1])
    return same


def _code(key: Key) -> bytes:
    """Return a key as JSON, which is never empty."""
    if isinstance(key, tuple):
        return f"[{','.join(map(_written, key))}]".encode()
    return _written(key).encode()


def _written(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    raise ConfigError(
        f"a key of statistics must be text, a whole number or a tuple of these, not {value!r:.60}"
    )


def _digest(code: bytes) -> bytes:
    return blake2b(code, digest_size=8).digest()


def _numbers(numbers: Mapping[Key, float]) -> NDArray[Any]:
    """Return the values of a mapping as int64 or float64; ConfigError for other types."""
    kinds = set(map(type, numbers.values()))
    for kind, wide in ((int | np.integer, np.int64), (float | np.floating, np.float64)):
        if all(issubclass(each, kind) and each is not bool for each in kinds):
            return np.fromiter(numbers.values(), wide, len(numbers))
    odd = next(
        v for v in numbers.values() if type(v) is bool or not isinstance(v, int | np.integer)
    )
    raise ConfigError(f"statistics must be whole numbers, not {odd!r:.60}")
