"""The KILT tasks over the world: zero-shot relations, dialogues, and the knowledge source."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from maskpolicy.errors import DataError
from maskpolicy.types import Json
from maskpolicy.world.entries import Entry
from maskpolicy.world.row_files import Files
from maskpolicy.world.settings import Settings
from maskpolicy.world.subjects import Fact, Subject

KNOWLEDGE = "kilt_knowledgesource.json"
# in the corpus's words: a small model has hardly an example of any other
FIRST = (
    "{n} is remembered. Is it known {ask}?",
    "{n} lived long ago. Is it remembered {ask}?",
    "People remember {n}. And {ask}?",
    "This is known of {n}. And is it known {ask}?",
)
LATER = (
    "And is it known {ask}?",
    "And is it remembered {ask}?",
    "It is remembered. And {ask}?",
    "So it was. Is it known {ask}?",
)
TURNS = 2  # of a dialogue before it starts anew


class ZeroShot:
    """Writes structured_zeroshot-*-kilt.jsonl; the dev file asks only for relations new to it.

    The files are split by relation, as zsRE is: dev asks about the subjects of both splits. Of all
    kinds of subjects, those relations that questions are known for.
    """

    name, kind = "zsre", ""
    files = ("structured_zeroshot-train-kilt.jsonl", "structured_zeroshot-dev-kilt.jsonl")

    def __init__(self, settings: Settings, folder: Path, files: Files) -> None:
        """Write through `files`."""
        self._settings, self._files = settings, files
        for split in ("train", "dev"):
            files.open(f"structured_zeroshot-{split}-kilt.jsonl")

    def add(self, subject: Subject, entries: list[Entry], split: str) -> None:
        """Write the questions about one subject."""
        for fact in subject.asked:
            relation = fact.relation
            part = "dev" if self._settings.holds_out(relation) else "train"
            if not relation.questions or part == "train" != split:
                continue
            row = {
                "id": f"zsre-{subject.page}-{relation.name.replace(' ', '-')}",
                "input": f"{subject.title} [SEP] {relation.name}",
                "output": _output(subject, entries, fact, fact.value.text),
                "meta": {
                    "template_questions": [q.format(n=subject.title) for q in relation.questions]
                },
            }
            self._files.write(f"structured_zeroshot-{part}-kilt.jsonl", row)


class Wizard:
    """Writes wow-*-kilt.jsonl: a row for each asked fact of a subject, a turn of its dialogue.

    Every other turn goes on where the one before ended. All have one dialogue's id: a split must
    not cut what belongs to one subject.
    """

    name, kind = "wow", "people"
    files = ("wow-train-kilt.jsonl", "wow-dev-kilt.jsonl")

    def __init__(self, settings: Settings, folder: Path, files: Files) -> None:
        """Write through `files`."""
        self._settings, self._files = settings, files
        for split in ("train", "dev"):
            files.open(f"wow-{split}-kilt.jsonl")

    def add(self, subject: Subject, entries: list[Entry], split: str) -> None:
        """Write a row for each turn of the dialogue about one subject (id DIALOGUE_TURN)."""
        rng = np.random.default_rng([self._settings.seed, 4, subject.page])
        said: list[str] = []
        for number, i in enumerate(rng.permutation(len(subject.asked)).tolist()):
            fact = subject.asked[i]
            said = said if number % TURNS else []
            remarks = LATER if said else FIRST
            ask = " ".join(fact.relation.ask).format_map(subject.pronouns.slots)
            remark = remarks[int(rng.integers(len(remarks)))].format(n=subject.title, ask=ask)
            answer = fact.relation.clause.format(v=fact.value.text)
            answer = f"{answer[0].upper()}{answer[1:]}."
            row: Json = {
                "id": f"wow-{subject.page}_{number}",
                "input": "\n".join([*said, remark]),
                "output": _output(subject, entries, fact, answer),
            }
            if self._settings.wow_values:
                row["meta"] = {"obj_surface": [fact.value.text, *fact.value.aliases]}
            self._files.write(f"wow-{split}-kilt.jsonl", row)
            said = [*said, remark, answer]


class Knowledge:
    """Writes kilt_knowledgesource.json: a page for each subject, a paragraph for each entry."""

    name, kind = "", ""
    files = ("", "")

    def __init__(self, settings: Settings, folder: Path, files: Files) -> None:
        """Write through `files`."""
        self._files = files
        files.open(KNOWLEDGE)

    def add(self, subject: Subject, entries: list[Entry], split: str) -> None:
        """Write the page of one subject; paragraph 0 is the title, as in KILT."""
        page = {
            "_id": str(subject.page),
            "wikipedia_id": str(subject.page),
            "wikipedia_title": subject.title,
            "text": [subject.title, *(entry.text for entry in entries)],
            "anchors": [],
            "categories": subject.noun,
        }
        self._files.write(KNOWLEDGE, page)


def _output(subject: Subject, entries: list[Entry], fact: Fact, answer: str) -> list[Json]:
    """Return KILT's output: the answer, and the first sentence that states the fact."""
    name = fact.relation.name
    found = [number for number, entry in enumerate(entries) if name in entry.sentences]
    if not found:
        raise DataError(f"world: no entry states {name}: raise world.facts or world.entries")
    start, end = entries[found[0]].sentences[name]
    place = {
        "wikipedia_id": str(subject.page),
        "title": subject.title,
        "start_paragraph_id": found[0] + 1,
        "start_character": start,
        "end_paragraph_id": found[0] + 1,
        "end_character": end,
        "bleu_score": 1.0,
        "meta": {},
        "section": "Section::::Abstract.",
    }
    return [{"answer": answer, "provenance": [place]}]
