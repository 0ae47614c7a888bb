"""BoolQ (Clark et al. 2019), of SuperGLUE: yes or no questions about a passage."""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Json, task
from maskpolicy.data.taskfiles import digest, glue, text


@task("boolq", mark="passage", **glue.superglue("boolq", "BoolQ"))
@dataclass(frozen=True)
class BoolQ:
    """Question and passage; 1: yes. Questions about one passage are one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row of a file or of the Hub."""
        group = digest(text(row, "passage"))
        texts, labels = ("question", "passage"), ("label", "answer")  # BoolQ's own release
        return glue.example(row, texts, glue.BINARY, labels, group=group)
