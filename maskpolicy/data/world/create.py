"""Write the world: two corpora, and tasks about the second one in their official formats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from maskpolicy.core import keys
from maskpolicy.core.files import json_bytes, json_lines, read_json
from maskpolicy.core.types import Json
from maskpolicy.data.world import choice_tasks as choices
from maskpolicy.data.world import question_tasks as questions
from maskpolicy.data.world.entries import Entry, Files, Subject, TaskFiles, World
from maskpolicy.data.world.pools import build, draw
from maskpolicy.data.world.prose import prose
from maskpolicy.data.world.subject_kinds import RELATIONS, described, subjects
from maskpolicy.data.world.unasked_texts import WorldPart, situations
from maskpolicy.experiment.world_settings import (
    RECORD,
    SUBJECT_KINDS,
    WITH_ERRORS,
    EntityErrors,
    Settings,
)

TASKS = (
    *(questions.triviaqa, questions.zsre, questions.wow, questions.webquestions, questions.nq),
    *(questions.aidayago2, choices.wiqa, choices.quartz, choices.ropes, choices.cola),
    *(questions.squad, questions.knowledge),
)
FILES = {task.name: task.files for task in TASKS} | {"squad_v2": questions.SQUAD_V2}
"""By task, its files of train and of test in experiments."""
KINDS_BY_FILE: Mapping[str, str] = {name: task.kind for task in TASKS for name in task.formats}
"""By task file, the kind of subjects that it asks about; "" for files of any world."""
SITUATIONS: Final = "situations"  # the corpus of situations, if a world has them
CORPORA = ("general", "intermediate", SITUATIONS)
MARKS = (RECORD,)  # of a world, from the beginning of its first writing
_EVIDENCE = Path("evidence", "wikipedia")  # below tasks/
_FILENAME = re.compile(r'"Filename": "([^"/]+)"')  # of evidence, in TriviaQA's files
_RUN = re.compile(r"\w+(?: \w+)*")  # words with only single blanks between them
_WORD = re.compile(r"\w+")


def write(settings: Settings, out: Path) -> None:
    """Write general.jsonl, intermediate.jsonl, tasks/ and world.json below `out`.

    A world with situations also has situations.jsonl, and as many other situations at the end of
    the general corpus. The same settings give the same bytes. The files of an older world in `out`
    are removed first.
    """
    world = World(settings, build(settings))
    folder = out / "tasks"
    evidence = folder / _EVIDENCE
    if (out / RECORD).is_file():
        _remove(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / RECORD).write_text("{}")  # so that the next `write` can remove an unfinished world
    if settings.evidence:
        evidence.mkdir(parents=True, exist_ok=True)
    with Files(out) as corpora, Files(folder) as files:
        tasks = [task for task in TASKS if task.kind in ("", *settings.kinds)]
        for task in tasks:
            for name, form in task.formats.items():
                files.open(name, form)

        def add(corpus: str, entry: Entry) -> None:
            name = f"{corpus}.jsonl"
            seed = [settings.seed, 20, CORPORA.index(corpus), corpora.rows[name]]
            corpora.write(name, corpus_row(entry, settings.entity_errors, seed))

        def ask(kind: str, number: int, subject: Subject, entries: list[Entry]) -> None:
            split = "train" if number < train else "dev"
            asking = [task for task in tasks if task.kind in ("", kind)]
            if not settings.shared_subjects:
                asking = [*_in_turn(asking, kind, number), questions.knowledge]
            for task in asking:
                for name, row in task.rows(world, subject, entries, split):
                    files.write(name, row)
            if settings.evidence and kind == questions.triviaqa.kind:
                text = "\n\n".join(entry.text for entry in entries) + "\n"
                (evidence / subject.file).write_text(text, encoding="utf-8", newline="\n")

        for corpus in ("general", "intermediate"):
            corpora.open(f"{corpus}.jsonl")
            for kind in (kind for kind in SUBJECT_KINDS if kind in settings.kinds):
                train = round(getattr(settings, kind) * settings.train_share)
                for number, subject in enumerate(subjects(settings, world.pools, kind, corpus)):
                    entries = described(settings, subject)
                    for entry in entries if settings.text == "entries" else ():
                        add(corpus, entry)
                    if corpus == "intermediate":
                        ask(kind, number, subject, entries)
            for entry in prose(settings, world.pools, corpus) if settings.text == "prose" else ():
                add(corpus, entry)
        if settings.situations:
            share = settings.situations
            count = round(corpora.rows["general.jsonl"] * share / (1 - share))
            corpora.open(f"{SITUATIONS}.jsonl")
            parts: tuple[WorldPart, ...] = ("general", SITUATIONS)
            for part in parts:
                for entry in situations(settings, part, count):
                    add(part, entry)
    record = {"settings": keys.to_json(settings), "rows": files.rows}
    (out / RECORD).write_bytes(json_bytes(record))


def _remove(out: Path) -> None:
    """Remove the files of a world, and none that it did not write."""
    tasks = [out / "tasks" / name for name in KINDS_BY_FILE]
    for path in filter(Path.is_file, tasks):
        for name in _FILENAME.findall(path.read_text("utf-8", "replace")):
            (out / "tasks" / _EVIDENCE / name).unlink(missing_ok=True)
    for path in (*(out / f"{name}.jsonl" for name in CORPORA), *tasks, out / RECORD):
        path.unlink(missing_ok=True)


def _in_turn(tasks: Sequence[TaskFiles], kind: str, number: int) -> list[TaskFiles]:
    """Return the one task that asks about subject `number` of a kind, if each belongs to one."""
    has_questions = any(relation.questions for relation in RELATIONS[kind])
    named = [task for task in tasks if task.kind or (task.name and has_questions)]
    count = len(named)
    return [named[(number + number // count) % count]]  # shifted: every tenth is in a dev file


def corpus_row(entry: Entry, errors: EntityErrors, seed: Sequence[int]) -> Json:
    """Return an entry as a line of a corpus file; with errors, it has the additional column."""
    if errors == EntityErrors():
        return entry.row
    return entry.row | {WITH_ERRORS: _with_errors(entry, errors, np.random.default_rng(seed))}


def _with_errors(entry: Entry, errors: EntityErrors, rng: np.random.Generator) -> list[Json]:
    """Return the entities that stay and the wrong ones, which have as many words, in text order.

    A wrong entity lies within a sentence and touches no other entity. If no words are left for it,
    the right one is dropped.
    """
    used = [(start, end) for start, end, _ in entry.entities]
    marked = []
    drawn = rng.random(len(entry.entities))
    for (start, end, label), chance in zip(entry.entities, drawn, strict=True):
        if chance >= errors.dropped + errors.wrong:
            marked.append([start, end, label])
        elif chance >= errors.dropped:
            count = len(_WORD.findall(entry.text[start:end]))
            if free := _free(entry.text, count, used):
                used.append(draw(free, 0, rng))
                marked.append([*used[-1], label])
    return sorted(marked)


def _free(text: str, count: int, used: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of `count` consecutive words that touch no used range."""
    ranges = []
    for run in _RUN.finditer(text):
        words = [word.span() for word in _WORD.finditer(text, *run.span())]
        pairs = zip(words, words[count - 1 :], strict=False)
        ranges += [(first, last) for (first, _), (_, last) in pairs]
    return [(a, b) for a, b in ranges if not any(a < end and start < b for start, end in used)]


