"""Audit a task's data: test examples that also occur in train, and truncated texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from maskpolicy.core.types import Example, Json

_OUTER = " .,;:!?\"'“”‘’()[]"  # ignored at the ends of a question


def overlap(
    train: Sequence[Example], test: Sequence[Example], contexts: bool, ids: bool = True
) -> Json:
    """Count the test examples that also occur in train: by text, or by id with another text.

    With `contexts`, the context is part of the text; without `ids`, only texts are compared.
    Returns {"examples": of test, "same_text", "same_id": with another text}.
    """
    texts = {_text(example, contexts) for example in train}
    ids_of_train = {example.id for example in train if ids}
    others = [example for example in test if _text(example, contexts) not in texts]
    by_id = sum(example.id in ids_of_train for example in others)
    return {"examples": len(test), "same_text": len(test) - len(others), "same_id": by_id}


def notes(task: str, found: Json) -> list[str]:
    """Return a line for each finding of a task's audit; `found` is its audit.json."""
    shared = found["test_in_train"]
    lines = []
    for key, what in (
        ("same_text", "are also in train"),
        ("same_id", "have the id of a train question with another text"),
    ):
        if shared[key]:
            lines.append(f"{_share(shared[key], shared['examples'])} test questions {what}")
    for cut in found["cuts"]:
        if cut["count"]:
            is_model = cut["key"] == "positions"
            what = f"{_share(cut['count'], cut['texts'])} {cut['split']} {cut['what']}"
            why = "the model has no more positions"
            why = why if is_model else f"finetune.{cut['key']} is the limit"
            lines.append(f"{what} were cut to {cut['limit']} tokens: {why}")
    return [f"{task}: {line}" for line in lines]


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({100 * count / of:.3g}%)"


def _text(example: Example, contexts: bool) -> tuple[str, str]:
    return _normal(example.source), _normal(example.context or "") if contexts else ""


def _normal(text: str) -> str:
    """Return a text in lower case and one Unicode form, without repeated blanks and outer marks."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return plain.strip(_OUTER) or plain
