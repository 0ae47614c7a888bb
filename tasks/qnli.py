"""QNLI (Wang et al. 2019, from SQuAD): does a sentence hold the answer to a question?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import glue


@task(
    "qnli",
    kind="label",
    group="glue",
    metric="accuracy",
    labels=glue.ENTAILMENT,
    files=glue.FILES,
    folders=("QNLI",),
    mark="question",
    hub=glue.hub("qnli"),
    linked=True,
    version=2,
)
@dataclass(frozen=True)
class Qnli:
    """A question and a sentence; pairs that share either are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        return glue.example(row, ("question", "sentence"), glue.ENTAILMENT)
