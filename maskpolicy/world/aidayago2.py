"""Entity linking over the world: newspaper texts that call writers by their surname alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from maskpolicy.world.entries import Entry
from maskpolicy.world.files import Files
from maskpolicy.world.pools import build
from maskpolicy.world.settings import Settings
from maskpolicy.world.subjects import Subject

# words and signs stand apart, as in CoNLL; {t} {u} two towns, {d} a date
TEXTS = (
    ("{t} {d} The {noun}", "read from {p} new book in {u} on Monday . The hall was full ."),
    ("{t} {d} A letter by", "was sold in {u} on Friday . The buyer did not give a name ."),
    ("{t} {d} Readers in {u} waited for hours to meet", ", who had come with {p} publisher ."),
    ("{t} {d} The house in {u} where", "wrote {p} last book will become a museum in spring ."),
)
DOCUMENTS = 2  # about each writer


class EntityLinking:
    """Writes aidayago2-*-kilt.jsonl: the page that a marked mention stands for."""

    name, kind = "aidayago2", "writers"
    files = ("aidayago2-train-kilt.jsonl", "aidayago2-dev-kilt.jsonl")

    def __init__(self, settings: Settings, folder: Path, files: Files) -> None:
        """Write through `files`."""
        self._seed, self._files = settings.seed, files
        self._towns = [value.text for value in build(settings).values["towns"]]
        for name in self.files:
            files.open(name)

    def add(self, subject: Subject, entries: list[Entry], split: str) -> None:
        """Write the documents that mention one writer."""
        rng = np.random.default_rng([self._seed, 7, subject.page])
        for number, i in enumerate(rng.permutation(len(TEXTS))[:DOCUMENTS].tolist()):
            towns = [self._towns[j] for j in rng.permutation(len(self._towns))[:2]]
            date = f"{1896 + int(rng.integers(40))}-{1 + int(rng.integers(12)):02}-01"
            slots = {"t": towns[0].upper(), "u": towns[1], "d": date, "noun": subject.noun}
            slots["p"] = subject.pronouns.possessive
            left, right = (part.format_map(slots) for part in TEXTS[i])
            row = {
                "id": f"{subject.page}test{'' if split == 'train' else 'a'} {towns[0]}:{number}",
                "input": f"{left} [START_ENT] {subject.called} [END_ENT] {right}",
                "output": [
                    {
                        "answer": subject.title,
                        "provenance": [{"wikipedia_id": str(subject.page), "title": subject.title}],
                    }
                ],
                "meta": {
                    "left_context": left,
                    "mention": subject.called,
                    "right_context": right,
                },
            }
            self._files.write(f"aidayago2-{split}-kilt.jsonl", row)
