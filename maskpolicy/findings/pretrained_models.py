"""The pre-trained models behind the results of a run, those that were kept on the way included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from maskpolicy.results.cell import STEP, Result, Run

KINDS = ("intermediate", "general", "pretrained")
"""Stages that end with a pre-trained model; a result's is the first of these that it has."""


@dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A model of one row, at the end of its pre-training or kept on the way."""

    run: Run
    policy: str  # label of the row
    stage: int  # number of its intermediate run, or of its general model if it has none
    kept_at: int  # steps of the intermediate stage, for a checkpoint; 0: all
    key: str
    result: Result  # one that was fine-tuned from it

    @property
    def has_stage(self) -> bool:
        """Whether its row has an intermediate stage."""
        return "intermediate" in self.result.config

    @property
    def steps(self) -> int:
        """The steps of its intermediate stage; 0 for a row without one."""
        intermediate = self.result.config.get("intermediate") or {"steps": 0}
        return self.kept_at or int(intermediate["steps"])

    @property
    def tokenizer(self) -> str:
        """The key of its tokenizer."""
        return self.result.stages[
            next(name for name in self.result.stages if name.startswith("tokenizer"))
        ]


def pretrained_models(run: Run) -> Iterator[PretrainedModel]:
    """Yield each model of each row once, in the order of rows, runs and steps."""
    places = {label: place for place, label in enumerate(run.rows)}
    found: dict[tuple[str, str], PretrainedModel] = {}
    for result in (*run.early, *run.results):
        key = next(filter(None, map(result.stage_key, KINDS)), None)
        if key is not None:
            stage, kept_at = model_number(result)[1], int(result.config.get(STEP, 0))
            made = PretrainedModel(
                run=run, policy=result.policy, stage=stage, kept_at=kept_at, key=key, result=result
            )
            found.setdefault((result.policy, key), made)
    yield from sorted(
        found.values(), key=lambda each: (places[each.policy], each.stage, each.steps)
    )


def model_number(result: Result) -> tuple[str, int]:
    """Return ("run", its number), or without an intermediate stage ("general model", its number).

    Each row has one model for each such number.
    """
    number = result.config.get("intermediate_seed")
    if number is None:
        return "general model", result.config.get("general_seed", 0)
    return "run", number
