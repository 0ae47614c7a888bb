"""Lists of arrays of unequal length, in memory-mapped safetensors files."""

from __future__ import annotations

import json
import math
import mmap
import shutil
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import DataError

_TYPES = {"I32": np.int32, "I64": np.int64, "U8": np.uint8, "F32": np.float32, "F64": np.float64}
_CODES = {np.dtype(dtype): code for code, dtype in _TYPES.items()}
TYPES = tuple(map(str, _CODES))  # names of the dtypes that can be stored
_COPIED = 1 << 20  # bytes in a buffer


class Rows(Sequence[NDArray[Any]]):
    """A list of arrays that differ only in their first dimension."""

    @property
    @abstractmethod
    def lengths(self) -> NDArray[np.int64]:
        """The first dimension of each array, shape (n,)."""

    @abstractmethod
    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Return the arrays with these indices, in this order, as a copy."""

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    @abstractmethod
    def __getitem__(self, index: int | slice) -> NDArray[Any] | Rows: ...

    def text(self, index: int) -> str:
        """Return one array of bytes as text."""
        return bytes(self[index]).decode()


class Ragged(Rows):
    """Arrays in memory, or in one file.

    `flat` holds the arrays one after the other; array i is flat[bounds[i] : bounds[i + 1]].
    """

    def __init__(self, flat: NDArray[Any], bounds: NDArray[np.int64]) -> None:
        self.flat, self.bounds = flat, bounds

    @classmethod
    def of(
        cls, rows: Iterable[NDArray[Any] | Sequence[Any]], dtype: type, width: int = 0
    ) -> Ragged:
        """Pack `rows`, each of shape (n,) or, with a width, (n, width)."""
        arrays: list[NDArray[Any]] = [np.asarray(row, dtype) for row in rows]
        flat = np.concatenate(arrays) if arrays else np.zeros(0, dtype)
        lengths = np.asarray([len(array) for array in arrays], np.int64)
        return cls.cut(flat.reshape((-1, width) if width else (-1,)), lengths)

    @classmethod
    def of_arrays(cls, rows: Sequence[NDArray[Any]]) -> Ragged:
        """Pack arrays that agree in type and in every dimension but the first."""
        first = rows[0] if rows else np.zeros(0, np.int32)
        return cls.of(rows, first.dtype.type, first.shape[1] if first.ndim > 1 else 0)

    @classmethod
    def cut(cls, flat: NDArray[Any], lengths: NDArray[np.int64]) -> Ragged:
        """Cut an array into rows of these lengths."""
        bounds = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=bounds[1:])
        return cls(flat, bounds)

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Return the arrays with these indices, in this order, as a copy."""
        lengths = self.lengths[rows]
        taken = Ragged.cut(self.flat, lengths)
        shift = (self.bounds[rows] - taken.bounds[:-1]).repeat(lengths)
        taken.flat = self.flat.take(np.arange(len(shift)) + shift, axis=0)
        return taken

    def where(self, kept: NDArray[np.bool_]) -> Ragged:
        """Return the arrays; those for which `kept`, shape (n,), is False are empty."""
        if kept.all():
            return self
        return Ragged.cut(self.take(np.flatnonzero(kept)).flat, self.lengths * kept)

    def padded(self, value: int, width: int = 0) -> NDArray[Any]:
        """Return one row for each array, shape (n, longest, ..), padded with `value`.

        Rows have at least `width` entries. The type is int64 for integers, else float32.
        """
        inside = np.arange(max(width, self.lengths.max(initial=0))) < self.lengths[:, None]
        kind = np.float32 if self.flat.dtype.kind == "f" else np.int64
        table = np.full((*inside.shape, *self.flat.shape[1:]), value, kind)
        table[inside] = self.flat[self.bounds[0] : self.bounds[-1]]
        return table

    @property
    def inside(self) -> NDArray[np.bool_]:
        """The mask of the elements of `padded` that are not padding, shape (n, longest)."""
        lengths = self.lengths
        return np.arange(lengths.max(initial=0)) < lengths[:, None]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The first dimension of each array, shape (n,)."""
        return self.bounds[1:] - self.bounds[:-1]  # a third of the time of np.diff

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Ragged: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | Ragged:
        if isinstance(index, slice):
            places = _places(index, len(self))
            return Ragged(self.flat, self.bounds[places.start : places.stop + 1])
        place = range(len(self))[index]
        return self.flat[self.bounds[place] : self.bounds[place + 1]]


class Joined(Rows):
    """Arrays in several files, read as one list without copying them.

    All arrays are read with the dtype of the first part.
    """

    def __init__(self, parts: Sequence[Ragged]) -> None:
        """Join one or more parts."""
        self.parts = parts
        self._starts = [0, *accumulate(map(len, parts))]
        self._dtype = parts[0].flat.dtype

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The first dimension of each array, shape (n,)."""
        return np.concatenate([part.lengths for part in self.parts])

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Return the arrays with these indices, in this order, as a copy."""
        arrays = [self[index] for index in rows.tolist()]
        flat = np.concatenate([self.parts[0].flat[:0], *arrays])
        return Ragged.cut(flat, np.asarray([len(array) for array in arrays], np.int64))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Joined: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | Joined:
        if isinstance(index, slice):
            places = _places(index, len(self))
            bounds = zip(self.parts, self._starts, strict=False)
            return Joined(
                [
                    part[max(0, places.start - start) : max(0, places.stop - start)]
                    for part, start in bounds
                ]
            )
        place = range(len(self))[index]
        number = bisect_right(self._starts, place) - 1
        return self.parts[number][place - self._starts[number]].astype(self._dtype, copy=False)


def _places(index: slice, length: int) -> range:
    begin, end, step = index.indices(length)
    if step != 1:
        raise IndexError("rows are sliced with step 1 only")
    return range(begin, max(begin, end))


class RaggedWriter(AbstractContextManager["RaggedWriter"]):
    """Writes columns row by row to one safetensors file, in constant memory.

    Each column is first written to its own file; leaving the context without an error joins these.
    """

    def __init__(self, path: Path) -> None:
        """Prepare to write the file `path`; the first row creates it."""
        self.path = path
        self.columns: dict[str, _Column] = {}

    def append(self, row: Mapping[str, NDArray[Any]]) -> None:
        """Append one array to each column; the first row decides names, dtypes and shapes.

        Raises DataError for an array of another shape, or of a dtype that cannot be stored.
        """
        if not self.columns:
            self.columns = {
                name: _Column(name, self.path.with_name(f"{self.path.name}.{index}"), value)
                for index, (name, value) in enumerate(row.items())
            }
        for name, column in self.columns.items():
            column.append(row[name])

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for column in self.columns.values():
            column.flat.close()
            column.bounds.close()
        if kind is None:
            self._join()

    def _join(self) -> None:
        parts: list[tuple[str, np.dtype[Any], list[int], Path]] = []
        for name, column in self.columns.items():
            shape = [column.total, *column.first.shape[1:]]
            parts.append((name, column.first.dtype, shape, Path(column.flat.name)))
            bounds = [column.rows + 1]
            parts.append((f"{name}.bounds", np.dtype(np.int64), bounds, Path(column.bounds.name)))
        parts.sort(key=lambda part: (-part[1].itemsize, part[0]))  # aligns each of them
        header, end = {}, 0
        for name, dtype, shape, _ in parts:
            begin, end = end, end + math.prod(shape) * dtype.itemsize
            facts = {"dtype": _CODES[dtype], "shape": shape, "data_offsets": [begin, end]}
            header[name] = facts
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        with self.path.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for *_, path in parts:
                with path.open("rb") as part:
                    shutil.copyfileobj(part, file, _COPIED)
                path.unlink()


class _Column:
    """A column on disk: its arrays are in one file, and their bounds in another."""

    def __init__(self, name: str, path: Path, first: NDArray[Any]) -> None:
        if first.dtype not in _CODES:
            kinds = ", ".join(TYPES)
            raise DataError(f"column {name!r}: its arrays are {first.dtype}, not one of {kinds}")
        self.name, self.first = name, first[:0].copy()
        self.rows = self.total = 0
        self.flat = path.with_name(f"{path.name}.flat").open("wb", _COPIED)
        self.bounds = path.with_name(f"{path.name}.bounds").open("wb", _COPIED)
        self.bounds.write(bytes(8))

    def append(self, value: NDArray[Any]) -> None:
        check_alike(self.name, self.rows, value, self.first)
        self.flat.write(np.ascontiguousarray(value, self.first.dtype).tobytes())
        self.rows += 1
        self.total += len(value)
        self.bounds.write(self.total.to_bytes(8, "little"))


def check_alike(column: str, row: int, value: NDArray[Any], first: NDArray[Any]) -> None:
    """Raise DataError for an array of another shape than the first, or numbers it cannot hold."""
    if value.shape[1:] != first.shape[1:]:
        what = "shape"
        shown = [f"({', '.join(('n', *map(str, each.shape[1:])))})" for each in (value, first)]
    elif value.size and not np.can_cast(value.dtype, first.dtype, "same_kind"):
        what, shown = "type", [str(value.dtype), str(first.dtype)]
    else:
        return
    raise DataError(
        f"column {column!r}, row {row}: its array has the {what} {shown[0]}, and the first one has "
        f"{shown[1]}: make all of them alike"
    )


def load(path: Path) -> dict[str, Ragged]:
    """Map the columns of a file into memory, which reads them when they are used."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)

    def array(name: str) -> NDArray[Any]:
        facts = header[name]
        if facts["dtype"] not in _TYPES:
            raise DataError(f"{path}: {name} has the unexpected type {facts['dtype']}")
        begin, end = facts["data_offsets"]
        dtype = np.dtype(_TYPES[facts["dtype"]])
        flat = np.frombuffer(data, dtype, (end - begin) // dtype.itemsize, 8 + size + begin)
        return flat.reshape(facts["shape"])

    names = [name for name in header if f"{name}.bounds" in header]
    return {name: Ragged(array(name), array(f"{name}.bounds")) for name in names}
