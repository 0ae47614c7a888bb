"""Wizard of Wikipedia (Dinan et al. 2019) in KILT's form: answer the last turn of a dialogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskpolicy import Example, Hub, Json, task
from maskpolicy.data.taskfiles import kilt, text


@task(
    "wow",
    group="knowledge-intensive",
    metric="f1",
    files={"train": "wow-train-kilt.jsonl", "dev": "wow-dev-kilt.jsonl"},
    folders=kilt.FOLDERS,
    hub=Hub("facebook/kilt_tasks", "wow"),
    keep="end",
    retrieval=True,
)
@dataclass(frozen=True)
class WizardOfWikipedia:
    """The turns of a dialogue, one per line; ids are `dialogue_turn`."""

    def example(self, row: Json) -> Example | None:
        """Map a row; the turns of one dialogue are one group."""
        targets = kilt.answers(row)
        if not targets:
            return None
        kilt.check(row, "wow")
        identity, source = text(row, "id"), text(row, "input")
        dialogue = identity.rpartition("_")[0] or identity
        turns = str(source.count("\n") + 1)
        slices, said = {"turns": turns}, kilt.objects(row)
        return Example(identity, dialogue, source, targets, slices=slices, short_answers=said)

    def evidence(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> Callable[[Json, Example], str | None]:
        """Return a lookup of the provenance paragraph."""
        return kilt.paragraphs(rows, beside)

    def evidence_files(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> list[Path]:
        """Return the files of KILT's knowledge source that exist."""
        return kilt.knowledge(beside)
