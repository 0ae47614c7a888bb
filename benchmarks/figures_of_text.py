"""How texts compare as language: `python -m benchmarks.figures_of_text TEXT ..` prints a table.

A text is a file with a paragraph on each line, plain or gzipped, or settings of the world such as
`world:text=prose`: its general and intermediate corpus. Words, sentences and entities are those
that the built-in rules find. All figures are of the first `--words` words of paragraphs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, pairwise, takewhile
from math import log2
from pathlib import Path

import numpy as np
import yaml

from benchmarks.entities import paragraphs
from benchmarks.measure import one_line_of_error
from maskpolicy.core import markdown
from maskpolicy.core.errors import ConfigError
from maskpolicy.data import world
from maskpolicy.data.corpus.segmentation import segmenter
from maskpolicy.data.corpus.spacy_pipelines import find_entities

WORLD = "world:"
_RANKS = (10, 1000)  # of the words that the Zipf slope is fitted to
_TIES = 10  # a pair of words whose pointwise mutual information is above so many bits ..
_TWICE = 5  # .. and which occurs so often is a collocation


def texts(name: str) -> list[str]:
    """Return the paragraphs of a file, or the passages of a world."""
    if not name.startswith(WORLD):
        return paragraphs(Path(name), sys.maxsize)
    pairs = [pair.partition("=") for pair in name.removeprefix(WORLD).split(",") if pair]
    if lacking := [key for key, equals, _ in pairs if not equals]:
        raise ConfigError(f"{name}: {lacking[0]} has no value: write {lacking[0]}=..")
    settings = {key: value for key, _, value in pairs}
    with tempfile.TemporaryDirectory() as folder:
        world.write(
            world.make({key: yaml.safe_load(v) for key, v in settings.items()}), Path(folder)
        )
        return [
            json.loads(line)["text"]
            for corpus in ("general", "intermediate")
            for line in (Path(folder) / f"{corpus}.jsonl").read_text("utf-8").splitlines()
        ]


def figures(found: list[str], most: int) -> dict[str, str]:
    """Return the figures of a text by name."""
    sizes = list(accumulate(len(text.split()) for text in found))
    found = [
        text for text, _ in takewhile(lambda pair: pair[1] <= most, zip(found, sizes, strict=True))
    ]
    rules = segmenter()
    words = [word.lower() for text in found for word in rules.words.findall(text)]
    words = [word for word in words if word[0].isalnum()]
    counts = np.sort([*Counter(words).values()])[::-1]
    low, high = _RANKS
    kept = counts[low - 1 : high]
    if len(kept) < 2:
        raise ConfigError("too few words for a Zipf slope: give more text, or raise --words")
    ranks = np.arange(low, low + len(kept))
    slope = np.polyfit(np.log(ranks), np.log(kept), 1)[0]
    lengths = [len(sentence.split()) for text in found for sentence in _sentences(text)]
    entities = list(find_entities(found, None))
    inside = sum(
        len(text[a:b].split()) for text, own in zip(found, entities, strict=True) for a, b, _ in own
    )
    total = sum(len(text.split()) for text in found)
    return {
        "words": f"{total:,}",
        "paragraphs": f"{len(found):,}",
        "words of a paragraph, median": f"{np.median([len(text.split()) for text in found]):.0f}",
        "type-token ratio": f"{len(counts) / len(words):.3f}",
        "words that occur once, of all types": f"{(counts == 1).mean():.2f}",
        f"Zipf slope, ranks {low} to {high}": f"{slope:.2f}",
        "10 most frequent words, of all words": f"{counts[:10].sum() / len(words):.2f}",
        "words of a sentence, mean": f"{np.mean(lengths):.1f}",
        "words of a sentence, 10% and 90%": "{:.0f} and {:.0f}".format(
            *np.quantile(lengths, (0.1, 0.9))
        ),
        "entities in 100 words": f"{100 * sum(map(len, entities)) / total:.1f}",
        "words in entities": f"{inside / total:.2f}",
        "words in collocations": f"{_collocated(words):.2f}",
    }


def _sentences(text: str) -> Iterator[str]:
    starts = segmenter().sentences(text)
    yield from (text[a:b] for a, b in pairwise([*starts, len(text)]))


def _collocated(words: list[str]) -> float:
    """Return the share of words that are in a frequent pair of high mutual information."""
    single, pairs = Counter(words), Counter(pairwise(words))
    tied = {
        pair
        for pair, count in pairs.items()
        if count >= _TWICE
        and log2(count * len(words) / (single[pair[0]] * single[pair[1]])) > _TIES
    }
    places = {i + k for i, pair in enumerate(pairwise(words)) if pair in tied for k in (0, 1)}
    return len(places) / len(words)


@one_line_of_error()
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    parser.add_argument("--words", type=int, default=40_000, help="of each text")
    asked = parser.parse_args()
    columns = [figures(texts(name), asked.words) for name in asked.texts]
    rows = [[key, *(column[key] for column in columns)] for key in columns[0]]
    print(markdown.table(["", *asked.texts], rows, numbers=True))


if __name__ == "__main__":
    main()
