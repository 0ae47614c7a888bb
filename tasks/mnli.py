"""MNLI (Williams et al. 2018): does a sentence entail another, contradict it, or neither?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from maskpolicy import Example, Hub, Json, task
from maskpolicy.data.taskfiles import glue, optional

LABELS = ("entailment", "neutral", "contradiction")  # in the Hub's order
TEXTS = ("sentence1|premise", "sentence2|hypothesis")


@task(
    "mnli",
    kind="label",
    group="glue",
    metric="accuracy",
    labels=LABELS,
    editions=("matched", "mismatched", glue.BABYLM),
    files={"train": "train.tsv", "dev": "dev_{edition}.tsv"},
    others=glue.of_babylm("mnli"),
    folders=("MNLI",),
    mark="gold_label",
    hub=Hub(
        "nyu-mll/glue",
        {"matched": "mnli", "mismatched": "mnli"},
        splits={"dev": "validation_{edition}"},
    ),
)
@dataclass(frozen=True)
class Mnli:
    """Premise and hypothesis; the test split has the genres of train, or (mismatched) others.

    Rows with the same premise are one group. Rows with the same hypothesis are not, because short
    ones ("I don't know.") occur with many premises. Rows without a gold label ("-") are left out.
    """

    # of the dev file; auto: the first whose files exist
    edition: Literal["auto", "matched", "mismatched", "babylm"] = "auto"

    def example(self, row: Json) -> Example | None:
        """Map a row of the file or of the Hub."""
        if row.get("gold_label") == "-":
            return None
        group = optional(row, "sentence1", "premise")
        return glue.example(row, TEXTS, LABELS, ("gold_label", "label"), group=group)
