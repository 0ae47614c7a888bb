"""Writes the world: two corpora and, over the second, the tasks in their official formats."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Protocol

from maskpolicy.world.entries import Entry, entries
from maskpolicy.world.files import Files
from maskpolicy.world.kilt import Knowledge, Wizard, ZeroShot
from maskpolicy.world.people import people
from maskpolicy.world.pools import build
from maskpolicy.world.settings import Settings, check
from maskpolicy.world.subjects import Subject
from maskpolicy.world.triviaqa import TriviaQA


class Writer(Protocol):
    """What writes one task: it is made with (settings, folder, files), then given all subjects."""

    name: str

    def add(self, subject: Subject, entries: list[Entry], split: str) -> None:
        """Write what the task asks about one subject; split is "train" or "dev"."""
        ...


TASKS = (TriviaQA, ZeroShot, Wizard, Knowledge)


def write(settings: Settings, out: Path) -> None:
    """Write general.jsonl, intermediate.jsonl, tasks/ and world.json below `out`.

    The same settings give the same bytes. Raises ConfigError for settings without a world.
    """
    check(settings)
    pools = build(settings)
    folder = Path(out) / "tasks"
    with Files(Path(out)) as corpora, Files(folder) as files:
        tasks: list[Writer] = [task(settings, folder, files) for task in TASKS]
        for corpus in ("general", "intermediate"):
            corpora.open(f"{corpus}.jsonl")
            for number, subject in enumerate(people(settings, pools, corpus)):
                made = entries(subject, settings.entries, settings.facts, settings.seed)
                for entry in made:
                    corpora.write(f"{corpus}.jsonl", entry.row)
                if corpus == "intermediate":
                    train = number < round(settings.people * settings.train_share)
                    for task in tasks:
                        task.add(subject, made, "train" if train else "dev")
    record = {"settings": dataclasses.asdict(settings), "rows": files.rows}
    text = json.dumps(record, indent=1, sort_keys=True) + "\n"
    (Path(out) / "world.json").write_text(text, encoding="utf-8", newline="\n")
