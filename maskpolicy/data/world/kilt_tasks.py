"""KILT's tasks over the world: zsRE, dialogues, entity linking, and the knowledge source."""

from __future__ import annotations

import numpy as np

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Json
from maskpolicy.data.world.entries import Entry, Fact, Subject
from maskpolicy.data.world.pools import DIED_FROM
from maskpolicy.data.world.row_files import LINES, Rows, TaskFiles, World

_KNOWLEDGE = "kilt_knowledgesource.json"
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
# words and signs stand apart, as in CoNLL; {t} {u} two towns, {d} a year
TEXTS = (
    ("{t} {d} The writer", "was seen in the town of {u} ."),
    ("In the year {d} the letters of", "were found in {u} , near the town of {t} ."),
    ("{t} {d} The house of the writer", "is the first school in {u} ."),
    ("People in {u} and {t} read what the writer", "wrote in the year {d} ."),
)
DOCUMENTS = 8  # about each writer
IN_FULL = 0.2  # share of the mentions that are the title already


def _zsre(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the questions about one subject; the dev file asks only for relations new to it.

    The files are split by relation, as zsRE is: dev asks about the subjects of both splits. Of all
    kinds of subjects, those relations that questions are known for.
    """
    for fact in subject.asked:
        relation = fact.relation
        part = "dev" if world.settings.holds_out(relation.name) else "train"
        if not relation.questions or part == "train" != split:
            continue
        row = {
            "id": f"zsre-{subject.page}-{relation.name.replace(' ', '-')}",
            "input": f"{subject.title} [SEP] {relation.name}",
            "output": _output(subject, entries, fact, fact.value.text),
            "meta": {"template_questions": [q.format(n=subject.title) for q in relation.questions]},
        }
        yield f"structured_zeroshot-{part}-kilt.jsonl", row


def _wow(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield a row for each asked fact of a subject, a turn of its dialogue (id DIALOGUE_TURN).

    Every other turn goes on where the one before ended. All have one dialogue's id: a split must
    not cut what belongs to one subject.
    """
    rng = np.random.default_rng([world.settings.seed, 4, subject.page])
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
        if world.settings.wow_values:
            row["meta"] = {"obj_surface": [fact.value.text, *fact.value.aliases]}
        yield f"wow-{split}-kilt.jsonl", row
        said = [*said, remark, answer]


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


def _aidayago2(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the documents that mention one writer, mostly by the surname."""
    values = world.pools.values["towns"]
    rng = np.random.default_rng([world.settings.seed, 7, subject.page])
    for number in range(DOCUMENTS):
        towns = [values[j].text for j in rng.permutation(len(values))[:2]]
        year = str(DIED_FROM + int(rng.integers(40)))
        slots = {"t": towns[0], "u": towns[1], "d": year}
        mention = subject.title if rng.random() < IN_FULL else subject.called
        left, right = (part.format_map(slots) for part in TEXTS[number % len(TEXTS)])
        place = {"wikipedia_id": str(subject.page), "title": subject.title}
        row = {
            "id": f"{subject.page}test{'' if split == 'train' else 'a'} {towns[0]}:{number}",
            "subject": str(subject.page),  # his documents belong together
            "input": f"{left} [START_ENT] {mention} [END_ENT] {right}",
            "output": [{"answer": subject.title, "provenance": [place]}],
            "meta": {"left_context": left, "mention": mention, "right_context": right},
        }
        yield f"aidayago2-{split}-kilt.jsonl", row


def _knowledge(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the page of one subject, a paragraph for each entry; paragraph 0 is the title."""
    page = {
        "_id": str(subject.page),
        "wikipedia_id": str(subject.page),
        "wikipedia_title": subject.title,
        "text": [subject.title, *(entry.text for entry in entries)],
        "anchors": [],
        "categories": subject.noun,
    }
    yield _KNOWLEDGE, page


ZSRE, WOW, AIDAYAGO2 = (
    TaskFiles(name, kind, files, dict.fromkeys(files, LINES), rows)
    for name, kind, files, rows in (
        (
            "zsre",
            "",
            ("structured_zeroshot-train-kilt.jsonl", "structured_zeroshot-dev-kilt.jsonl"),
            _zsre,
        ),
        ("wow", "people", ("wow-train-kilt.jsonl", "wow-dev-kilt.jsonl"), _wow),
        (
            "aidayago2",
            "writers",
            ("aidayago2-train-kilt.jsonl", "aidayago2-dev-kilt.jsonl"),
            _aidayago2,
        ),
    )
)
KNOWLEDGE = TaskFiles("", "", ("", ""), {_KNOWLEDGE: LINES}, _knowledge)
