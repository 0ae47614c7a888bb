"""What multiple-choice tasks share: labelled choices, how a source shows them, the right one."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from maskpolicy.datafiles import fields
from maskpolicy.errors import DataError

Choose = Literal["generate", "likelihood"]
"""How a model chooses: it writes the text of a choice, or gives one of them the best likelihood."""


def read(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the text of each label, in order, HTML entities resolved."""
    found = {fields.text(e, "label"): clean(fields.text(e, "text")) for e in entries}
    if len(found) < max(2, len(entries)):
        raise DataError("key 'choices' must hold two choices or more, each with a label of its own")
    return found


def shown(choices: Mapping[str, str]) -> str:
    """Return the choices as a source has them: "(A) more (B) less" (UnifiedQA's form)."""
    return " ".join(f"({label}) {text}" for label, text in choices.items())


def right(choices: Mapping[str, str], key: str, label: str) -> str:
    """Return the text of the choice that `label`, found under `key`, names."""
    if label not in choices:
        raise DataError(f"key {key!r}: {label!r} is none of the choices {', '.join(choices)}")
    return choices[label]


def clean(text: str) -> str:
    """Return a text with its HTML entities resolved and without outer blanks."""
    return html.unescape(text).strip()
