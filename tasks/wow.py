"""Wizard of Wikipedia (Dinan et al. 2019) in KILT's form: answer the last turn of a dialogue."""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import kilt, text


@task("wow", metric="f1", keep="end", retrieval=True, **kilt.facts("wow"))
@dataclass(frozen=True)
class WizardOfWikipedia(kilt.Provenance):
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
