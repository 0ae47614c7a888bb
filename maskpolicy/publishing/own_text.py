"""Continued pre-training of one model on the user's text, as an experiment without tasks."""

from __future__ import annotations

import fcntl
import glob
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from maskpolicy import keys, schema
from maskpolicy.config import learned_policies, parse, policy_blocks
from maskpolicy.config.experiment import ENCODER, NONE, RELATIVE, WORLD, Experiment, ModelKind
from maskpolicy.config.parse import make_experiment
from maskpolicy.config.policy_blocks import policy_block
from maskpolicy.errors import ConfigError, StoreError
from maskpolicy.files import check_folder, claim_folder, sync
from maskpolicy.graph.nodes import params_of
from maskpolicy.models.encoders import masked_lm_class
from maskpolicy.models.loading import is_relative, load_weights
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.models.position_limits import limits
from maskpolicy.plugins import discovery
from maskpolicy.plugins.registry import DENOISING_KEYS
from maskpolicy.publishing import cards
from maskpolicy.publishing.cards import ModelHistory
from maskpolicy.publishing.validation import validation_of, with_validation
from maskpolicy.stages.model_training import WORK
from maskpolicy.stages.params import CorpusParams, IntermediateParams
from maskpolicy.stages.training_text import VALIDATION_PREFIX
from maskpolicy.store import manifest
from maskpolicy.types import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maskpolicy.graph.nodes import Stage
    from maskpolicy.store.artifacts import Store

RECORD = "maskpolicy.json"  # all settings of a folder that we wrote
CARD = "README.md"
TOKENIZER, LONGEST = "tokenizer_config.json", "model_max_length"  # names of Transformers
PRETRAIN, EXPORT = "pretrain", "export"  # the commands that write such folders
_NO_SETTING = ("version", "stage", "work", "validation_loss")  # of a record
_PARTS = ("policy", "fields", "spec", "how")
_SHOWN = 3  # the most settings that a message lists
log = logging.getLogger(__name__)
_OURS = {
    *("model", "policies", "tasks", "seeds", "baseline", "data", "plugins", "finetune"),
    *("keep_models", "checkpoint_steps", "grid", "zip", "tune"),
}


def experiment(
    model: str,
    files: Sequence[str],
    policy: Mapping[str, Any],
    given: Mapping[str, Any],
    plugin_files: Sequence[Path] = (),
    validation: Sequence[str] = (),
) -> Experiment:
    """Return the experiment that pre-trains `model` once with the block `policy`.

    `files` are paths, patterns, or the single word "world"; `given` are further keys of an
    experiment (intermediate, corpus, general, world, keys of Denoising). `validation` are paths or
    patterns of text to measure the loss on. Raises ConfigError.
    """
    discovery.load_files(plugin_files, fresh=True)
    block = policy_block(policy, "policy", {})
    if not block.has_stage:
        raise ConfigError(f"--policy {NONE}: has no intermediate stage: name another policy")
    known = {*schema.fields_of(parse.File), *DENOISING_KEYS}
    policy_blocks.refuse_fields(block.name, set(given) - known)
    learns = learned_policies.learns_from_tasks(block)
    if learns and "data" not in given:
        raise ConfigError(
            f"--policy {block.name}: learns from the examples of tasks: set their source with "
            "data=DIR, data=hub or data=world"
        )
    learned_policies.check(block, (), WORLD, "policy")
    settings = {
        **_settable(given, learns, learned_policies.needs_classifier(block)),
        "model": {"name": model, **_part(given, "model")},
        "corpus": {**_source(files), **_part(given, "corpus")},
        "policies": [dict(policy)],
        "tasks": [],
        "baseline": block.name,
    }
    folders = (Path.cwd(),)
    made = make_experiment(settings, PRETRAIN, "", folders, plugin_files, needs=("corpus",))
    if validation:
        return with_validation(made, validation, folders)
    for key in ("eval_every", "patience"):
        if getattr(made.intermediate, key):
            raise ConfigError(
                f"intermediate.{key}: needs text to measure the loss on: --validation"
            )
    return made


