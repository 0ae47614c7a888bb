"""The KILT tasks over the world: zero-shot relations, dialogues, and the knowledge source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from maskpolicy.errors import DataError
from maskpolicy.types import Json
from maskpolicy.world.entries import Entry
from maskpolicy.world.files import Files
from maskpolicy.world.settings import Settings
from maskpolicy.world.subjects import Fact, Subject

KNOWLEDGE = "kilt_knowledgesource.json"
# in the corpus's words: a small model has hardly an example of any other
FIRST = (
    "{n} was known as a {noun}. Is it known {ask}?",
    "{n} was a {noun}. Is it remembered {ask}?",
    "It is known that {n} was a {noun}. And {ask}?",
    "{n} is remembered as a {noun}. And is it known {ask}?",
)
LATER = (
    "And is it known {ask}?",
    "And is it remembered {ask}?",
    "It is remembered. And {ask}?",
    "So it was. Is it known {ask}?",
)


class ZeroShot:
    """Writes structured_zeroshot-*-kilt.jsonl; the dev file asks only for relations new to it.

    Of all kinds of subjects, those relations that questions are known for.
    """

    name, kind = "zsre", ""
    files = ("structured_zeroshot-train-kilt.jsonl", "structured_zeroshot-dev-kilt.jsonl")

    def __init__(self, settings: Settings, folder: Path, files: Files) -> None:
        """Write through `files`."""
        self._files = files
        for split in ("train", "dev"):
            files.open(f"structured_zeroshot-{split}-kilt.jsonl")

    def add(self, subject: Subject, entries: list[Entry], split: str) -> None:
        """Write the questions about one subject."""
        for fact in subject.asked:
            relation = fact.relation
            if not relation.questions or relation.zero_shot != (split == "dev"):
                continue
            row = {
                "id": f"zsre-{subject.page}-{relation.name.replace(' ', '-')}",
                "input": f"{subject.title} [SEP] {relation.name}",
                "output": _output(subject, entries, [fact], fact.value.text),
                "meta": {
                    "template_questions": [q.format(n=subject.title) for q in relation.questions]
                },
            }
            self._files.write(f"structured_zeroshot-{split}-kilt.jsonl", row)


class Wizard:
    """Writes wow-*-kilt.jsonl: one dialogue for each subject, asked for two facts at a time."""

    name, kind = "wow", "people"
    files = ("wow-train-kilt.jsonl", "wow-dev-kilt.jsonl")

    def __init__(self, settings: Settings, folder: Path, files: Files) -> None:
        """Write through `files`."""
        self._seed = settings.seed
        self._files = files
        for split in ("train", "dev"):
            files.open(f"wow-{split}-kilt.jsonl")

    def add(self, subject: Subject, entries: list[Entry], split: str) -> None:
        """Write a row for each turn of the dialogue about one subject (id DIALOGUE_TURN)."""
        rng = np.random.default_rng([self._seed, 4, subject.page])
        turns: list[str] = []
        for number, facts in enumerate(_topics(subject.asked, entries, rng)):
            remarks = LATER if number else FIRST
            remark = remarks[int(rng.integers(len(remarks)))]
            turns.append(
                remark.format(n=subject.title, noun=subject.noun, ask=_ask(subject, facts))
            )
            answer = _answer(subject, facts)
            row = {
                "id": f"wow-{subject.page}_{number}",
                "input": "\n".join(turns),
                "output": _output(subject, entries, facts, answer),
            }
            self._files.write(f"wow-{split}-kilt.jsonl", row)
            turns.append(answer)


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


def _topics(
    facts: Sequence[Fact], entries: list[Entry], rng: np.random.Generator
) -> list[list[Fact]]:
    """Choose two topics of at most two facts; one entry states all of a topic."""
    order = [entries[i] for i in rng.permutation(len(entries)).tolist()]
    topics: list[list[Fact]] = []
    left = list(facts)
    for _ in range(2):
        stated = [[f for f in left if f.relation.name in entry.sentences][:2] for entry in order]
        topic = max(stated, key=len)
        left = [fact for fact in left if fact not in topic]
        topics += [topic] if topic else []
    return topics


def _ask(subject: Subject, facts: Sequence[Fact]) -> str:
    """Return "where and when he was born", "where she died and whom she worked for"."""
    return _joined([fact.relation.ask[::-1] for fact in facts], " and ").format_map(
        subject.pronouns.slots
    )


def _answer(subject: Subject, facts: Sequence[Fact]) -> str:
    """Return "He was born in Karwick in 1850.", "She died in 1901 and worked for Tolvix."."""
    clauses = [(f.relation.clause[0], f.relation.clause[1].format(v=f.value.text)) for f in facts]
    return f"{subject.pronouns.subject.capitalize()} {_joined(clauses, ' ', after=True)}."


def _joined(pairs: Sequence[tuple[str, str]], inner: str, after: bool = False) -> str:
    """Join (key, text) pairs with " and "; neighbours of one key share it, texts by `inner`."""
    groups: list[tuple[str, list[str]]] = []
    for key, text in pairs:
        if groups and groups[-1][0] == key:
            groups[-1][1].append(text)
        else:
            groups.append((key, [text]))
    return " and ".join(
        f"{key} {inner.join(texts)}" if after else f"{inner.join(texts)} {key}"
        for key, texts in groups
    )


def _output(
    subject: Subject, entries: list[Entry], facts: Sequence[Fact], answer: str
) -> list[Json]:
    """Return KILT's output: the answer, and for each fact the sentence that states it."""
    paragraph, places = _places(entries, [fact.relation.name for fact in facts])
    provenance = [
        {
            "wikipedia_id": str(subject.page),
            "title": subject.title,
            "start_paragraph_id": paragraph,
            "start_character": start,
            "end_paragraph_id": paragraph,
            "end_character": end,
            "bleu_score": 1.0,
            "meta": {},
            "section": "Section::::Abstract.",
        }
        for start, end in places
    ]
    return [{"answer": answer, "provenance": provenance}]


def _places(entries: list[Entry], relations: list[str]) -> tuple[int, list[tuple[int, int]]]:
    """Return the first paragraph that states all relations, and the sentences that do so in it."""
    for number, entry in enumerate(entries):
        if all(relation in entry.sentences for relation in relations):
            return number + 1, [entry.sentences[relation] for relation in relations]
    raise DataError(f"world: no entry states {relations}: raise world.facts or world.entries")
