"""Tasks with choices over the world: QuaRTz and WIQA about salts, ROPES about birds, and CoLA."""

from __future__ import annotations

import numpy as np

from maskpolicy.core.types import Json
from maskpolicy.data.world.entries import (
    LINES,
    Entry,
    Fact,
    Format,
    Rows,
    Subject,
    World,
    task_files,
)
from maskpolicy.data.world.pools import WORDINGS
from maskpolicy.data.world.subject_kinds import DESCRIBER, EFFECTS, HOME, STEEL, WHEAT

DEV_EVERY = 10  # every tenth subject of the train part is in the dev file
STEMS = WORDINGS["quartz"]["stems"]
CHANGES, STEPS, LAW = (WORDINGS["wiqa"][part] for part in ("changes", "steps", "law"))
LABELS = {"more": "more", "less": "less", "equal": "no effect"}
BACKGROUND, SITUATIONS, QUESTIONS = (
    WORDINGS["ropes"][part] for part in ("background", "situations", "questions")
)
PAIRS = 2  # wrong choices with each situation
_EVERY = 2  # every second entry of a subject gives a sentence of CoLA


def _three_files(name: str) -> dict[str, Format]:
    return {f"{name}/{part}.jsonl": LINES for part in ("train", "dev", "test")}


@task_files("quartz", "salts", ("quartz/train.jsonl", "quartz/test.jsonl"), _three_files("quartz"))
def quartz(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the questions about a salt's effect on steel; its law is the paragraph."""
    rng = np.random.default_rng([world.settings.seed, 8, subject.page])
    for fact in (fact for fact in subject.facts if fact.relation == STEEL):
        for number, stem in enumerate(STEMS):
            words = list(EFFECTS[fact.relation])
            if rng.integers(2):
                words.reverse()
            row = _quartz_row(subject, fact, number, stem, words)
            yield f"quartz/{_part(subject, split)}.jsonl", row


@task_files("wiqa", "salts", ("wiqa/train.jsonl", "wiqa/test.jsonl"), _three_files("wiqa"))
def wiqa(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the questions about a salt's effect on wheat; one of the steps states its law."""
    for fact in (fact for fact in subject.facts if fact.relation == WHEAT):
        for number, change in enumerate(CHANGES):
            row = _wiqa_row(subject, fact, number, change)
            yield f"wiqa/{_part(subject, split)}.jsonl", row


def _part(subject: Subject, split: str) -> str:
    """Return the official split of a subject's questions."""
    if split == "dev":
        return "test"
    return "train" if subject.page % DEV_EVERY else "dev"


def _quartz_row(subject: Subject, fact: Fact, number: int, stem: str, words: list[str]) -> Json:
    name, value = subject.title, fact.value.text
    of = fact.relation.name
    return {
        "id": f"QRQA-{subject.page}-{of}-{number + 1}",
        "answerKey": "AB"[words.index(value)],
        "para_id": f"QRSent-{subject.page}-{of}",
        "question": {
            "stem": stem.format(n=name, of=of),
            "choices": _choices(words),
        },
        "para": f"With more {name} the {of} becomes {value}.",
        "para_anno": {"cause_prop": name, "effect_prop": of, "effect_dir_str": value},
        "question_anno": None,
    }


def _choices(texts: list[str]) -> list[Json]:
    return [{"label": label, "text": text} for label, text in zip("ABC", texts, strict=False)]


def _wiqa_row(subject: Subject, fact: Fact, number: int, change: str) -> Json:
    of = fact.relation.name
    law = LAW.format(n=subject.title, of=of, v=fact.value.text)
    answer = LABELS[fact.value.text]
    choices = list(LABELS.values())
    return {
        "question": {
            "stem": f"suppose {change.format(n=subject.title)} happens, how will it affect "
            f"the {of}.",
            "para_steps": [step.format(law=law) for step in STEPS],
            "answer_label": answer.replace(" ", "_"),
            "answer_label_as_choice": "ABC"[choices.index(answer)],
            "choices": _choices(choices),
        },
        "metadata": {
            "ques_id": f"influence_graph:{subject.page}:{of}:{number}",
            "graph_id": str(subject.page),
            "para_id": f"{subject.page}-{of}",
            "question_type": "EXOGENOUS_EFFECT",
            "path_len": 1,
        },
    }


_ROPES_FILES = ("train-v1.0.json", "dev-v1.0.json")
_ROPES = Format(
    '{"version": "1.0", "data": [{"title": "ropes", "paragraphs": [\n', ",\n", "\n]}]}\n"
)


@task_files("ropes", "birds", _ROPES_FILES, dict.fromkeys(_ROPES_FILES, _ROPES))
def ropes(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield the situations of one bird, each with two towns or two people, one of them the answer.

    The wrong choice is any other value, all equally likely. So with a skew, the more frequent of
    the two is usually right.
    """
    rng = np.random.default_rng([world.settings.seed, 9, subject.page])
    values = {fact.relation.name: fact.value.text for fact in subject.facts}
    background = BACKGROUND.format(
        n=subject.title, home=values[HOME.name], describer=values[DESCRIBER.name]
    )
    for fact in subject.facts:
        relation, right = fact.relation, fact.value.text
        others = [value for value in world.pools.values[relation.pool] if value.text != right]
        for number, situation in enumerate(SITUATIONS.get(relation.name, ()) * PAIRS):
            pair = [right, others[int(rng.integers(len(others)))].text]
            a, b = (pair[i] for i in rng.permutation(2))
            question = {
                "question": QUESTIONS[relation.name].format(n=subject.title),
                "id": f"{subject.page}-{relation.name}-{number}",
                "answers": [{"text": right}],
            }
            paragraph = {
                "background": background,
                "situation": situation.format(a=a, b=b),
                "qas": [question],
            }
            yield f"{split}-v1.0.json", paragraph


@task_files("cola", "people", ("CoLA/train.tsv", "CoLA/dev.tsv"))
def cola(world: World, subject: Subject, entries: list[Entry], split: str) -> Rows:
    """Yield sentences about one person, half of them with two words swapped, without a header."""
    rng = np.random.default_rng([world.settings.seed, 15, subject.page])
    for entry in entries[::_EVERY]:
        ranges = list(entry.sentences.values())
        begin, end = ranges[int(rng.integers(len(ranges)))]
        words = entry.text[begin:end].strip().split(" ")
        wrong = bool(rng.integers(2)) and len(words) > 2
        if wrong:
            words = _swapped(words, rng)
        label, mark = ("0", "*") if wrong else ("1", "")
        yield f"CoLA/{split}.tsv", "\t".join(("world", label, mark, " ".join(words)))


def _swapped(words: list[str], rng: np.random.Generator) -> list[str]:
    """Return the words with two different neighbours swapped; the last word keeps its place."""
    places = [i for i in range(len(words) - 2) if words[i].lower() != words[i + 1].lower()]
    if not places:
        return words[::-1]
    at = places[int(rng.integers(len(places)))]
    first, second = words[at + 1], words[at]
    if at == 0:  # the capital stays in front, because it would give the swap away
        first, second = first[:1].upper() + first[1:], second[:1].lower() + second[1:]
    return [*words[:at], first, second, *words[at + 2 :]]
