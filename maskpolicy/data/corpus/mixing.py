"""Mix passages of other texts into a corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.files import json_bytes, link, read_json
from maskpolicy.core.ragged import RaggedWriter, Rows
from maskpolicy.core.seeding import generator
from maskpolicy.data.corpus.passages import (
    COLUMNS,
    FILES,
    INDEX_FILE,
    LANGUAGE,
    PASSAGES_FILE,
    open_arrays,
)


@dataclass(frozen=True)
class TextShare:
    """The share of one text in the passages of a mixed corpus."""

    name: str  # of the text; its passages are the input "mix-NAME"
    share: float


def mix(
    corpus: Path,
    texts: Mapping[str, Path],
    shares: Sequence[TextShare],
    seed: int,
    out: Path,
    progress: Callable[[int, int, str], None] = lambda done, total, note: None,
) -> None:
    """Write the passages of a corpus, followed by passages drawn from other texts.

    The files of the corpus are linked. Passages are drawn without replacement; a text with too few
    is repeated as a whole, and only the rest is drawn. The ids of drawn passages begin with the
    name of their text. Columns that one of the texts lacks are left out, but not the languages.
    """
    before, files = open_arrays(corpus), _linked(corpus, out)
    opened = {each.name: open_arrays(texts[each.name]) for each in shares}
    columns = [name for name in before if all(name in arrays for arrays in opened.values())]
    if LANGUAGE not in columns and any(LANGUAGE in each for each in (before, *opened.values())):
        columns.append(LANGUAGE)
    counts = drawn_counts(len(before["tokens"]), shares)
    total, done = sum(counts.values()), 0
    for each in shares:
        name = f"{len(files):05d}.safetensors"
        with RaggedWriter(out / name) as file:
            for row in _rows(opened[each.name], each.name, counts[each.name], columns, seed):
                file.append(row)
                done += 1
                if done % 1000 == 0 or done == total:
                    progress(done, total, "passages drawn")
        files[name] = counts[each.name]
    (out / INDEX_FILE).write_bytes(json_bytes({FILES: files, COLUMNS: columns}))


def drawn_counts(passages: int, shares: Sequence[TextShare]) -> dict[str, int]:
    """Return the number of passages that each text adds to a corpus of `passages`, at least one."""
    whole = passages / (1 - sum(each.share for each in shares))
    return {each.name: max(1, round(each.share * whole)) for each in shares}


def _linked(corpus: Path, out: Path) -> dict[str, int]:
    """Link the files of a corpus, and return the number of passages in each."""
    if not (corpus / INDEX_FILE).exists():
        name = "00000.safetensors"
        link(corpus / PASSAGES_FILE, out / name)
        return {name: len(open_arrays(corpus)["tokens"])}
    counts: dict[str, int] = read_json(corpus / INDEX_FILE)[FILES]
    for name in counts:
        link(corpus / name, out / name)
    return counts


def _rows(
    arrays: Mapping[str, Rows], name: str, count: int, columns: Sequence[str], seed: int
) -> Iterator[dict[str, NDArray[Any]]]:
    for epoch, place in _places(len(arrays["tokens"]), count, generator(seed, 0, name, "mix")):
        again = f"/{epoch + 1}" if epoch else ""
        ids = f"{name}/{arrays['ids'].text(place)}{again}"
        rest = {each: arrays[each][place] for each in columns if each != "ids" and each in arrays}
        yield {"ids": np.frombuffer(ids.encode(), np.uint8), **rest}


def _places(passages: int, count: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Yield (epoch, index) of each drawn passage, in the order of the text in each epoch."""
    epochs, rest = divmod(count, passages)
    for epoch in range(epochs):
        yield from ((epoch, place) for place in range(passages))
    drawn = np.sort(rng.choice(passages, rest, replace=False, shuffle=False))
    yield from ((epochs, place) for place in drawn.tolist())
