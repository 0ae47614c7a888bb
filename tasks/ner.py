"""Named entities in CoNLL's columns (Tjong Kim Sang and De Meulder 2003): a tag of each word."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import dropwhile
from typing import Literal

from maskpolicy import DataError, Example, Json, task

_TAG = re.compile(r"O|[BIESLU]-\S+")
_BEGINS, _DOCUMENT = "BSU", "-DOCSTART-"


@task(
    "ner",
    kind="tags",
    group="tagging",
    metric="entity_f1",
    version=4,
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
        """Map a sentence; tags become IOB2. None where only a document begins."""
        lines = list(dropwhile(self._is_no_word, row["text"].split("\n")))
        if not lines:
            return None
        cells = [_cells(line) for line in lines]
        try:
            pairs = [(line[self.word], line[self.tag]) for line in cells]
            if min(map(len, cells)) < 2:
                raise IndexError
        except IndexError:
            line = min(lines, key=lambda one: len(_cells(one)))
            raise DataError(f"{line!r} has no column {max(self.word, self.tag, 1)}") from None
        for word, tag in pairs:
            if " " in word or not word.strip():  # other blanks, as in 10 000, do not end a word
                raise DataError(f"the word {word!r} is empty or holds a blank: write _ for a blank")
            if not _TAG.fullmatch(tag):
                raise DataError(f"the tag {tag!r} of {word!r} is neither O nor like B-PER")
        words = " ".join(word for word, _ in pairs)
        return Example("", "", words, (" ".join(_iob2([tag for _, tag in pairs])),))

    def _is_no_word(self, line: str) -> bool:
        """Return whether a line before the first word begins a document or is a comment."""
        cells = _cells(line)
        has_tag = any(map(_TAG.fullmatch, cells[self.tag :][:1]))  # a comment may have few cells
        return cells[0] == _DOCUMENT or (line[:2] in ("# ", "#\t") and not has_tag)


def _cells(line: str) -> list[str]:
    """Return the cells of a line, which tabs separate, or else blanks (not no-break spaces)."""
    if "\t" in line:
        return [cell.strip(" ") for cell in line.rstrip().split("\t")]
    return [cell for cell in line.split(" ") if cell]


def _iob2(tags: list[str]) -> list[str]:
    """Return tags whose entities begin with B and go on with I."""
    found, before = [], "O"
    for tag in tags:
        mark, _, kind = tag.partition("-")
        begins = mark in _BEGINS or before[:1] in "OELSU" or before[2:] != kind
        found.append(tag if tag == "O" else f"{'B' if begins else 'I'}-{kind}")
        before = tag
    return found
