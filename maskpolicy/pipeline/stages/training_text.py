"""The inputs of a training with its text and its validation text.

A leaf is a policy that selects: the row's policy, or each member of a mixture (see
`masking.selection.Masker`). The inputs with the columns and statistics of a single leaf are called
"annotate" and "statistics", those of several "annotate-00", "annotate-01", ..
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from maskpolicy.data.corpus.passages import Passages
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins.hooks import STATISTICS
from maskpolicy.plugins.statistics import Statistics

ANNOTATE = "annotate"  # the inputs with the columns of `annotate`
FEEDBACK = "feedback"  # the input with the columns of `reannotate`
ROOM_FACT = "room"  # the most tokens of a passage that a training reads, if it truncates some
LIMITS_FACT = "limits"  # of the masked spans of a passage; null: no passage may exceed them
STEPS_FACT = "steps"  # of a fine-tuning, which `patience` may end early
VALIDATION_FACT = "validation"  # losses on the validation text
VALIDATION_PREFIX = "validation-"  # begins the names of inputs with the validation text


def numbered(name: str, leaves: int) -> list[str]:
    """Return the names of the inputs called `name`, one for each leaf."""
    return [name] if leaves == 1 else [f"{name}-{i:02d}" for i in range(leaves)]


def open_views(inputs: Mapping[str, Path], leaves: int) -> list[Passages]:
    """Open the corpus of a stage once for each leaf, with the leaf's columns."""
    return [
        Passages.open(
            inputs["corpus"], *(inputs[each] for each in (name, FEEDBACK) if each in inputs)
        )
        for name in numbered(ANNOTATE, leaves)
    ]


def open_statistics(inputs: Mapping[str, Path], leaves: int) -> list[Statistics | None]:
    """Open the statistics that each leaf's `select` reads, or None."""
    names = numbered(STATISTICS, leaves)
    return [Statistics.open(inputs[name]) if name in inputs else None for name in names]


def statistics_keys(inputs: Mapping[str, str], leaves: int, store: Store) -> list[str | None]:
    """Return for each leaf of a computed training the key of its statistics, or None.

    `inputs` are the keys of the training's inputs. A leaf's statistics are an input of the training
    if `select` reads them, and of the stage of the leaf's columns if `annotate` does.
    """
    found: list[str | None] = []
    for own, name in zip(numbered(STATISTICS, leaves), numbered(ANNOTATE, leaves), strict=True):
        found.append(inputs.get(own) or inputs_of(inputs.get(name), store).get(STATISTICS))
    return found


def inputs_of(key: str | None, store: Store) -> Mapping[str, str]:
    """Return the keys of a computed stage's inputs by name; {} if the store lacks the stage."""
    known = store.peek(key) if key else None
    return known["record"]["inputs"] if known else {}
