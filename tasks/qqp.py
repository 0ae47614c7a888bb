"""QQP (Quora question pairs): do two questions have the same meaning?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import glue


@task(
    "qqp",
    kind="label",
    group="glue",
    metric="accuracy_f1",
    labels=glue.BINARY,
    editions=("glue", glue.BABYLM),
    files=glue.FILES,
    others=glue.of_babylm("qqp"),
    folders=("QQP",),
    mark="is_duplicate",
    hub=glue.hub("qqp"),
    linked=True,
    version=2,
)
@dataclass(frozen=True)
class Qqp:
    """Pairs of questions; 1: duplicates. Pairs that share a question are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        texts = ("question1", "question2")
        return glue.example(row, texts, glue.BINARY, ("is_duplicate", "label"))
