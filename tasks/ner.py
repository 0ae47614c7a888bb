"""Named entities in CoNLL's columns (Tjong Kim Sang and De Meulder 2003): a tag of each word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from maskpolicy import DataError, Example, Json, task

_TAG = re.compile(r"O|[BIESLU]-\S+")
_BEGINS, _DOCUMENT = "BSU", "-DOCSTART-"


@task(
    "ner",
    kind="tags",
    group="tagging",
    metric="entity_f1",
    files={split: f"{split}.{{edition}}" for split in ("train", "dev", "test")},
    editions=("txt", "conll", "valid"),
    others={"valid": {"train": "train.txt", "dev": "valid.txt", "test": "test.txt"}},
)
@dataclass(frozen=True)
class Ner:
    """One word a line, with its tag in another column, and a blank line between sentences."""

    word: int = 0  # the column of the word; -1 is the last one
    tag: int = -1  # the column of its tag: IOB1, IOB2, IOBES or BILOU
    edition: Literal["auto", "txt", "conll", "valid"] = "auto"  # of the file names

    def example(self, row: Json) -> Example | None:
        """Map a sentence; tags become IOB2. None for a line that begins a document."""
        lines = [line for line in row["text"].split("\n") if not line.startswith("# ")]
        cells = [line.split() for line in lines]
        if not cells or cells[0][0] == _DOCUMENT:
            return None
        try:
            pairs = [(line[self.word], line[self.tag]) for line in cells]
        except IndexError:
            line = min(lines, key=lambda one: len(one.split()))
            raise DataError(f"{line!r} has no column {max(self.word, self.tag)}") from None
        for word, tag in pairs:
            if not _TAG.fullmatch(tag):
                raise DataError(f"the tag {tag!r} of {word!r} is neither O nor like B-PER")
        words = " ".join(word for word, _ in pairs)
        return Example("", "", words, (" ".join(_iob2([tag for _, tag in pairs])),))


def _iob2(tags: list[str]) -> list[str]:
    """Return tags whose entities begin with B and go on with I."""
    found, before = [], "O"
    for tag in tags:
        mark, _, kind = tag.partition("-")
        begins = mark in _BEGINS or before[:1] in "OELSU" or before[2:] != kind
        found.append(tag if tag == "O" else f"{'B' if begins else 'I'}-{kind}")
        before = tag
    return found
