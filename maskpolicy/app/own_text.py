"""Continued pre-training on the user's text, which writes a Transformers folder."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskpolicy.app.arguments import as_typed, policy_keys, repeated
from maskpolicy.app.cards import ModelHistory, validation_of, validation_sentence
from maskpolicy.app.file_to_folder import StoreCounter
from maskpolicy.app.transformers_folders import (
    PRETRAIN,
    architecture,
    check_out,
    place,
    record_of,
)
from maskpolicy.core import hub, keys, schema
from maskpolicy.core.errors import ConfigError, StoreError, listed
from maskpolicy.core.files import read_json
from maskpolicy.core.types import Json
from maskpolicy.experiment import learned_policies, parse, policy_blocks
from maskpolicy.experiment.definition import NONE, WORLD, Experiment
from maskpolicy.experiment.model_and_corpus import corpus_block
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.experiment.policy_blocks import policy_block
from maskpolicy.models.model_kinds import check_folder
from maskpolicy.models.training.loop import check_installed
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.executors.engines import check_resources, set_threads
from maskpolicy.pipeline.graph.events import Listener, Outcome
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, params_of, topological
from maskpolicy.pipeline.stages import feedback
from maskpolicy.pipeline.stages.model_training import WORK
from maskpolicy.pipeline.stages.params import CorpusParams, IntermediateParams
from maskpolicy.pipeline.stages.training_text import VALIDATION_PREFIX
from maskpolicy.pipeline.store.artifacts import Store, available
from maskpolicy.plugins import discovery
from maskpolicy.plugins.registry import DENOISING_KEYS

_SHOWN = 3  # the most settings that a message lists
_TIMES = 10  # evaluations, if intermediate.eval_every is not set
log = logging.getLogger(__name__)
_OURS = {
    *("model", "policies", "tasks", "seeds", "baseline", "data", "plugins", "finetune"),
    *("keep_models", "checkpoint_steps", "checkpoint_words", "grid", "zip", "tune"),
}


@dataclass(frozen=True)
class Request:
    """The arguments of the command `pretrain`."""

    model: str  # a preset, a folder, or a name on the Hub
    policy: str
    corpus: Sequence[str]  # files and patterns
    out: Path
    keys: Sequence[str] = ()  # KEY=VALUE, policy.KEY=VALUE
    plugins: Sequence[Path] = ()
    validation: Sequence[str] = ()  # files and patterns of text to measure the loss on

    @property
    def command(self) -> str:
        """The command, for the model card."""
        texts = repeated("--corpus", self.corpus)
        texts += repeated("--validation", self.validation)
        files = repeated("--plugin", self.plugins)
        named = ("--model", self.model, *texts, "--policy", self.policy, *self.keys)
        return as_typed("pretrain", *named, *files, "--out", self.out)


def _experiment(asked: Request, store: Store) -> Experiment:
    """Return the experiment that pre-trains a model once with one policy; raises ConfigError."""
    policy, keys = policy_keys(asked.policy, asked.keys)
    discovery.load_files(asked.plugins, fresh=True)
    block = policy_block(policy, "policy", {})
    if not block.has_stage:
        raise ConfigError(f"--policy {NONE}: has no intermediate stage: name another policy")
    allowed = {*schema.fields_of(parse.File), *DENOISING_KEYS}
    policy_blocks.refuse_fields(block.name, set(keys) - allowed)
    free = {"model"}
    if learned_policies.learns_from_tasks(block):
        free.add("data")
        if "data" not in keys:
            raise ConfigError(
                f"--policy {block.name}: learns from the examples of tasks: set their source with "
                "data=DIR, data=hub or data=world"
            )
    if learned_policies.needs_classifier(block):
        free.add("finetune")
    learned_policies.check(block, (), WORLD, "policy")
    if fixed := sorted(_OURS & set(keys) - free):
        raise ConfigError(
            f"{fixed[0]}: cannot be set here: pretrain has one policy, one model and no tasks"
        )
    files, folders = list(asked.corpus), (Path.cwd(),)
    is_world = files == [WORLD] and not Path(WORLD).exists()
    text = {"name": WORLD} if is_world else {"files": files}
    settings = {
        **keys,
        "model": {"name": asked.model, **_part(keys, "model")},
        "corpus": {**text, **_part(keys, "corpus")},
        "policies": [dict(policy)],
        "tasks": [],
        "baseline": block.name,
    }
    planned = make_experiment(
        settings, PRETRAIN, "", folders, asked.plugins, ("corpus",), StoreCounter(store)
    )
    if asked.validation:
        return _with_validation(planned, asked.validation, folders)
    for key in ("eval_every", "patience"):
        if getattr(planned.intermediate, key):
            raise ConfigError(
                f"intermediate.{key}: needs text to measure the loss on: --validation"
            )
    return planned


def _part(keys: Mapping[str, Any], key: str) -> dict[str, Any]:
    block = keys.get(key, {})
    if not isinstance(block, Mapping):
        raise ConfigError(f"{key}={block}: use --{key}; {key}.KEY=value sets its other keys")
    for own in {"name", "files"} & block.keys():
        raise ConfigError(f"{key}.{own}: cannot be set here: use --{key}")
    return dict(block)


def _with_validation(
    experiment: Experiment, files: Sequence[str], folders: Sequence[Path]
) -> Experiment:
    """Return a pre-training that is validated on files, which are read like those of its corpus.

    Raises ConfigError for a missing file, for 0 steps, and for a policy that asks the model.
    """
    block, spec, corpus = experiment.policies[0], experiment.intermediate, experiment.corpus
    if feedback.every(block):
        raise ConfigError(
            f"--validation: {block.name} is trained in parts, between which it reads the corpus "
            "again; such a training cannot be validated: leave --validation out"
        )
    if not spec.steps:
        raise ConfigError("--validation: intermediate.steps is 0: there is nothing to validate")
    text = corpus_block({"files": list(files)}, "--validation", folders)
    alike = ("words", "tokens", "pack", "language", "on_error", "column")
    text = replace(text, **{key: getattr(corpus, key) for key in alike})
    if corpus.name is None:
        text = replace(text, columns=corpus.columns)
    every = spec.eval_every or -(-spec.steps // _TIMES)
    return replace(
        experiment,
        validation_corpus=text,
        intermediate=replace(spec, eval_every=min(every, spec.steps)),
    )


def _check_apart(training: Stage) -> None:
    """Raise ConfigError if the content of a validation file is in the training corpus, too."""
    text = training.inputs.get(f"{VALIDATION_PREFIX}corpus")
    if text is None:
        return
    trained_on = {digest: name for name, digest in _files(training.inputs["corpus"])}
    for name, digest in _files(text):
        if digest in trained_on:
            raise ConfigError(
                f"--validation: {name}: the corpus has the same file ({trained_on[digest]}): the "
                "loss of text that the model is trained on says little: name other files"
            )


def _files(corpus: Stage) -> Iterator[tuple[str, str]]:
    """Yield the name and digest of each file of a corpus and of the texts mixed into it."""
    keyed = corpus.keyed.get("corpus")
    yield from (keyed or {}).get("files") or ()
    for other in corpus.inputs.values():
        if other.kind == corpus.kind:
            yield from _files(other)


@dataclass(frozen=True)
class Prepared:
    """A planned pre-training."""

    asked: Request
    experiment: Experiment
    stage: Stage  # the intermediate stage
    store: Store

    @property
    def out(self) -> Path:
        """The folder to write, as an absolute path."""
        return self.asked.out.resolve()

    @property
    def targets(self) -> list[Stage]:
        """The stages whose artifacts are exported: the model and its tokenizer."""
        return [self.stage, self.stage.inputs["tokenizer"]]


def prepare(asked: Request, store: Store) -> Prepared:
    """Plan a pre-training and check its folder.

    Raises ConfigError, DataError or StoreError before any work.
    """
    out = asked.out.resolve()
    check_out(out)
    hub.forget_commits()
    planned = _experiment(asked, store)
    if Path(planned.model.name).is_absolute() and Path(planned.model.name).resolve() == out:
        raise StoreError(
            f"{out}: --out is the folder of --model, which would be lost: choose another --out"
        )
    plan = stages.build(planned, store.hash_file, store.cut_file)
    check_folder(planned.model)
    check_installed(planned.tracker)
    stage = plan.pretrained[planned.policies[0].label, planned.runs[0]]
    _check_apart(stage)
    _warn_if_replaced(out, stage)
    prepared = Prepared(asked, planned, stage, store)
    check_resources(planned.resources, topological([stage]), prepared.targets, store)
    set_threads(planned, None)
    return prepared


def compute(
    prepared: Prepared, workers: int, bars: AbstractContextManager[Listener]
) -> Collection[Outcome]:
    """Compute the stages, with `workers` processes for each, and return their outcomes."""
    logs = prepared.out.with_name(f"{prepared.out.name}-logs")  # for a tracker, if one is set
    with bars as shown:
        outcomes = execute(
            [prepared.stage],
            prepared.store,
            shown,
            targets=prepared.targets,
            workers=workers,
            logs=logs,
        )
    return outcomes.values()


def _warn_if_replaced(out: Path, stage: Stage) -> None:
    """Log a warning if `out` holds the model of an earlier `pretrain` with other settings."""
    old = record_of(out)
    if not old or old.get("stage") == stage.key:
        return
    new = _settings(stage)
    names = {"policy": "policy", "fields": "policy", "spec": "intermediate", "how": ""}
    if old.get("policy") != new["policy"]:
        del names["fields"]
    names |= {key: key for key in new if key not in ("fields", *names)}
    lines = [
        line.lstrip(".")
        for key, name in names.items()
        for line in keys.differences(old.get(key, {}), new.get(key, {}), name)
    ]
    differ = listed(lines, "; ", _SHOWN) or "another model"
    log.warning("%s: will be replaced: it was made with other settings (%s)", out, differ)


def export(prepared: Prepared, name: str = "") -> str:
    """Write model, tokenizer and card to the folder, atomically; raises StoreError.

    The card shows the model's `name` on the Hub, if there is one. Returns a line about the
    validation loss, or "" if there is none.
    """
    planned, stage, store, out = prepared.experiment, prepared.stage, prepared.store, prepared.out
    artifact, tokenizer = (available(store, each.key, each.name) for each in prepared.targets)
    work = read_json(artifact.path / WORK)
    validation = validation_of(artifact.manifest)
    record = {"version": 1, "stage": stage.key, **_settings(stage), "work": work}
    if validation is not None:
        record["validation_loss"] = validation
    corpus = params_of(stage.inputs["corpus"].record(), CorpusParams)
    about = ModelHistory(
        name=name or out.name,
        model=planned.model.name,
        revision=stage.inputs["model"].keyed.get("revision"),
        command=prepared.asked.command,
        manifest=artifact.manifest,
        kind=planned.model.kind,
        **architecture(artifact.path, planned.model.kind),
        policy=planned.policies[0].name,
        intermediate=params_of(artifact.manifest["record"], IntermediateParams),
        corpus=corpus.corpus,
        mix=corpus.mix,
        work=work,
        validation=validation,
    )
    place(out, (tokenizer.path, artifact.path), about, record)
    return validation_sentence(validation) if validation else ""


def _settings(stage: Stage) -> dict[str, Json]:
    """Return what the model of an intermediate stage depends on."""
    read = stage.inputs.get(f"{VALIDATION_PREFIX}corpus")
    validation = {"validation": read.keyed["corpus"]} if read else {}
    return {**stage.keyed, **stage.inputs["corpus"].keyed, **validation}
