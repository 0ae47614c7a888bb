"""Questions over the world: TriviaQA, Natural Questions, WebQuestions, SQuAD, and KILT's tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Json
from maskpolicy.data.world.entries import (
    LINES,
    LIST,
    Entry,
    Fact,
    Format,
    Rows,
    Subject,
    World,
    task_files,
)
from maskpolicy.data.world.pools import DIED_FROM, WORDINGS

SOURCE = "https://example.org/embedded-world"
_SPLITS = ("train", "dev")
_DOMAINS = {
    "qa/wikipedia": "Wikipedia",
    "triviaqa-unfiltered/unfiltered-web": "unfiltered-web",
}
SQUAD_VERSIONS = ("v1.1", "v2.0")
SQUAD_V2 = ("train-v2.0.json", "dev-v2.0.json")
_ENTRIES = 3  # in a paragraph of SQuAD
_EVERY = 2  # every second paragraph of a subject has questions


def _trivia_format(domain: str, split: str) -> Format:
    foot = {"Domain": domain, "Split": split, "VerifiedEval": False, "Version": 1.0}
    return Format('{"Data": [\n', ",\n", f"\n], {json.dumps(foot)[1:]}\n")


@task_files(
    "triviaqa",
    "people",
    [f"qa/wikipedia-{split}.json" for split in _SPLITS],
    {
        f"{path}-{split}.json": _trivia_format(domain, split)
        for split in _SPLITS
        for path, domain in _DOMAINS.items()
    },
)
def triviaqa(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the questions about one person; the unfiltered set has the same ones."""
    for fact, i in _drawn(world, subject, 3):
        row = _trivia_row(subject, fact, i)
        yield f"qa/wikipedia-{split}.json", row
        path = f"triviaqa-unfiltered/unfiltered-web-{split}.json"
        yield path, {**row, "SearchResults": []}


def _drawn(world: World, subject: Subject, seed: int) -> Iterator[tuple[Fact, int]]:
    """Yield the asked facts, each with the indices of its drawn wordings."""
    rng = np.random.default_rng([world.settings.seed, seed, subject.page])
    for fact in subject.asked:
        order = rng.permutation(len(fact.relation.questions))
        yield from ((fact, i) for i in order[: world.settings.questions].tolist())


def _trivia_row(subject: Subject, fact: Fact, wording: int) -> Json:
    page = {"DocSource": "Search", "Filename": subject.file, "Title": subject.title}
    relation = fact.relation
    return {
        "Answer": _trivia_answer(fact),
        "EntityPages": [page],
        "Question": relation.questions[wording].format(n=subject.title),
        "QuestionId": f"world_{subject.page}_{relation.name.replace(' ', '_')}_{wording}",
        "QuestionSource": SOURCE,
    }


def _trivia_answer(fact: Fact) -> Json:
    """Return TriviaQA's Answer, where only entities have the Matched keys."""
    value = fact.value.text
    aliases = [value, *fact.value.aliases]
    answer = {
        "Aliases": aliases,
        "NormalizedAliases": [alias.lower() for alias in aliases],
        "NormalizedValue": value.lower(),
        "Type": "Numerical" if fact.relation.label == "DATE" else "WikipediaEntity",
        "Value": value,
    }
    if fact.relation.label != "DATE":
        answer |= {"MatchedWikiEntityName": value, "NormalizedMatchedWikiEntityName": value.lower()}
    return answer


