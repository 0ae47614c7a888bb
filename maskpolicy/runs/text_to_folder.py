"""Continue pre-training on own text: from its files to a folder for Transformers."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy.graph.nodes import Stage, topological
from maskpolicy.graph.outcomes import Outcome, Progress
from maskpolicy.publishing import own_text, validation
from maskpolicy.runs.command_words import as_typed, policy_keys, repeated
from maskpolicy.store.artifacts import Store

if TYPE_CHECKING:
    from maskpolicy.config.experiment import Experiment


@dataclass(frozen=True)
class Request:
    """What to pre-train on what, as the words of the command `pretrain` say it."""

    model: str  # a preset, a folder, or a name on the Hub
    policy: str
    corpus: tuple[str, ...]  # files and patterns
    out: Path
    keys: tuple[str, ...] = ()  # KEY=VALUE, policy.KEY=VALUE
    plugins: tuple[Path, ...] = ()
    validation: tuple[str, ...] = ()  # files and patterns of text to measure the loss on

    @property
    def command(self) -> str:
        """The command, for the model card."""
        texts = repeated("--corpus", self.corpus)
        texts += repeated("--validation", self.validation)
        files = repeated("--plugin", self.plugins)
        named = ("--model", self.model, *texts, "--policy", self.policy, *self.keys)
        return as_typed("pretrain", *named, *files, "--out", self.out)


@dataclass(frozen=True)
class Prepared:
    """A pre-training as it was planned."""

    asked: Request
    experiment: Experiment
    stage: Stage  # the intermediate stage
    order: list[Stage]  # inputs first
    store: Store

    @property
    def out(self) -> Path:
        """The folder to write, as an absolute path."""
        return self.asked.out.resolve()


def prepare(asked: Request, store: Store) -> Prepared:
    """Read and plan a pre-training, and check its folder.

    Raises ConfigError, DataError or StoreError before any work.
    """
    from maskpolicy import stages
    from maskpolicy.executors.capacity import set_threads
    from maskpolicy.executors.stage_worker import check_resources
    from maskpolicy.models.model_kinds import check_folder
    from maskpolicy.training.tracking import check_installed

    block, rest = policy_keys(asked.policy, asked.keys)
    experiment = own_text.experiment(
        asked.model, asked.corpus, block, rest, asked.plugins, asked.validation
    )
    own_text.check_out(asked.out.resolve(), model=asked.model)
    plan = stages.build(experiment, store.hash_file, store.cut_file)
    check_folder(experiment.model)
    check_installed(experiment.tracker)
    stage = plan.pretrained[experiment.policies[0].label, experiment.runs[0]]
    validation.check_apart(stage)
    own_text.warn_if_replaced(asked.out.resolve(), stage)
    prepared = Prepared(asked, experiment, stage, topological([stage]), store)
    check_resources(experiment.resources, prepared.order, targets(prepared), store)
    set_threads(experiment, None)
    return prepared


def compute(
    prepared: Prepared, workers: int, bars: AbstractContextManager[Progress]
) -> Collection[Outcome]:
    """Compute the stages, with `workers` processes for each, and return their outcomes."""
    from maskpolicy.graph.execution import execute

    logs = prepared.out.with_name(f"{prepared.out.name}-logs")  # for a tracker, if one is set
    with bars as shown:
        found = execute(
            prepared.order,
            prepared.store,
            shown,
            targets=targets(prepared),
            workers=workers,
            logs=logs,
        )
    return found.values()


def export(prepared: Prepared, name: str = "") -> None:
    """Write the folder, whose model has a `name` on the Hub or none; raises StoreError."""
    command = prepared.asked.command
    own_text.export(
        prepared.experiment, prepared.stage, prepared.store, prepared.out, command, name
    )


def validation_sentence(prepared: Prepared) -> str:
    """Return what the finished training reached on the validation text; "" without such text."""
    artifact = prepared.store.get(prepared.stage.key)
    found = artifact and validation.validation_of(artifact.manifest)
    return validation.validation_sentence(found) if found else ""


def targets(prepared: Prepared) -> list[Stage]:
    """Return what must be in the store: also the tokenizer, which is exported with the model."""
    return [prepared.stage, prepared.stage.inputs["tokenizer"]]
