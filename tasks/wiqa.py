"""WIQA (Tandon et al. 2019): what a change does to a step of a process: more, less, no effect."""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import DataError, Example, Json, task
from maskpolicy.data.taskfiles import block, choices, digest, optional, records, text, texts


@task(
    "wiqa",
    group="multiple-choice",
    metric="multiple_choice",
    files={"train": "train.jsonl", "dev": "dev.jsonl", "test": "test.jsonl"},
    folders=("wiqa-dataset-v2-october-2019", "wiqa-dataset-v2"),
    mark="question.para_steps",
    version=2,
)
@dataclass(frozen=True)
class Wiqa:
    """Stem, choices and the steps of the process, which are also the context.

    Questions about one process are one group: those with the same paragraph; if a row names none,
    the same influence graph; or else the same steps.
    """

    choose: choices.Choose = "generate"  # write a choice, or take the likeliest one
    steps: bool = True  # put the steps of the process into the source

    def example(self, row: Json) -> Example | None:
        """Map a row; the target is the text of the right choice."""
        question, about = block(row, "question"), block(row, "metadata")
        if "para_steps" not in question:
            raise DataError("key 'question.para_steps' is missing: this is not a row of WIQA")
        labelled = choices.read(records(question, "choices"))
        target = _right(question, labelled)
        if target is None:
            return None
        process = "\n".join(filter(None, map(choices.clean, texts(question, "para_steps"))))
        stem = choices.clean(text(question, "stem"))
        text_id = digest(process) if process else ""
        return Example(
            id=optional(about, "ques_id"),
            group=str(about.get("para_id") or about.get("graph_id") or text_id),
            source="\n".join(
                filter(None, [stem, choices.shown(labelled), process if self.steps else ""])
            ),
            targets=(target,),
            context=process or None,
            choices=tuple(labelled.values()),
            slices={
                "question type": str(about.get("question_type", "")),
                "hops": str(about.get("path_len", "")),
            },
        )


def _right(question: Json, labelled: dict[str, str]) -> str | None:
    """Return the right choice's text; `no_effect` names the choice `no effect`."""
    label = optional(question, "answer_label_as_choice")
    if label:
        return choices.right(labelled, "answer_label_as_choice", label)
    name = optional(question, "answer_label").replace("_", " ")
    return choices.right({t: t for t in labelled.values()}, "answer_label", name) if name else None
