"""ROPES (Lin et al. 2019): what a background passage says of a new situation."""

from __future__ import annotations

from dataclasses import dataclass

from maskpolicy import Example, Hub, Json, task
from maskpolicy.formats import digest, records, text


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
    """Question, situation, background; the answer lies in one of them.

    Questions on one background belong together. `background: false` leaves it out of the source.
    """

    background: bool = True  # the background stands in the source

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
