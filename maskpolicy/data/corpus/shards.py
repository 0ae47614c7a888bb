"""Divide a large corpus into shards that stages compute separately, and merge their passages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from maskpolicy.core import ragged
from maskpolicy.core.errors import DataError
from maskpolicy.core.files import json_bytes, link, read_json
from maskpolicy.core.ragged import Ragged, Rows
from maskpolicy.data.corpus.annotation import BATCH
from maskpolicy.data.corpus.documents import FilePart, ShardSource, prefixes, shard
from maskpolicy.data.corpus.passages import FILES, INDEX_FILE, PASSAGES_FILE, open_arrays
from maskpolicy.data.datafiles import readers
from maskpolicy.data.datafiles import rows as cuts
from maskpolicy.data.datafiles.rows import WHOLE, Cut, Malformed, Part, Unit
from maskpolicy.experiment.definition import CorpusBlock

MALFORMED_FILE = "malformed.json"
_MEGABYTE = 1_000_000
_MOST = 256  # shards: a training keeps the file of each open
CutFile: TypeAlias = Callable[[Path, int, Unit], Sequence[Cut]]
"""cut(file, size, unit) returns the cuts of a file, as `cuts.scan` does."""
Piece: TypeAlias = tuple[FilePart, str, int]
"""A file or a part of it, its path, and its bytes."""


def shards(
    corpus: CorpusBlock, digest: Callable[[Path], str], cut: CutFile
) -> list[tuple[ShardSource, CorpusBlock]]:
    """Return the shards of a corpus of files, in order, each with a block of its files.

    A shard has about `corpus.shard_mb` of consecutive files or parts of files, or more if there
    would be over 256 shards. A file that cannot be cut lies in one shard. A small corpus, or one
    with a `limit`, has no shards.
    """
    if not corpus.files or not corpus.shard_mb or corpus.limit:
        return []
    total = sum(map(_weight, map(Path, corpus.files)))
    size = max(math.ceil(corpus.shard_mb * _MEGABYTE), math.ceil(total / _MOST))
    pieces: list[Piece] = []
    for path, prefix in zip(map(Path, corpus.files), prefixes(corpus), strict=True):
        parts = list(_parts(path, size, cut))  # this pass over the file also computes its digest
        sha256 = digest(path)
        for part, weight in parts:
            named = FilePart(name=path.name, sha256=sha256, prefix=prefix, part=part)
            pieces.append((named, str(path), weight))
    while len(groups := list(_grouped(pieces, size))) > _MOST:
        size = math.ceil(size * 1.25)  # files and row groups do not add up to `size`
    return [
        (
            shard(corpus, (part for part, *_ in group)),
            replace(corpus, files=tuple(path for _, path, _ in group)),
        )
        for group in (groups if len(groups) > 1 else ())
    ]


def _weight(path: Path) -> int:
    """Return the bytes of a file; for a Parquet file, those of its uncompressed rows."""
    if readers.unit(path.name) == "group":
        return sum(weight for _, weight in cuts.row_groups(path, 1))
    return path.stat().st_size


def _parts(path: Path, size: int, cut: CutFile) -> Iterator[tuple[Part, int]]:
    """Yield the parts of a file, none much larger than `size`, and their bytes."""
    unit, total = readers.unit(path.name), path.stat().st_size
    if unit == "group":
        yield from cuts.row_groups(path, size)
    elif unit is None or total <= size:
        yield WHOLE, total
    else:
        step = math.ceil(total / math.ceil(total / size))  # all parts have about the same size
        for part in cuts.parts(cut(path, step, unit)):
            yield part, (total if part.end is None else part.end) - part.begin


def _grouped(pieces: Sequence[Piece], size: int) -> Iterator[list[Piece]]:
    """Yield groups of consecutive pieces of at most `size` bytes, or of one larger piece."""
    group: list[Piece] = []
    weight = 0
    for piece in pieces:
        if group and weight + piece[2] > size:
            yield group
            group, weight = [], 0
        group.append(piece)
        weight += piece[2]
    yield group


def save_malformed(
    malformed: Malformed, source: ShardSource, corpus: CorpusBlock, folder: Path
) -> None:
    """Write the number of skipped rows of a shard, and the messages of the first ones.

    The prefix of a file's ids replaces its path, because paths must not change the bytes.
    """
    pairs = zip(corpus.files, source.files, strict=True)
    names = {f"{path}, ": part.prefix for path, part in pairs}
    first = [
        [names[path], message.removeprefix(path)]
        for message in malformed.first
        for path in names
        if message.startswith(path)
    ]
    record = {"count": malformed.count, "first": first}
    (folder / MALFORMED_FILE).write_bytes(json_bytes(record))


def gather_malformed(malformed: Malformed, corpus: CorpusBlock, folders: Sequence[Path]) -> None:
    """Add the malformed rows of a corpus's shards to `malformed`.

    Raises DataError for the first one unless they are skipped: another run may have made the shard.
    """
    paths = dict(zip(prefixes(corpus), corpus.files, strict=True))
    for folder in folders:
        record = read_json(folder / MALFORMED_FILE)
        for name, rest in record["first"]:
            malformed.take(f"{paths[name]}, {rest}")
        malformed.count += record["count"] - len(record["first"])


def merge(folders: Sequence[Path], out: Path) -> Mapping[str, Rows]:
    """Make one artifact of the passages files in `folders`, and return its arrays.

    Files are linked, or copied where links are impossible. A shard may have no passages. Raises
    DataError if a shard lacks a column, or has it in another shape than the first shard.
    """
    files: dict[str, int] = {}
    first: dict[str, Ragged] = {}
    for number, folder in enumerate(folders):
        arrays = ragged.load(folder / PASSAGES_FILE)
        if arrays:
            first = first or arrays
            _check(arrays, first, sum(files.values()))
            name = f"{number:05d}.safetensors"
            link(folder / PASSAGES_FILE, out / name)
            files[name] = len(next(iter(arrays.values())))
    (out / INDEX_FILE).write_bytes(json_bytes({FILES: files}))
    return open_arrays(out) if files else {}


def _check(arrays: Mapping[str, Ragged], first: Mapping[str, Ragged], before: int) -> None:
    """Raise DataError if the columns of a shard are not those of the first one."""
    if arrays.keys() != first.keys():
        odd = sorted(arrays.keys() ^ first.keys())[0]
        raise DataError(f"column {odd!r} is missing for some passages, e.g. around {before}")
    for name, array in arrays.items():
        ragged.check_alike(name, before, array.flat, first[name].flat)


def share(total: int, number: int, count: int) -> slice:
    """Return the passages of `total` that shard `number` of `count` annotates.

    They are whole batches: a policy that annotates all passages sees the same as without shards.
    """
    batches = math.ceil(total / BATCH)
    begin, end = (batches * at // count * BATCH for at in (number, number + 1))
    return slice(begin, min(end, total))
