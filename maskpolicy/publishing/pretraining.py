"""Continued pre-training of one model on one's own text: an experiment without tasks."""

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
from maskpolicy.config.experiment import NONE, WORLD, Experiment
from maskpolicy.config.parse import make_experiment
from maskpolicy.config.policy_blocks import policy_block
from maskpolicy.errors import ConfigError, StoreError
from maskpolicy.files import claim_folder, sync
from maskpolicy.graph.nodes import params_of
from maskpolicy.models import seq2seq as models
from maskpolicy.models.loading import is_relative, load_weights
from maskpolicy.plugins import discovery
from maskpolicy.plugins.registry import HOW_KEYS
from maskpolicy.publishing import cards
from maskpolicy.publishing.cards import ModelHistory
from maskpolicy.stages.models import WORK
from maskpolicy.stages.params import CorpusParams, IntermediateParams
from maskpolicy.store import manifest
from maskpolicy.types import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from maskpolicy.graph.nodes import Stage
    from maskpolicy.store.artifacts import Store

RECORD = "maskpolicy.json"  # what made a folder; a folder without it is somebody else's
CARD = "README.md"
TOKENIZER, LONGEST = "tokenizer_config.json", "model_max_length"  # as Transformers calls them
PRETRAIN, EXPORT = "pretrain", "export"  # the verbs that write such folders
_NO_SETTING = ("version", "stage", "work")  # of a record
_PARTS = ("policy", "fields", "spec", "how")
_SHOWN = 3  # settings that a line names
log = logging.getLogger(__name__)
_OURS = {
    *("model", "policies", "tasks", "seeds", "baseline", "data", "plugins", "finetune"),
    *("keep_models", "checkpoint_steps"),
}


def experiment(
    model: str,
    files: Sequence[str],
    policy: Mapping[str, Any],
    given: Mapping[str, Any],
    plugin_files: Sequence[Path] = (),
) -> Experiment:
    """Return the experiment that pre-trains `model` once with the block `policy`.

    `files` are paths, patterns, or the one word "world"; `given` are further keys of an experiment
    (intermediate, corpus, general, world, keys of How). Raises ConfigError naming the key.
    """
    discovery.load_files(plugin_files, fresh=True)
    block = policy_block(policy, "policy", {})
    if not block.has_stage:
        raise ConfigError(f"--policy {NONE}: has no intermediate stage: name another policy")
    policy_blocks.refuse_fields(block.name, set(given) - {*schema.fields_of(parse.File), *HOW_KEYS})
    if learned_policies.is_learned(block) and "data" not in given:
        raise ConfigError(
            f"--policy {block.name}: learns from the questions of tasks: say where these lie with "
            "data=DIR, data=hub or data=world"
        )
    learned_policies.check(
        block, (), WORLD, "policy"
    )  # what it learns from is looked up here by name alone
    wanted = {
        **_settable(given, learned_policies.is_learned(block)),
        "model": {"name": model, **_part(given, "model")},
        "corpus": {**_source(files), **_part(given, "corpus")},
        "policies": [dict(policy)],
        "tasks": [],
        "baseline": block.name,
    }
    return make_experiment(wanted, PRETRAIN, "", (Path.cwd(),), plugin_files, needs=("corpus",))


def claim(out: Path, verb: str = PRETRAIN) -> None:
    """Refuse an --out that cannot be used, before any work: raises StoreError.

    A folder that the same verb made earlier is replaced in the end.
    """
    if out.exists() and not out.is_dir():
        raise StoreError(f"{out}: is a file, not a folder: choose another --out")
    if out.is_dir() and any(out.iterdir()) and _verb(_record(out)) != verb:
        raise StoreError(
            f"{out}: is not empty and was not made by `maskpolicy {verb}`: choose another --out"
        )
    claim_folder(out.parent)


def tell(out: Path, stage: Stage) -> None:
    """Log a line where `out` holds the model of an earlier `pretrain` with other settings."""
    old = _record(out)
    if not old or old.get("stage") == stage.key:
        return
    new = _settings(stage)
    before = {key: value for key, value in old.items() if key not in _NO_SETTING}
    found = _differences(before, new)
    more = f"; {len(found) - _SHOWN} more" if found[_SHOWN:] else ""
    differ = "; ".join(found[:_SHOWN]) + more or "another model"
    log.warning("%s: will be replaced: it was made with other settings (%s)", out, differ)


