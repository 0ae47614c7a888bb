"""BLiMP (Warstadt et al. 2020): does a model prefer the grammatical sentence of a pair?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskpolicy import DataError, Example, Json, task
from maskpolicy.data.taskfiles import minimal_pairs

FACTS: dict[str, Any] = {
    **{"kind": "pairs", "group": "minimal pairs", "metric": "accuracy"},
    "files": {"test": "*.jsonl"},
}


@task("blimp", folders=("data", "blimp_filtered", "blimp_fast"), mark="UID", **FACTS)
@dataclass(frozen=True)
class Blimp:
    """67 files of 1,000 pairs, or BabyLM's selection of them. A paradigm (a file) is one group."""

    choose: minimal_pairs.Scored = "auto"  # how a text is scored

    def example(self, row: Json) -> Example | None:
        """Map a row; field and phenomenon are its slices."""
        return minimal_pairs.of_blimp(row)


@task(
    "blimp-supplement",
    folders=("supplement_filtered", "supplement_fast"),
    mark="sentence_good",
    **FACTS,
)
@dataclass(frozen=True)
class BlimpSupplement(Blimp):
    """BabyLM's further paradigms: questions, dialogues, hypernyms. A file is one group."""

    def example(self, row: Json) -> Example | None:
        """Map a row; raises DataError for one of BLiMP itself, which has the same keys and more."""
        if row.get("UID"):
            raise DataError("key 'UID': a row of BLiMP: name the folder of the supplement as data")
        return super().example(row)


@task("ewok", folders=("ewok_filtered", "ewok_fast"), mark="Context1", **FACTS)
@dataclass(frozen=True)
class Ewok:
    """EWoK (Ivanova et al. 2024) in BabyLM's files: which of two targets follows from a context?

    A domain is one group. The context is read, and the target alone is scored.
    """

    choose: minimal_pairs.Scored = "auto"  # how a text is scored

    def example(self, row: Json) -> Example:
        """Map a row: the first target belongs to the first context."""
        slices = {"context type": "ContextType", "context": "ContextDiff", "target": "TargetDiff"}
        return minimal_pairs.pair(
            row,
            ("Target1", "Target2"),
            group=row["Domain"],
            before=row["Context1"].strip(),
            slices={name: str(row[key]) for name, key in slices.items()},
        )
