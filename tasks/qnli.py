"""QNLI (Wang et al. 2019, from SQuAD): does a sentence contain the answer to a question?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import glue


@task("qnli", **glue.facts("qnli", "QNLI", glue.ENTAILMENT, mark="question"))
@dataclass(frozen=True)
class Qnli:
    """A question and a sentence; pairs that share either are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        return glue.example(row, ("question", "sentence"), glue.ENTAILMENT)
