"""WebQuestions (Berant et al. 2013) as closed-book question answering."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskpolicy import DataError, Example, Hub, Json, task
from maskpolicy.data.taskfiles import dpr, optional, text, texts

_HEAD = "(list"
# quotes inside quotes are not escaped: a value ends where the next one begins, or the list ends
_VALUE = re.compile(
    r'\s*\(description\s+(?:"(?P<quoted>.*?)"|(?P<bare>[^"].*?))\s*\)'
    r"(?=\s*\(description\s|\s*\)\s*\Z)",
    re.DOTALL,
)

_COMPANIONS = {"train": ("train", "dev"), "test": ("test",)}  # DPR's dev is part of train


@task(
    "webquestions",
    group="closed-book",
    metric="exact_match",
    files={
        "train": "webquestions.examples.train.json",
        "test": "webquestions.examples.test.json",
    },
    hub=Hub("stanfordnlp/web_questions"),
    retrieval=True,
)
@dataclass(frozen=True)
class WebQuestions:
    """Questions of web users; the context is a passage of DPR's file, if it exists.

    Questions about one Freebase entity are one group. Prefer the official files: the Hub's copy
    was parsed by a regular expression that damages answers with quotes or parentheses.
    """

    def example(self, row: Json) -> Example | None:
        """Map a row; the Hub has its answers in a list."""
        answers = values(text(row, "targetValue")) if row.get("targetValue") else ()
        targets = answers or tuple(texts(row, "answers"))
        if not targets:
            return None
        return Example("", optional(row, "url"), text(row, "utterance", "question"), targets)

    def evidence(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> Callable[[Json, Example], str | None]:
        """Return a lookup of the first positive passage that holds an answer."""
        questions = (text(row, "utterance", "question") for row in rows)
        return dpr.passages(questions, self.evidence_files(rows, beside, split))

    def evidence_files(
        self, rows: Sequence[Json], beside: Sequence[Path], split: str
    ) -> list[Path]:
        """Return those of DPR's files that exist."""
        return dpr.companions("webquestions", beside, _COMPANIONS[split])


def values(expression: str) -> tuple[str, ...]:
    """Return the values of `(list (description "A") (description B))`, without their quotes."""
    stated = expression.strip()
    stated_values, at = [], len(_HEAD)
    while stated.startswith(_HEAD) and (match := _VALUE.match(stated, at)):
        stated_values.append(match["bare"] if match["quoted"] is None else match["quoted"])
        at = match.end()
    if not stated.startswith(_HEAD) or stated[at:].strip() != ")":
        raise DataError(
            f"key 'targetValue' must read (list (description ..) ..), not {expression[:60]!r}"
        )
    return tuple(stated_values)
