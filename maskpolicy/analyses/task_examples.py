"""The examples of the columns of a finished run, from the store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from maskpolicy.core.metrics.per_example import normalise
from maskpolicy.core.types import Example
from maskpolicy.data.taskfiles.sources import SPLITS
from maskpolicy.leaderboard.results.cell import Run
from maskpolicy.pipeline.store.artifacts import Store


@dataclass(frozen=True)
class ColumnExamples:
    """The examples of one column of a run, by split."""

    task: str  # label of the column
    splits: dict[str, list[Example]]

    @property
    def examples(self) -> list[Example]:
        """The examples of all splits."""
        return [example for split in self.splits.values() for example in split]


def column_examples(run: Run, store: Store) -> tuple[list[ColumnExamples], list[str]]:
    """Return the examples of every column, and a note for each column without stored ones."""
    from maskpolicy.pipeline.stages.evaluation import read_examples

    keys: dict[str, dict[str, str]] = {}
    for result in run.results:
        known = {split: result.examples_key(split) for split in SPLITS}
        if read := {split: key for split, key in known.items() if key}:
            keys.setdefault(result.task, read)
    found, notes = [], []
    for task in [each for each in run.columns if each in keys]:
        artifacts = {split: store.get(key) for split, key in keys[task].items()}
        splits = {
            split: read_examples(artifact.path, split)
            for split, artifact in artifacts.items()
            if artifact is not None
        }
        if len(splits) < len(artifacts):
            notes.append(f"{task}: its examples are not in the store {store.place}")
            continue
        found.append(ColumnExamples(task, splits))
    return found, notes


def answers(examples: Iterable[Example]) -> frozenset[str]:
    """Return all acceptable answers after normalisation, without empty ones."""
    texts = {normalise(target) for example in examples for target in example.targets}
    return frozenset(texts - {""})