def check_out(out: Path, verb: str = PRETRAIN, model: str | None = None) -> None:
    """Raise StoreError for an --out that cannot be used, before any work.

    A folder that the same command wrote earlier can be used; it is replaced at the end. That of
    the `model` cannot.
    """
    if model is not None and Path(model).is_dir() and Path(model).resolve() == out:
        raise StoreError(
            f"{out}: --out is the folder of --model, which would be lost: choose another --out"
        )
    if out.exists() and not out.is_dir():
        raise StoreError(f"{out}: is a file, not a folder: choose another --out")
    if out.is_dir() and any(out.iterdir()) and _verb(_record(out)) != verb:
        raise StoreError(
            f"{out}: is not empty and was not made by `maskpolicy {verb}`: choose another --out"
        )
    check_folder(out.parent)


def warn_if_replaced(out: Path, stage: Stage) -> None:
    """Log a warning if `out` has the model of an earlier `pretrain` with other settings."""
    old = _record(out)
    if not old or old.get("stage") == stage.key:
        return
    new = _settings(stage)
    before = {key: value for key, value in old.items() if key not in _NO_SETTING}
    lines = _differences(before, new)
    more = f"; {len(lines) - _SHOWN} more" if lines[_SHOWN:] else ""
    differ = "; ".join(lines[:_SHOWN]) + more or "another model"
    log.warning("%s: will be replaced: it was made with other settings (%s)", out, differ)


def _differences(old: Json, new: Json) -> list[str]:
    """Return "key: old -> new" for each setting that differs, the policy's first.

    Fields are compared only if the policy is the same.
    """
    named = {}
    for which, record in (("old", old), ("new", new)):
        other = {key: value for key, value in record.items() if key not in _PARTS}
        fields = {} if old.get("policy") != new["policy"] else record.get("fields", {})
        named[which] = (
            {"policy": record.get("policy")},
            {"policy": fields},
            {"intermediate": record.get("spec", {})},
            {**record.get("how", {}), **other},
        )
    return [
        line.lstrip(".")
        for before, after in zip(named["old"], named["new"], strict=True)
        for line in keys.differences(before, after, "")
    ]


