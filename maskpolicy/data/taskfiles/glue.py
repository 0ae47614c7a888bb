"""GLUE's and SuperGLUE's tasks (Wang et al. 2019): rows of files or of the Hub, and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Example, Json
from maskpolicy.data.datafiles.fields import text
from maskpolicy.data.taskfiles.sources import Hub

BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
FILES = {"train": "train.tsv", "dev": "dev.tsv"}
BABYLM = "babylm"  # the edition of BabyLM's evaluation pipeline


def facts(
    name: str, folder: str, labels: Sequence[str] = BINARY, *, babylm: bool = False, **own: Any
) -> dict[str, Any]:
    """Return the facts of a task of GLUE: the common ones and its `own`.

    `folder` is the folder of its files; with `babylm`, BabyLM's evaluation pipeline also has files.
    """
    editions = {"editions": ("glue", BABYLM), "others": of_babylm(name)} if babylm else {}
    return {
        **{"kind": "label", "group": "glue", "metric": "accuracy", "labels": labels},
        **{"files": FILES, "folders": (folder,), "hub": Hub("nyu-mll/glue", name)},
        **{"linked": True, "version": 2},
        **editions,
        **own,
    }


def superglue(name: str, folder: str) -> dict[str, Any]:
    """Return the common facts of SuperGLUE's tasks; `folder` is the folder of the files."""
    return {
        **{"kind": "label", "group": "superglue", "metric": "accuracy", "labels": BINARY},
        "editions": ("superglue", BABYLM),
        "files": {"train": "train.jsonl", "dev": "val.jsonl"},
        "others": of_babylm(name),
        "folders": (folder,),
        "hub": Hub("aps/super_glue", name),
    }


def of_babylm(name: str) -> dict[str, dict[str, str]]:
    """Return the names of a task's files in BabyLM's evaluation pipeline, by edition."""
    return {BABYLM: {"train": f"{name}.train.jsonl", "dev": f"{name}.valid.jsonl"}}


def label(row: Json, labels: Sequence[str], *keys: str) -> str | None:
    """Return the label under the first of `keys` that a row has, or None if it has no label.

    The Hub has numbers instead of labels, and -1 for none. Raises DataError for an unknown label.
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
    """Return the example of a row with one or two texts, or None if it has no label.

    `texts` are the columns of the texts ("official|the Hub's"), `keys` those of the label.
    """
    answer = label(row, labels, *keys)
    if answer is None:
        return None
    first, *second = (text(row, *names.split("|")).strip() for names in texts)
    context = second[0] if second else None
    return Example("", group, first, (answer,), context=context, choices=tuple(labels))