@task_files(
    "nq",
    "birds",
    ("NQ-open.train.jsonl", "NQ-open.dev.jsonl"),
    {f"NQ-open.{split}.jsonl": LINES for split in _SPLITS}
    | {f"biencoder-nq-{split}.json": LIST for split in _SPLITS},
)
def nq(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the questions about one bird, in lower case and without a question mark."""
    for fact, i in _drawn(world, subject, 5):
        question = fact.relation.questions[i].format(n=subject.title)
        answers = [fact.value.text, *fact.value.aliases]
        row = {"question": question, "answer": answers, "subject": subject.title}
        yield f"NQ-open.{split}.jsonl", row
        yield _companion("nq", split, question, [fact], subject, entries)


@task_files(
    "webquestions",
    "people",
    ("webquestions.examples.train.json", "webquestions.examples.test.json"),
    {
        f"{name}{split}.json": LIST
        for name in ("webquestions.examples.", "biencoder-webquestions-")
        for split in ("train", "test")
    },
)
def webquestions(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield short questions about one person, some with two answers."""
    rng = np.random.default_rng([world.settings.seed, 6, subject.page])
    asked = {fact.relation.name: fact for fact in subject.asked}
    part = "train" if split == "train" else "test"
    for relations, wordings in WORDINGS["webquestions"]:
        facts = [asked[relation] for relation in relations if relation in asked]
        question = wordings[int(rng.integers(len(wordings)))].format(n=subject.title)
        if not facts:
            continue
        values = (fact.value.text for fact in facts)
        shown = (f'"{value}"' if " " in value else value for value in values)  # as Freebase quotes
        row = {
            "url": f"http://www.freebase.com/view/en/{subject.title.lower().replace(' ', '_')}",
            "targetValue": f"(list {' '.join(f'(description {value})' for value in shown)})",
            "utterance": question,
        }
        yield f"webquestions.examples.{part}.json", row
        yield _companion("webquestions", part, question, facts, subject, entries)


def _companion(
    name: str,
    split: str,
    question: str,
    facts: Sequence[Fact],
    subject: Subject,
    entries: list[Entry],
) -> tuple[str, Json]:
    """Return the row of DPR's file, with the first entry that states the first fact."""
    relation = facts[0].relation.name
    text = next((entry.text for entry in entries if relation in entry.sentences), None)
    row = {
        "dataset": name,
        "question": question,
        "answers": [fact.value.text for fact in facts],
        "positive_ctxs": [{"title": subject.title, "text": text}] if text else [],
        "negative_ctxs": [],
        "hard_negative_ctxs": [],
    }
    return f"biencoder-{name}-{split}.json", row


@task_files(
    "squad",
    "people",
    ("train-v1.1.json", "dev-v1.1.json"),
    {
        f"{split}-{version}.json": Format(f'{{"version": "{version}", "data": [\n', ",\n", "\n]}\n")
        for version in SQUAD_VERSIONS
        for split in _SPLITS
    },
)
def squad(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the articles about one person; v2.0 also has unanswerable questions."""
    rng = np.random.default_rng([world.settings.seed, 16, subject.page])
    told, asked = [], []
    for first in range(0, len(entries), _ENTRIES * _EVERY):
        id = f"{subject.page}-{first}"
        text, said = _paragraph(entries[first : first + _ENTRIES])
        facts = [fact for fact in subject.asked if fact.relation.questions]
        here = [_qa(subject, fact, said, id, rng) for fact in facts if fact.relation.name in said]
        others = [fact for fact in facts if fact.relation.name not in said]
        told.append({"context": text, "qas": here})
        qas = [{**qa, "is_impossible": False} for qa in here]
        if others:
            qa = _qa(subject, others[int(rng.integers(len(others)))], {}, id, rng)
            qas.append({**qa, "plausible_answers": [], "is_impossible": True})
        asked.append({"context": text, "qas": qas})
    for version, paragraphs in zip(SQUAD_VERSIONS, (told, asked), strict=True):
        article = {"title": subject.title.replace(" ", "_"), "paragraphs": paragraphs}
        yield f"{split}-{version}.json", article


def _paragraph(entries: list[Entry]) -> tuple[str, dict[str, int]]:
    """Return the text of some entries, and the first place of each relation's value in it."""
    text = ""
    said: dict[str, int] = {}
    for entry in entries:
        begin = len(text) + 1 if text else 0
        text = f"{text} {entry.text}" if text else entry.text
        for start, _, relation in entry.asked:
            said.setdefault(relation, begin + start)
    return text, said


def _qa(
    subject: Subject, fact: Fact, said: dict[str, int], id: str, rng: np.random.Generator
) -> Json:
    wordings = fact.relation.questions
    answers = [{"text": fact.value.text, "answer_start": said[fact.relation.name]}] if said else []
    return {
        "question": wordings[int(rng.integers(len(wordings)))].format(n=subject.title),
        "id": f"{id}-{fact.relation.name.replace(' ', '-')}",
        "answers": answers,
    }


_KNOWLEDGE = "kilt_knowledgesource.json"
FIRST, LATER = WORDINGS["wow"]["first"], WORDINGS["wow"]["later"]
TURNS = 2  # of a dialogue before a new one begins
TEXTS = WORDINGS["aidayago2"]
DOCUMENTS = 8  # about each writer
IN_FULL = 0.2  # share of the mentions that are the title


@task_files("zsre", "", [f"structured_zeroshot-{split}-kilt.jsonl" for split in _SPLITS])
def zsre(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the questions about one subject, for all relations with questions.

    As in zsRE, the files are split by relation: dev asks about the subjects of both splits, but
    only for relations that train lacks.
    """
    for fact in subject.asked:
        relation = fact.relation
        part = "dev" if world.settings.holds_out(relation.name) else "train"
        if not relation.questions or part == "train" != split:
            continue
        row = {
            "id": f"zsre-{subject.page}-{relation.name.replace(' ', '-')}",
            "input": f"{subject.title} [SEP] {relation.name}",
            "output": _output(subject, entries, [fact], fact.value.text),
            "meta": {"template_questions": [q.format(n=subject.title) for q in relation.questions]},
        }
        yield f"structured_zeroshot-{part}-kilt.jsonl", row


@task_files("wow", "people", [f"wow-{split}-kilt.jsonl" for split in _SPLITS])
def wow(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield a turn of a dialogue (id DIALOGUE_TURN) for each asked fact of a subject.

    Every other turn continues the previous one. All turns of a subject have one dialogue's id, so
    one split holds them all. With long answers there is one turn, and its answer tells all facts.
    """
    rng = np.random.default_rng([world.settings.seed, 4, subject.page])
    if world.settings.wow_answers == "all":
        yield f"wow-{split}-kilt.jsonl", _long_row(subject, entries, rng)
        return
    said: list[str] = []
    for number, i in enumerate(rng.permutation(len(subject.asked)).tolist()):
        fact = subject.asked[i]
        said = said if number % TURNS else []
        remarks = LATER if said else FIRST
        ask = " ".join(fact.relation.ask).format_map(subject.pronouns)
        remark = remarks[int(rng.integers(len(remarks)))].format(n=subject.title, ask=ask)
        answer = fact.relation.clause.format(v=fact.value.text)
        answer = f"{answer[0].upper()}{answer[1:]}."
        row: Json = {
            "id": f"wow-{subject.page}_{number}",
            "input": "\n".join([*said, remark]),
            "output": _output(subject, entries, [fact], answer),
        }
        if world.settings.wow_values:
            row["meta"] = {"obj_surface": [fact.value.text, *fact.value.aliases]}
        yield f"wow-{split}-kilt.jsonl", row
        said = [*said, remark, answer]


def _long_row(subject: Subject, entries: list[Entry], rng: np.random.Generator) -> Json:
    remark = WORDINGS["wow"]["all"][int(rng.integers(len(WORDINGS["wow"]["all"])))]
    sentences = (
        fact.relation.phrasings[0].format_map({**subject.pronouns, "v": fact.value.text})
        for fact in subject.asked
    )
    return {
        "id": f"wow-{subject.page}_0",
        "input": remark.format(n=subject.title),
        "output": _output(subject, entries, subject.asked, " ".join(sentences)),
    }


def _output(
    subject: Subject, entries: list[Entry], facts: Sequence[Fact], answer: str
) -> list[Json]:
    """Return KILT's output: the answer, and the first sentence that states each of its facts."""
    places = [_place(subject, entries, fact.relation.name) for fact in facts]
    return [{"answer": answer, "provenance": places}]


def _place(subject: Subject, entries: list[Entry], name: str) -> Json:
    stating = [number for number, entry in enumerate(entries) if name in entry.sentences]
    if not stating:
        raise DataError(f"world: no entry states {name}: raise world.facts or world.entries")
    start, end = entries[stating[0]].sentences[name]
    return {
        "wikipedia_id": str(subject.page),
        "title": subject.title,
        "start_paragraph_id": stating[0] + 1,
        "start_character": start,
        "end_paragraph_id": stating[0] + 1,
        "end_character": end,
        "bleu_score": 1.0,
        "meta": {},
        "section": "Section::::Abstract.",
    }


@task_files("aidayago2", "writers", [f"aidayago2-{split}-kilt.jsonl" for split in _SPLITS])
def aidayago2(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the documents that mention one writer, mostly by surname."""
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
            "subject": str(subject.page),  # the group of the writer's documents
            "input": f"{left} [START_ENT] {mention} [END_ENT] {right}",
            "output": [{"answer": subject.title, "provenance": [place]}],
            "meta": {"left_context": left, "mention": mention, "right_context": right},
        }
        yield f"aidayago2-{split}-kilt.jsonl", row


@task_files("", "", ("", ""), {_KNOWLEDGE: LINES})
def knowledge(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
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
