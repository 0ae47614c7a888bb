"""DPR's retriever files (Karpukhin et al. 2020): for each question, passages that answer it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from maskpolicy import formats
from maskpolicy.errors import DataError
from maskpolicy.evidence import occurrence
from maskpolicy.types import Example, Json

_CHUNK = 1 << 20  # characters: NQ's train file has 8 GB
_BETWEEN = " \t\r\n,"


def companions(
    name: str, beside: Sequence[Path], splits: Sequence[str] = ("train", "dev", "test")
) -> list[Path]:
    """Return biencoder-NAME-SPLIT.json of the first folder that has any of these splits."""
    for folder in beside:
        names = (f"biencoder-{name}-{split}.json" for split in splits)
        paths = (formats.existing(folder / name) for name in names)
        if found := [path for path in paths if path is not None]:
            return found
    return []


def passages(
    questions: Iterable[str], paths: Sequence[Path]
) -> Callable[[Json, Example], str | None]:
    """Return a lookup of the first positive passage that holds an answer, or None.

    Questions are compared without case, blanks and question mark. The files are read once, and
    only the wanted questions are kept.
    """
    wanted = {_plain(question) for question in questions}
    positive: dict[str, list[str]] = {}
    for path in paths:
        for number, item in enumerate(_items(path)):
            try:
                question = _plain(formats.text(item, "question"))
                if question in wanted:
                    found = formats.records(item, "positive_ctxs")
                    positive.setdefault(question, []).extend(formats.text(c, "text") for c in found)
            except DataError as error:
                raise DataError(f"{path}, row[{number}]: {error}") from error

    def find(row: Json, example: Example) -> str | None:
        found = positive.get(_plain(example.source), [])
        return next((text.strip() for text in found if occurrence(text, example.targets)), None)

    return find


def _plain(question: str) -> str:
    return " ".join(question.lower().split()).rstrip("? ")


def _items(path: Path) -> Iterator[Json]:
    """Yield the objects of a JSON list, of which one at a time is in memory."""
    decoder = json.JSONDecoder()
    try:
        with (
            formats.opened(path) as unpacked,
            io.TextIOWrapper(unpacked, encoding="utf-8-sig") as stream,
        ):
            text = stream.read(_CHUNK).lstrip()
            if not text.startswith("["):
                raise DataError(f"{path}: must hold a list of questions")
            text = text[1:].lstrip(_BETWEEN)
            while not text.startswith("]"):
                try:
                    item, end = decoder.raw_decode(text)
                except json.JSONDecodeError as error:
                    more = stream.read(max(_CHUNK, len(text)))
                    if not more:
                        raise DataError(f"{path}: not JSON: {error.msg}") from error
                    text = (text + more).lstrip(_BETWEEN)
                    continue
                if not isinstance(item, dict):
                    raise DataError(f"{path}: must hold a list of questions")
                yield item
                text = text[end:].lstrip(_BETWEEN)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
