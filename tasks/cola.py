"""CoLA (Warstadt et al. 2019): is a sentence acceptable English?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import glue


@task(
    "cola",
    columns=("source", "label", "mark", "sentence"),
    **glue.facts("cola", "CoLA", metric="matthews", mark="mark"),
)
@dataclass(frozen=True)
class Cola:
    """Sentences of the linguistic literature; 1: acceptable. Equal sentences are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        return glue.example(row, ("sentence",), glue.BINARY)
