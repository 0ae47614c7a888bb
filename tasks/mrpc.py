"""MRPC (Dolan and Brockett 2005): do two sentences of the news say the same?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import glue

TEXTS = ("#1 String|sentence1", "#2 String|sentence2")


@task("mrpc", **glue.facts("mrpc", "MRPC", babylm=True, metric="accuracy_f1", mark="Quality"))
@dataclass(frozen=True)
class Mrpc:
    """Pairs of sentences; 1: a paraphrase. Pairs that share a sentence are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        return glue.example(row, TEXTS, glue.BINARY, ("Quality", "label"))
