"""Zero-shot relation extraction (Levy et al. 2017) in KILT's form: relations unseen in train."""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import kilt, text


@task("zsre", metric="kilt_accuracy", retrieval=True, **kilt.facts("structured_zeroshot"))
@dataclass(frozen=True)
class ZeroShotRE(kilt.Provenance):
    """`subject [SEP] relation` asks for the object; [SEP] is text, not a special token."""

    def example(self, row: Json) -> Example | None:
        """Map a row; examples about one subject are one group."""
        targets = kilt.answers(row)
        if not targets:
            return None
        kilt.check(row, "zsre")
        source = text(row, "input")
        subject, _, relation = (part.strip() for part in source.partition(kilt.SEPARATOR))
        return Example(text(row, "id"), subject, source, targets, slices={"relation": relation})
