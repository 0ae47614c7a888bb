"""Questions over the world: TriviaQA, Natural Questions, WebQuestions and SQuAD."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from maskpolicy.core.types import Json
from maskpolicy.data.world.entries import Entry, Fact, Subject
from maskpolicy.data.world.row_files import LINES, LIST, Format, Rows, TaskFiles, World

SOURCE = "https://example.org/embedded-world"
_DOMAINS = {
    "qa/wikipedia": "Wikipedia",
    "triviaqa-unfiltered/unfiltered-web": "unfiltered-web",
}
# of one question, the relations whose values answer it; the first that there is is trained on
WEB = (
    (("place of birth",), ("where was {n} from?", "what town is {n} from?", "where is {n} from?")),
    (("place of birth", "place of death"), ("where did {n} live?", "what towns did {n} live in?")),
    (("employer",), ("who did {n} work for?", "what company was {n} with?")),
    (("school",), ("what school did {n} go to?", "where did {n} study?")),
    (("year of birth",), ("what year was {n} born?", "when is {n} born?")),
    (("year of death",), ("what year did {n} die?", "when did {n} pass away?")),
)
SQUAD_VERSIONS = ("v1.1", "v2.0")
SQUAD_V2 = ("train-v2.0.json", "dev-v2.0.json")
_ENTRIES = 3  # in a paragraph of SQuAD
_EVERY = 2  # of a subject's paragraphs, one in so many is asked about


def _triviaqa(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the questions about one person; those of the unfiltered set have the same answers."""
    rng = np.random.default_rng([world.settings.seed, 3, subject.page])
    for fact in subject.asked:
        wordings = fact.relation.questions
        for i in rng.permutation(len(wordings))[: world.settings.questions].tolist():
            row = _trivia_row(subject, fact, i)
            yield f"qa/wikipedia-{split}.json", row
            path = f"triviaqa-unfiltered/unfiltered-web-{split}.json"
            yield path, {**row, "SearchResults": []}


def _trivia_format(domain: str, split: str) -> Format:
    foot = {"Domain": domain, "Split": split, "VerifiedEval": False, "Version": 1.0}
    return Format('{"Data": [\n', ",\n", f"\n], {json.dumps(foot)[1:]}\n")


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
    """Return TriviaQA's Answer; as there, only entities have the Matched keys."""
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


def _nq(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the questions about one bird: in small letters, without a question mark."""
    rng = np.random.default_rng([world.settings.seed, 5, subject.page])
    for fact in subject.asked:
        wordings = fact.relation.questions
        for i in rng.permutation(len(wordings))[: world.settings.questions].tolist():
            question = wordings[i].format(n=subject.title)
            answers = [fact.value.text, *fact.value.aliases]
            row = {"question": question, "answer": answers, "subject": subject.title}
            yield f"NQ-open.{split}.jsonl", row
            yield _companion("nq", split, question, [fact], subject, entries)


def _webquestions(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield short questions about one person, some with two answers."""
    rng = np.random.default_rng([world.settings.seed, 6, subject.page])
    asked = {fact.relation.name: fact for fact in subject.asked}
    part = "train" if split == "train" else "test"
    for relations, wordings in WEB:
        facts = [asked[relation] for relation in relations if relation in asked]
        question = wordings[int(rng.integers(len(wordings)))].format(n=subject.title)
        if not facts:
            continue
        row = {
            "url": f"http://www.freebase.com/view/en/{subject.title.lower().replace(' ', '_')}",
            "targetValue": _expression([fact.value.text for fact in facts]),
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
    """Return the row of DPR's file: the first entry that states the first of the facts."""
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


def _expression(values: Sequence[str]) -> str:
    """Return Freebase's list of descriptions; a value with a blank in it is quoted."""
    shown = (f'"{value}"' if " " in value else value for value in values)
    return f"(list {' '.join(f'(description {value})' for value in shown)})"


def _squad(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the articles of one person; v2.0 also asks each paragraph what it does not say."""
    rng = np.random.default_rng([world.settings.seed, 16, subject.page])
    told, asked = [], []
    for first in range(0, len(entries), _ENTRIES * _EVERY):
        id = f"{subject.page}-{first}"
        text, said = _paragraph(entries[first : first + _ENTRIES])
        facts = [fact for fact in subject.asked if fact.relation.questions]
        here = [_qa(subject, fact, said, id, rng) for fact in facts if fact.relation.name in said]
        others = [fact for fact in facts if fact.relation.name not in said]
        told.append({"context": text, "qas": here})
        more = [others[int(rng.integers(len(others)))]] if others else []
        qas = [{**qa, "is_impossible": False} for qa in here]
        qas += [
            {**_qa(subject, fact, {}, id, rng), "plausible_answers": [], "is_impossible": True}
            for fact in more
        ]
        asked.append({"context": text, "qas": qas})
    for version, paragraphs in zip(SQUAD_VERSIONS, (told, asked), strict=True):
        article = {"title": subject.title.replace(" ", "_"), "paragraphs": paragraphs}
        yield f"{split}-{version}.json", article


def _paragraph(entries: list[Entry]) -> tuple[str, dict[str, int]]:
    """Return the text of some entries, and where it first states the value of each relation."""
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


TRIVIAQA = TaskFiles(
    name="triviaqa",
    kind="people",
    files=("qa/wikipedia-train.json", "qa/wikipedia-dev.json"),
    formats={
        f"{path}-{split}.json": _trivia_format(domain, split)
        for split in ("train", "dev")
        for path, domain in _DOMAINS.items()
    },
    rows=_triviaqa,
)
NQ = TaskFiles(
    name="nq",
    kind="birds",
    files=("NQ-open.train.jsonl", "NQ-open.dev.jsonl"),
    formats={
        **{f"NQ-open.{split}.jsonl": LINES for split in ("train", "dev")},
        **{f"biencoder-nq-{split}.json": LIST for split in ("train", "dev")},
    },
    rows=_nq,
)
WEBQUESTIONS = TaskFiles(
    name="webquestions",
    kind="people",
    files=("webquestions.examples.train.json", "webquestions.examples.test.json"),
    formats={
        f"{name}{split}.json": LIST
        for name in ("webquestions.examples.", "biencoder-webquestions-")
        for split in ("train", "test")
    },
    rows=_webquestions,
)
SQUAD = TaskFiles(
    name="squad",
    kind="people",
    files=("train-v1.1.json", "dev-v1.1.json"),
    formats={
        f"{split}-{version}.json": Format(f'{{"version": "{version}", "data": [\n', ",\n", "\n]}\n")
        for version in SQUAD_VERSIONS
        for split in ("train", "dev")
    },
    rows=_squad,
)
