"""Audit a task's data: test examples that also occur in train, and truncated texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from maskpolicy.core.types import Example, Json

_OUTER = " .,;:!?\"'“”‘’()[]"  # ignored at the ends of a question


def overlap(train: Sequence[Example], test: Sequence[Example], contexts: bool) -> Json:
    """Count the test examples that also occur in train: by text, or by id with another text.

    With `contexts`, the context is part of the text: the same question about another text is
    another example. Returns {"examples": of test, "same_text", "same_id": with another text}.
    """
    texts = {_text(example, contexts) for example in train}
    ids = {example.id for example in train}
    same = [_text(example, contexts) in texts for example in test]
    by_id = sum(
        example.id in ids and not is_same for example, is_same in zip(test, same, strict=True)
    )
    return {"examples": len(test), "same_text": sum(same), "same_id": by_id}


def notes(task: str, found: Json) -> list[str]:
    """Return a line for each finding of a task's audit; `found` is its audit.json."""
    shared = found["test_in_train"]
    lines = []
    if shared["same_text"]:
        share = _share(shared["same_text"], shared["examples"])
        lines.append(f"{share} test questions also stand in train")
    if shared["same_id"]:
        share = _share(shared["same_id"], shared["examples"])
        lines.append(f"{share} test questions have the id of a train question with another text")
    for cut in found["cuts"]:
        if cut["count"]:
            reason = "the model has no more positions"
            if cut["key"] != "positions":
                reason = f"finetune.{cut['key']} is the limit"
            share = _share(cut["count"], cut["texts"])
            what = f"{share} {cut['split']} {cut['what']}"
            lines.append(f"{what} were cut to {cut['limit']} tokens: {reason}")
    return [f"{task}: {line}" for line in lines]


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({100 * count / of:.3g}%)"


def _text(example: Example, contexts: bool) -> tuple[str, str]:
    return _normal(example.source), _normal(example.context or "") if contexts else ""


def _normal(text: str) -> str:
    """Return a text without differences of case, blanks, Unicode's forms and outer punctuation."""
    words = unicodedata.normalize("NFKC", text).casefold().split()
    plain = " ".join(words)
    return plain.strip(_OUTER) or plain
