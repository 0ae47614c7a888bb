"""SST-2 (Socher et al. 2013): is a film review positive?"""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import glue


@task("sst2", **glue.facts("sst2", "SST-2", mark="sentence"))
@dataclass(frozen=True)
class Sst2:
    """Sentences and phrases of reviews; 1: positive. Equal texts are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        return glue.example(row, ("sentence",), glue.BINARY)