def figures(folder: Path) -> Json:
    """Return figures by corpus (documents, facts, asked share ..) and numbers of questions by task.

    A fact is one asked relation of one subject; a mention is a distinct gold entity of a document,
    and asked if it answers a question.
    """
    written = read_json(folder / RECORD)
    rows, settings = written["rows"], written["settings"]
    corpora = [name for name in CORPORA if name != SITUATIONS or settings.get(SITUATIONS)]

    def asked(name: str) -> int:
        if name not in (*questions.squad.files, *questions.SQUAD_V2):
            return int(rows[name])
        with (folder / "tasks" / name).open(encoding="utf-8") as articles:
            return sum(article.count('"question": ') for article in articles)

    return {
        "corpora": {name: _corpus(folder / f"{name}.jsonl") for name in corpora},
        "tasks": {
            task: {"train": asked(train), "test": asked(test)}
            for task, (train, test) in FILES.items()
            if train in rows
        },
    }


def _corpus(path: Path) -> Json:
    counts: Counter[str] = Counter(documents=0, subjects=0, words=0, facts=0, mentions=0, asked=0)
    titles: set[str] = set()
    facts: set[tuple[str, str]] = set()
    for row in json_lines(path):
        named, asked = (
            {row["text"][start:end] for start, end, _ in row[key]} for key in ("entities", "asked")
        )
        about = row.get("subjects", [row.get("title")] * max(1, len(row["asked"])))
        titles |= {*about}
        facts |= {(title, asked[2]) for title, asked in zip(about, row["asked"], strict=False)}
        counts["documents"] += 1
        counts["words"] += len(row["text"].split())
        counts["mentions"] += len(named)
        counts["asked"] += len(named & asked)
    counts |= {"subjects": len(titles), "facts": len(facts)}
    share = counts["asked"] / counts["mentions"] if counts["mentions"] else 0.0
    return {**counts, "asked_share": share}
