"""Multiple-choice tasks: read labelled choices, show them in a source, find the right one."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from maskpolicy.core.errors import DataError
from maskpolicy.data.datafiles import fields

Choose = Literal["generate", "likelihood"]
"""How a model chooses: it generates a text, or the choice with the best likelihood wins."""


def read(entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return {label: text} in order, with HTML entities resolved; raises DataError."""
    labelled = {fields.text(e, "label"): clean(fields.text(e, "text")) for e in entries}
    if len(labelled) < max(2, len(entries)):
        raise DataError("key 'choices' must hold two choices or more, each with a label of its own")
    return labelled


def shown(choices: Mapping[str, str]) -> str:
    """Return the choices in UnifiedQA's form: "(A) more (B) less"."""
    return " ".join(f"({label}) {text}" for label, text in choices.items())


def right(choices: Mapping[str, str], key: str, label: str) -> str:
    """Return the text of the choice `label`; DataError names the `key` that holds a wrong one."""
    if label not in choices:
        raise DataError(f"key {key!r}: {label!r} is none of the choices {', '.join(choices)}")
    return choices[label]


def clean(text: str) -> str:
    """Return a text with its HTML entities resolved and without outer blanks."""
    return html.unescape(text).strip()
