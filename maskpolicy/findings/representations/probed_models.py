"""Probe accuracies of the pre-trained models of runs, from the store or computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy.errors import ConfigError, StoreError
from maskpolicy.findings.cache import derive
from maskpolicy.findings.pretrained_models import PretrainedModel, pretrained_models
from maskpolicy.findings.representations.linear_probe import Probed
from maskpolicy.findings.representations.probes import ProbeParams, read
from maskpolicy.graph.nodes import params_of
from maskpolicy.results.cell import Result, Run
from maskpolicy.store.artifacts import Store
from maskpolicy.world.settings import Settings


@dataclass(frozen=True, eq=False)
class Accuracy:
    """What one probe reads off one layer of a model."""

    model: PretrainedModel
    probe: str
    layer: int
    is_last: bool  # layer of the model
    found: Probed

    @property
    def percent(self) -> float:
        """The accuracy in percent."""
        return 100 * self.found.accuracy


def accuracies(
    runs: Sequence[Run], store: Store, people: int = 300, seed: int = 0
) -> tuple[list[Accuracy], list[str]]:
    """Return the accuracies of each model of each row, and a note for each missing model.

    `people` is the most whose entries are read, `seed` draws the parts of the probes. Raises
    ConfigError for runs without the embedded world.
    """
    found: list[Accuracy] = []
    notes: list[str] = []
    for run in runs:
        for model in pretrained_models(run):
            try:
                found += _of_model(model, store, people, seed)
            except StoreError as error:
                notes.append(f"{run.name}, {model.policy}, run {model.stage}: {error}")
    return found, notes


def _of_model(model: PretrainedModel, store: Store, people: int, seed: int) -> list[Accuracy]:
    params = ProbeParams(world=_world_of(model.result, store), people=people, seed=seed)
    inputs = {"model": model.key, "tokenizer": model.tokenizer}
    rows = read(derive(store, "probe", model.policy, params, inputs).path)
    last = max((row["layer"] for row in rows), default=0)
    return [
        Accuracy(model, row.pop("probe"), layer, layer == last, Probed(**row))
        for row in rows
        for layer in [row.pop("layer")]
    ]


def _world_of(result: Result, store: Store) -> Settings:
    """Return the settings of a result's world; raises ConfigError and StoreError."""
    key = result.stage_key("world")
    if key is None:
        raise ConfigError("probe: asks for facts of the embedded world and needs corpus: world")
    manifest = store.recall(key)
    if manifest is None:
        raise StoreError(
            f"its world is not in the store {store.place}: name the store of that run with --store"
        )
    return params_of(manifest["record"], Settings)
