"""SQuAD v1.1 and v2.0 (Rajpurkar et al. 2016, 2018): the answer is a span of a paragraph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskpolicy import DataError, Example, Hub, Json, task
from maskpolicy.data.taskfiles import digest, optional, records, text

FACTS: dict[str, Any] = {
    "kind": "span",
    "group": "extractive",
    "folders": ("squad",),
    "at": "data.paragraphs.qas",
    "version": 2,
}


@task(
    "squad",
    metric="squad_v1",
    files={"train": "train-v1.1.json", "dev": "dev-v1.1.json"},
    hub=Hub("rajpurkar/squad"),
    **FACTS,
)
@dataclass(frozen=True)
class Squad:
    """A question about a paragraph, which contains the answer.

    Questions about one article are one group, or about one paragraph if it has no title.
    """

    def example(self, row: Json) -> Example | None:
        """Map a question with its paragraph's keys: a row of the Hub, or of the official file."""
        return _example(row) if records(row, "answers") else None


@task(
    "squad_v2",
    metric="squad",
    files={"train": "train-v2.0.json", "dev": "dev-v2.0.json"},
    hub=Hub("rajpurkar/squad_v2"),
    unanswerable=True,
    **FACTS,
)
@dataclass(frozen=True)
class SquadV2:
    """As squad, but the paragraph does not answer every question."""

    def example(self, row: Json) -> Example | None:
        """Map a question with its paragraph's keys; without answers it is not answerable."""
        if not isinstance(row.get("is_impossible", False), bool):
            raise DataError("key 'is_impossible' must be true or false")
        is_unlabelled = row.get("is_impossible") is False or "answers" not in row
        return None if is_unlabelled and not records(row, "answers") else _example(row)


def _example(row: Json) -> Example:
    answers, context = records(row, "answers"), text(row, "context")
    return Example(
        id=text(row, "id"),
        group=optional(row, "title") or digest(context),
        source=text(row, "question").strip(),
        targets=tuple(text(answer, "text") for answer in answers),
        context=context,
        start=_start(answers[0], context) if answers else None,
        answerable=bool(answers),
    )


def _start(answer: Json, context: str) -> int:
    """Return the character at which the first answer begins, without blanks around it."""
    start, said = answer.get("answer_start"), text(answer, "text")
    if not isinstance(start, int) or context[start : start + len(said)] != said or start < 0:
        raise DataError(f"key 'answers.answer_start': the text at {start} is not {said!r}")
    return start + len(said) - len(said.lstrip())
