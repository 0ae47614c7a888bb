"""CoLA (Warstadt et al. 2019): is a sentence acceptable English?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import glue


@task(
    "cola",
    kind="label",
    group="glue",
    metric="matthews",
    labels=glue.BINARY,
    files=glue.FILES,
    folders=("CoLA",),
    columns=("source", "label", "mark", "sentence"),
    mark="mark",
    hub=glue.hub("cola"),
    linked=True,
    version=2,
)
@dataclass(frozen=True)
class Cola:
    """Sentences of the linguistic literature; 1: acceptable. Equal sentences are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        return glue.example(row, ("sentence",), glue.BINARY)
