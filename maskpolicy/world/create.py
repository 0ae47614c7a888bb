"""Writes the world: two corpora and, over the second, the tasks in their official formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from maskpolicy import keys
from maskpolicy.world import tagger_errors
from maskpolicy.world.aidayago2 import EntityLinking
from maskpolicy.world.cola import Cola
from maskpolicy.world.entries import Entry
from maskpolicy.world.kilt_files import Knowledge, Wizard, ZeroShot
from maskpolicy.world.pools import build
from maskpolicy.world.questions import NaturalQuestions, WebQuestions
from maskpolicy.world.ropes import Ropes
from maskpolicy.world.row_files import Files
from maskpolicy.world.settings import RECORD, SUBJECT_KINDS, Settings, check
from maskpolicy.world.situations import Part, situations
from maskpolicy.world.squad import V2, Squad
from maskpolicy.world.subject_kinds import described, subjects
from maskpolicy.world.subjects import Subject
from maskpolicy.world.triviaqa import TriviaQA
from maskpolicy.world.wiqa_and_quartz import Quartz, Wiqa


class TaskWriter(Protocol):
    """What writes one task: it is made with (settings, folder, files), then given its subjects."""

    name: str
    kind: str  # of the subjects it asks about; "": it is given all of them
    files: tuple[str, str]  # its train file, and the one that is the test split

    def add(self, subject: Subject, entries: list[Entry], split: str) -> None:
        """Write what the task asks about one subject; split is "train" or "dev"."""
        ...


TASKS = (
    *(TriviaQA, ZeroShot, Wizard, WebQuestions, NaturalQuestions, EntityLinking, Wiqa, Quartz),
    *(Ropes, Cola, Squad, Knowledge),
)

FILES = {task.name: task.files for task in TASKS} | {"squad_v2": V2}
"""By task, the two files that it is read from in experiments: of train and of test."""


class _Names(Files):
    """Remembers which files a task opens, and writes none."""

    def open(self, name: str, head: str = "", between: str = "\n", foot: str = "\n") -> None:
        """Remember a name."""
        self.rows[name] = 0


@cache
def kinds_by_file() -> Mapping[str, str]:
    """Return, for every task file that a world can hold, the kind of subjects that it asks about.

    That is "" for files that any world has.
    """
    found: dict[str, str] = {}
    for task in TASKS:
        names = _Names(Path())
        task(Settings(kinds=SUBJECT_KINDS, evidence=False), Path(), names)
        found |= dict.fromkeys(names.rows, task.kind)
    return found


SITUATIONS: Final = "situations"  # the corpus of situations alone, if a world has them
CORPORA = ("general", "intermediate", SITUATIONS)
MARKS = (*(f"{name}.jsonl" for name in CORPORA), "tasks", RECORD)  # of a written world


def write(settings: Settings, out: Path) -> None:
    """Write general.jsonl, intermediate.jsonl, tasks/ and world.json below `out`.

    A world with situations has situations.jsonl too; as many others end the general corpus. The
    same settings give the same bytes. Raises ConfigError for settings without a world.
    """
    check(settings)
    pools = build(settings)
    folder = Path(out) / "tasks"
    with Files(Path(out)) as corpora, Files(folder) as files:
        tasks: list[TaskWriter] = [
            task(settings, folder, files) for task in TASKS if task.kind in ("", *settings.kinds)
        ]

        def add(corpus: str, entry: Entry) -> None:
            name = f"{corpus}.jsonl"
            seed = [settings.seed, 20, CORPORA.index(corpus), corpora.rows[name]]
            corpora.write(name, tagger_errors.row(entry, settings.entity_errors, seed))

        for corpus in ("general", "intermediate"):
            corpora.open(f"{corpus}.jsonl")
            for kind in (kind for kind in SUBJECT_KINDS if kind in settings.kinds):
                asking = [task for task in tasks if task.kind in ("", kind)]
                train = round(getattr(settings, kind) * settings.train_share)
                for number, subject in enumerate(subjects(settings, pools, kind, corpus)):
                    made = described(settings, subject)
                    for entry in made:
                        add(corpus, entry)
                    for task in asking if corpus == "intermediate" else ():
                        task.add(subject, made, "train" if number < train else "dev")
        if settings.situations:
            share = settings.situations
            count = round(corpora.rows["general.jsonl"] * share / (1 - share))
            corpora.open(f"{SITUATIONS}.jsonl")
            parts: tuple[Part, ...] = ("general", SITUATIONS)
            for part in parts:
                for entry in situations(settings, part, count):
                    add(part, entry)
    record = {"settings": keys.to_json(settings), "rows": files.rows}
    text = json.dumps(record, indent=1, sort_keys=True) + "\n"
    (Path(out) / RECORD).write_text(text, encoding="utf-8", newline="\n")