def _record(out: Path) -> dict[str, Any]:
    """Return the RECORD of a folder, or {} if we did not write the folder."""
    try:
        found = json.loads((out / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _verb(record: Mapping[str, Json]) -> str:
    """Return the command that wrote a record, or "" for an empty one."""
    if not record:
        return ""
    return EXPORT if "stages" in record else PRETRAIN  # `export` records the stages of a run


def export(
    experiment: Experiment, stage: Stage, store: Store, out: Path, command: str, name: str = ""
) -> None:
    """Write model, tokenizer and card of a finished intermediate stage to `out`, atomically.

    `command` is shown in the card, with the model's `name` on the Hub if it is to have one. Raises
    StoreError.
    """
    artifact, tokenizer = store.get(stage.key), store.get(stage.inputs["tokenizer"].key)
    if artifact is None or tokenizer is None:
        raise StoreError(f"store {store.place}: {stage.name} is missing: run the command again")
    work = json.loads((artifact.path / WORK).read_text())
    validation = validation_of(artifact.manifest)
    record = {"version": 1, "stage": stage.key, **_settings(stage), "work": work}
    if validation is not None:
        record["validation_loss"] = validation
    corpus = params_of(stage.inputs["corpus"].record(), CorpusParams)
    about = ModelHistory(
        name=name or out.name,
        model=experiment.model.name,
        revision=stage.inputs["model"].keyed.get("revision"),
        command=command,
        manifest=artifact.manifest,
        kind=experiment.model.kind,
        **architecture(artifact.path, experiment.model.kind),
        is_relative=is_relative(str(artifact.path)),
        policy=experiment.policies[0].name,
        intermediate=params_of(artifact.manifest["record"], IntermediateParams),
        corpus=corpus.corpus,
        mix=corpus.mix,
        work=work,
        validation=validation,
    )
    parts = (tokenizer.path, artifact.path)
    place(out, parts, cards.card(about), record, about.limits[0])


def _settings(stage: Stage) -> dict[str, Json]:
    """Return what the model of an intermediate stage depends on."""
    read = stage.inputs.get(f"{VALIDATION_PREFIX}corpus")
    validation = {"validation": read.keyed["corpus"]} if read else {}
    return {**stage.keyed, **stage.inputs["corpus"].keyed, **validation}


def architecture(folder: Path, kind: ModelKind) -> dict[str, Any]:
    """Return what a model card says of the architecture: family, limits of texts, Auto class."""
    from transformers import AutoConfig

    config = load_weights(AutoConfig, str(folder))
    name = MODEL_KINDS[kind].family.lower() if config.model_type == RELATIVE else config.model_type
    has_head = kind == ENCODER and masked_lm_class(config) in (config.architectures or ())
    return {
        "family": name,
        "limits": limits(config),
        "auto_class": "AutoModelForMaskedLM" if has_head else "",
    }


def place(
    out: Path, parts: Sequence[Path], card: str, record: Json, positions: int | None = None
) -> None:
    """Write the files of artifacts, a model card and the record to the folder `out`, atomically.

    The tokenizer's maximum length is lowered to the model's `positions`. A folder that the same
    command wrote is replaced. Raises StoreError.
    """
    claim_folder(out.absolute().parent)
    with _alone_in(out.absolute().parent), _replacing(out, _verb(record)) as folder:
        for part in parts:
            for path in part.iterdir():
                if path.name not in (manifest.NAME, WORK):
                    shutil.copyfile(path, folder / path.name)
        if positions is not None:
            _bound(folder / TOKENIZER, positions)
        (folder / CARD).write_text(card, encoding="utf-8")
        (folder / RECORD).write_text(_json(record), encoding="utf-8")


def _bound(path: Path, positions: int) -> None:
    """Lower the maximum length in a tokenizer's configuration to `positions`."""
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known = settings.get(LONGEST)
    if not isinstance(known, int | float) or known > positions:
        path.write_text(_json({**settings, LONGEST: positions}), encoding="utf-8")


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that call `place`, without leaving a lock file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system may not support locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _replacing(out: Path, verb: str) -> Iterator[Path]:
    """Yield a new folder next to `out`; on success, flush it to disk and replace `out` by it."""
    out = out.absolute()
    for left in out.parent.glob(f".{glob.escape(out.name)}.{'[0-9a-f]' * 12}.part"):
        shutil.rmtree(left, ignore_errors=True)
    folder = out.parent / f".{out.name}.{uuid4().hex[:12]}.part"
    away = out.parent / f".{out.name}.{uuid4().hex[:12]}.part"
    try:
        folder.mkdir()
        yield folder
        for path in (*folder.iterdir(), folder):
            sync(path)
        check_out(out, verb)  # again: it may have changed during hours of training
        if out.exists():
            out.rename(away)
        folder.rename(out)
        sync(out.parent)
    except OSError as error:
        if away.exists() and not out.exists():
            with suppress(OSError):
                away.rename(out)
        reason = error.strerror or type(error).__name__
        raise StoreError(f"{out}: cannot be written: {reason}; choose another --out") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(away, ignore_errors=True)


def _settable(given: Mapping[str, Any], learns: bool, classifies: bool) -> dict[str, Any]:
    """Return the keys of an experiment.

    `data` may be set for a policy that learns from tasks only, and `finetune` for one that needs a
    classifier.
    """
    allowed = {"model", *(["data"] if learns else []), *(["finetune"] if classifies else [])}
    fixed = sorted(_OURS & set(given) - allowed)
    if fixed:
        raise ConfigError(
            f"{fixed[0]}: cannot be set here: pretrain has one policy, one model and no tasks"
        )
    return {key: value for key, value in given.items() if key not in ("model", "corpus")}


def _part(given: Mapping[str, Any], key: str) -> dict[str, Any]:
    block = given.get(key, {})
    if not isinstance(block, Mapping):
        raise ConfigError(f"{key}={block}: use --{key}; {key}.KEY=value sets its other keys")
    return dict(block)


def _source(files: Sequence[str]) -> dict[str, Any]:
    if list(files) == [WORLD] and not Path(WORLD).exists():
        return {"name": WORLD}
    return {"files": list(files)} if files else {}


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
