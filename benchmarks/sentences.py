"""`python -m benchmarks.sentences DATA` compares sentence ends with those that a reader marked.

DATA is the folder `english` of real samples: tests/fixtures/english_sentences.jsonl names places in
its novels and news, and holds hard cases that we wrote.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.measure import one_line_of_error
from maskpolicy.core.markdown import table
from maskpolicy.data.corpus.segmentation import segmenter

FIXTURE = Path(__file__).parents[1] / "tests" / "fixtures" / "english_sentences.jsonl"
Splitting: TypeAlias = Callable[[str], list[int]]
"""Returns where the sentences of a text begin."""


def samples(data: Path | None) -> Iterator[tuple[str, str, list[int]]]:
    """Yield kind and text of each sample, and where its sentences begin; no data: hard cases."""
    for line in FIXTURE.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "text" in row:
            yield "hard cases", row["text"], row["starts"]
        elif data is not None:
            kind = "novels" if row["file"].startswith("novels") else "news"
            text = _read(data / row["file"])[row["begin"] : row["end"]].replace("\n", " ")
            yield kind, text, row["starts"]


@cache
def _read(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def counts(split: Splitting, data: Path | None) -> dict[str, Counter[str]]:
    """Count by kind of text the sentences, those found whole, and the missed and false ends."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for kind, text, starts in samples(data):
        ours, known = ({*pairwise([*each, len(text)])} for each in (split(text), starts))
        firsts, truly = ({begin for begin, _ in each} for each in (ours, known))
        found[kind].update(
            sentences=len(known),
            whole=len(ours & known),
            missed=len(truly - firsts),
            false=len(firsts - truly),
        )
    return found


def by_marks(text: str) -> list[int]:
    """End a sentence at each mark before a blank and a capital letter."""
    return [0, *(match.end() for match in re.finditer(r"[.!?][\"'”’)]*\s+(?=[\W_]*[A-Z])", text))]


@cache
def _sentencizer() -> Any:
    import spacy

    pipeline = spacy.blank("en")
    pipeline.add_pipe("sentencizer")
    return pipeline


def by_sentencizer(text: str) -> list[int]:
    """End sentences where spaCy's `sentencizer` does."""
    return [sentence.start_char for sentence in _sentencizer()(text).sents]


@one_line_of_error()
def main() -> None:
    """Print the comparison as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    given = parser.parse_args()
    splittings: dict[str, Splitting] = {
        "ours": segmenter().sentences,
        "spaCy's `sentencizer`": by_sentencizer,
        "a mark before a capital": by_marks,
    }
    rows = []
    for name, split in splittings.items():
        for kind, count in counts(split, given.data).items():
            share = f"{100 * count['whole'] / count['sentences']:.1f}%"
            rows.append([name, kind, count["sentences"], share, count["missed"], count["false"]])
    header = ["sentences end by", "text", "sentences", "found whole", "ends missed", "false ends"]
    sys.stdout.write(table(header, [[str(cell) for cell in row] for row in rows]) + "\n")


if __name__ == "__main__":
    main()
