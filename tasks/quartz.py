"""QuaRTz (Tafjord et al. 2019): questions about qualitative relations, two choices each."""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Hub, Json, task
from maskpolicy.data.taskfiles import block, choices, optional, records, text


@task(
    "quartz",
    group="multiple-choice",
    metric="multiple_choice",
    files={"train": "train.jsonl", "dev": "dev.jsonl", "test": "test.jsonl"},
    folders=("quartz-dataset-v1-aug2019", "quartz-dataset-v1"),
    mark="para",
    hub=Hub("allenai/quartz"),
)
@dataclass(frozen=True)
class Quartz:
    """Stem, choices and the sentence with the relation, which is also the context.

    Questions about one sentence are one group.
    """

    choose: choices.Choose = "generate"  # write a choice, or take the likeliest one
    paragraph: bool = True  # put the sentence into the source

    def example(self, row: Json) -> Example | None:
        """Map a row; on the Hub `question` is the stem, and `choices` lies beside it."""
        question = row if isinstance(row.get("question"), str) else block(row, "question")
        labelled = choices.read(records(question, "choices"))
        label = optional(row, "answerKey")
        if not label:
            return None
        paragraph = optional(row, "para")
        parts = [
            text(question, "stem", "question").strip(),
            choices.shown(labelled),
            paragraph if self.paragraph else "",
        ]
        return Example(
            id=text(row, "id"),
            group=str(row.get("para_id") or paragraph),
            source="\n".join(filter(None, parts)),
            targets=(choices.right(labelled, "answerKey", label),),
            context=paragraph or None,
            choices=tuple(labelled.values()),
        )
