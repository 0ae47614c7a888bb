"""What GLUE's tasks share (Wang et al. 2019): TSV rows or the Hub's columns, and their labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maskpolicy.datafiles.fields import text
from maskpolicy.errors import DataError
from maskpolicy.formats.sources import Hub
from maskpolicy.types import Example, Json

BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
FILES = {"train": "train.tsv", "dev": "dev.tsv"}


def hub(config: str) -> Hub:
    """Return the Hub's dataset of a task."""
    return Hub("nyu-mll/glue", config)


def label(row: Json, labels: Sequence[str], *keys: str) -> str | None:
    """Return the label of a row under the first key that it has; the Hub's are numbers.

    None: the row has none (-1 on the Hub).
    """
    value: Any = next((row[key] for key in keys if row.get(key) not in (None, "")), None)
    if value is None or value == -1:
        return None
    if isinstance(value, int) and value < len(labels):
        return labels[value]
    if value in labels:
        return str(value)
    raise DataError(f"key {keys[0]!r}: {value!r} is none of the labels {', '.join(labels)}")


def example(
    row: Json,
    texts: Sequence[str],
    labels: Sequence[str],
    keys: Sequence[str] = ("label",),
    group: str = "",
) -> Example | None:
    """Map a row with one or two texts; None where it has no label.

    `texts` and `keys` are columns, official or the Hub's. Rows of one `group` belong together.
    """
    found = label(row, labels, *keys)
    if found is None:
        return None
    first, *second = (text(row, *names.split("|")).strip() for names in texts)
    return Example(
        id="",
        group=group,
        source=first,
        targets=(found,),
        context=second[0] if second else None,
        choices=tuple(labels),
    )
