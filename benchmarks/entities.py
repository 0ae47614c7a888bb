"""F1 of the built-in entity rules against a trained spaCy pipeline, by label, on real text.

`python -m benchmarks.entities PIPELINE FILE ..` prints the tables of docs/policies.md. A line of a
file is a paragraph; each file gives about `--words` words, in paragraphs spread over all of it.
"""

from __future__ import annotations

import argparse
import gzip
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.measure import one_line_of_error
from maskpolicy.core import markdown
from maskpolicy.data.corpus.spacy_pipelines import Labelled, find_entities

SAME = {  # labels of OntoNotes that the rules have one label for
    **dict.fromkeys(("PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "EVENT"), "NAME"),
    **dict.fromkeys(("WORK_OF_ART", "LAW", "LANGUAGE"), "NAME"),
    **dict.fromkeys(("CARDINAL", "ORDINAL", "QUANTITY", "PERCENT", "MONEY"), "NUMBER"),
    **{"DATE": "DATE", "TIME": "TIME"},
}
_SHORTEST = 8  # words of a paragraph; a shorter one is a heading
_TOKENISED = (  # WikiText's blanks, taken back
    (r" @(.)@ ", r"\1"),
    (r" ([,.;:!?)\]%]|'s\b|n't\b)", r"\1"),
    (r"([(\[]) ", r"\1"),
    (r'" ([^"]*) "', r'"\1"'),
)


def paragraphs(file: Path, words: int) -> list[str]:
    """Return paragraphs of a text file, plain or gzipped, of about so many words in all."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        texts = [line.strip() for line in lines if len(line.split()) >= _SHORTEST]
    if any(" @-@ " in text for text in texts):
        texts = [_joined(text) for text in texts]
    total = sum(len(text.split()) for text in texts)
    return texts[:: max(1, round(total / words))]


def _joined(text: str) -> str:
    for pattern, new in _TOKENISED:
        text = re.sub(pattern, new, text)
    return text


def compared(theirs: Iterable[Labelled], ours: Iterable[Labelled]) -> Counter[tuple[str, str]]:
    """Count the spans by label: ("theirs", label), ("ours", label), and how many agree.

    "exact" and "near" (they overlap) are the pipeline's spans that a span of the rules with the
    same label agrees with, by the pipeline's label; "right" and "close" are those of the rules.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for true, found in zip(theirs, ours, strict=True):
        renamed = [(start, end, SAME[label]) for start, end, label in true]
        for (*_, label), span in zip(true, renamed, strict=True):
            counts["theirs", label] += 1
            counts["exact", label] += span in found
            counts["near", label] += any(_overlap(span, other) for other in found)
        for span in found:
            counts["ours", span[2]] += 1
            counts["right", span[2]] += span in renamed
            counts["close", span[2]] += any(_overlap(span, other) for other in renamed)
    return counts


def _overlap(one: tuple[int, int, str], other: tuple[int, int, str]) -> bool:
    return one[2] == other[2] and one[0] < other[1] and other[0] < one[1]


def tables(counts: Counter[tuple[str, str]]) -> str:
    """Return F1 by label of the rules, and recall by label of the pipeline, in percent."""
    by_rule, by_label = [], []
    for name in dict.fromkeys(SAME.values()):
        labels = [label for label in SAME if SAME[label] == name]
        total = sum(counts["theirs", label] for label in labels)
        cells = [name, f"{total:,}", f"{counts['ours', name]:,}"]
        for of_them, of_us in (("exact", "right"), ("near", "close")):
            recall = sum(counts[of_them, label] for label in labels) / max(1, total)
            precision = counts[of_us, name] / max(1, counts["ours", name])
            f1 = 2 * precision * recall / max(1e-9, precision + recall)
            cells += [f"{100 * value:.0f}" for value in (precision, recall, f1)]
        by_rule.append(cells)
        for label in labels:
            if total := counts["theirs", label]:
                shares = [f"{100 * counts[each, label] / total:.0f}" for each in ("exact", "near")]
                by_label.append([label, f"{total:,}", *shares])
    heads = ["label", "pipeline", "rules", "precision", "recall", "F1"]
    heads += [f"{head} (overlap)" for head in heads[3:]]
    found = ["pipeline's label", "spans", "found exactly", "overlapped"]
    return f"{markdown.table(heads, by_rule)}\n\n{markdown.table(found, by_label)}"


def report(pipeline: str, files: Sequence[Path], words: int) -> Iterator[str]:
    """Yield lines about text and speed, then the tables."""
    texts = [text for file in files for text in paragraphs(file, words)]
    total, found, seconds = sum(len(text.split()) for text in texts), [], []
    for name in (pipeline, None):
        list(find_entities(texts[:1], name))  # loads what is needed
        begun = time.process_time()
        found.append(list(find_entities(texts, name)))
        seconds.append(time.process_time() - begun)
    speeds = [f"{total / each:,.0f}" for each in seconds]
    yield (
        f"{total:,} words in {len(texts):,} paragraphs of {len(files)} files. Words per CPU "
        f"second: {pipeline} {speeds[0]}, rules {speeds[1]}.\n"
    )
    yield tables(compared(*found))


@one_line_of_error()
def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--words", type=int, default=5000, help="of each file, about")
    asked = parser.parse_args()
    for part in report(asked.pipeline, asked.files, asked.words):
        print(part)


if __name__ == "__main__":
    main()
