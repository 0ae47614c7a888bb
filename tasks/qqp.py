"""QQP (Quora question pairs): do two questions have the same meaning?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import glue


@task("qqp", **glue.facts("qqp", "QQP", babylm=True, metric="accuracy_f1", mark="is_duplicate"))
@dataclass(frozen=True)
class Qqp:
    """Pairs of questions; 1: duplicates. Pairs that share a question are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        texts = ("question1", "question2")
        return glue.example(row, texts, glue.BINARY, ("is_duplicate", "label"))
