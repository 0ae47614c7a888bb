"""ROPES (Lin et al. 2019): what a background passage implies for a new situation."""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Hub, Json, task
from maskpolicy.data.taskfiles import digest, records, text


@task(
    "ropes",
    group="multiple-choice",
    metric="exact_match_f1",
    files={"train": "train-v1.0.json", "dev": "dev-v1.0.json"},
    folders=("ropes-train-dev-v1.0",),
    at="data.paragraphs.qas",
    hub=Hub("allenai/ropes"),
)
@dataclass(frozen=True)
class Ropes:
    """Question, situation and background; the answer is a span of one of them.

    Questions about one background are one group.
    """

    background: bool = True  # put the background into the source

    def example(self, row: Json) -> Example | None:
        """Map a question with its paragraph's keys: a row of the Hub, or of the official file."""
        background, situation = (text(row, key).strip() for key in ("background", "situation"))
        targets = tuple(text(answer, "text") for answer in records(row, "answers"))
        if not targets:
            return None
        parts = [
            text(row, "question").strip(),
            situation,
            background if self.background else "",
        ]
        return Example(
            id=text(row, "id"),
            group=digest(background),
            source="\n".join(filter(None, parts)),
            targets=targets,
            context=f"{situation}\n{background}",
        )