def _differences(old: Json, new: Json) -> list[str]:
    """Return a line for each setting that differs, by its key on the command line; policy first.

    Fields of two policies are not compared.
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
    """Return what says how a folder was made; nothing of a folder that is not ours."""
    try:
        found = json.loads((out / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _verb(record: Mapping[str, Json]) -> str:
    """Return the verb that wrote a record; of `export` it holds the stages of a run."""
    if not record:
        return ""
    return EXPORT if "stages" in record else PRETRAIN


def export(made: Experiment, stage: Stage, store: Store, out: Path, command: str) -> None:
    """Write model, tokenizer and model card of a finished intermediate stage to the folder `out`.

    `command` is what the card says of how it was made. The folder appears whole or not at all.
    Raises StoreError.
    """
    artifact, tokenizer = store.get(stage.key), store.get(stage.inputs["tokenizer"].key)
    if artifact is None or tokenizer is None:
        raise StoreError(f"store {store.root}: {stage.name} is not there: give the command again")
    work = json.loads((artifact.path / WORK).read_text())
    record = {"version": 1, "stage": stage.key, **_settings(stage), "work": work}
    about = ModelHistory(
        name=out.name,
        model=made.model.name,
        revision=stage.inputs["model"].keyed.get("revision"),
        command=command,
        manifest=artifact.manifest,
        kind=made.model.kind,
        positions=positions(artifact.path),
        is_relative=is_relative(str(artifact.path)),
        policy=made.policies[0].name,
        intermediate=params_of(artifact.manifest["record"], IntermediateParams),
        corpus=params_of(stage.inputs["corpus"].record(), CorpusParams).corpus,
        work=work,
    )
    parts = (tokenizer.path, artifact.path)
    place(out, parts, cards.card(about), record, about.positions)


def _settings(stage: Stage) -> dict[str, Json]:
    """Return what the model of an intermediate stage depends on."""
    return {**stage.keyed, **stage.inputs["corpus"].keyed}


def positions(folder: Path) -> int:
    """Return the most tokens that the model in a folder takes."""
    from transformers import AutoConfig

    return models.positions(load_weights(AutoConfig, str(folder)))


def place(
    out: Path, parts: Sequence[Path], card: str, record: Json, positions: int | None = None
) -> None:
    """Write the files of artifacts, a model card and what made them to the folder `out`.

    Its tokenizer truncates, where it is asked to, to the model's `positions`. The folder appears
    whole or not at all; one that the same verb made is replaced. Raises StoreError.
    """
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
    """Let a tokenizer's configuration say how many tokens its model takes, unless it says fewer."""
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known = settings.get(LONGEST)
    if not isinstance(known, int | float) or known > positions:
        path.write_text(_json({**settings, LONGEST: positions}), encoding="utf-8")


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let no other process place anything into `folder` meanwhile; no lock file stays in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system may know no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def _replacing(out: Path, verb: str) -> Iterator[Path]:
    """Give a new folder beside `out`, and put it in its place, flushed to disk, on a clean exit."""
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
        claim(out, verb)  # hours have passed
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


def _settable(given: Mapping[str, Any], is_learned: bool) -> dict[str, Any]:
    """Return the keys that may be set: `data`, where tasks lie, for a learned policy only."""
    fixed = sorted(_OURS & set(given) - ({"model", "data"} if is_learned else {"model"}))
    if fixed:
        raise ConfigError(
            f"{fixed[0]}: is not to be set here: pretrain has one policy, one model and no task"
        )
    return {key: value for key, value in given.items() if key not in ("model", "corpus")}


def _part(given: Mapping[str, Any], key: str) -> dict[str, Any]:
    block = given.get(key, {})
    if not isinstance(block, Mapping):
        raise ConfigError(f"{key}={block}: use --{key}; {key}.KEY=value sets what goes with it")
    return dict(block)


def _source(files: Sequence[str]) -> dict[str, Any]:
    if list(files) == [WORLD] and not Path(WORLD).exists():
        return {"name": WORLD}
    return {"files": list(files)} if files else {}


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
