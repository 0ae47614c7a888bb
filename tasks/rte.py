"""RTE (Dagan et al. 2005 and later): does a text entail a sentence?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import glue


@task("rte", **glue.facts("rte", "RTE", glue.ENTAILMENT, babylm=True, mark="sentence2"))
@dataclass(frozen=True)
class Rte:
    """A text and a hypothesis; pairs that share either are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        return glue.example(row, ("sentence1", "sentence2"), glue.ENTAILMENT)
