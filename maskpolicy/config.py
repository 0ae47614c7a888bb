"""Experiment files: names looked up, keys checked, defaults filled in, one line for each error."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

from maskpolicy import budgets, keys, plugins, schema, yaml_file
from maskpolicy.budgets import SCRATCH, Training
from maskpolicy.errors import ConfigError, MaskpolicyError, unknown
from maskpolicy.experiment import (
    HUB,
    NONE,
    WORLD,
    Corpus,
    Experiment,
    Model,
    PolicyBlock,
    TaskBlock,
    resolved,
    resolved_task,
)
from maskpolicy.labels import name_all
from maskpolicy.registry import HOW_KEYS, Entry, names
from maskpolicy.schema import Count, Range, Seed, at
from maskpolicy.types import How, Json

__all__ = [
    "HUB",
    "NONE",
    "WORLD",
    "Corpus",
    "Experiment",
    "Model",
    "PolicyBlock",
    "TaskBlock",
    "Training",
    "instance",
    "load",
    "resolved",
    "task_block",
]

_SHARE = Range(ge=0, le=1)


@dataclass(frozen=True)
class _File:
    """The keys of an experiment file, before names are looked up; those of How come besides."""

    model: Any
    corpus: Any
    policies: list[Any]
    tasks: list[Any]
    data: str = WORLD
    seeds: tuple[Seed, ...] = (0,)
    intermediate_seeds: Count = 1
    baseline: str = NONE
    general: Any = None
    intermediate: Any = None
    finetune: Any = None
    fit: Any = None
    plugins: tuple[str, ...] = ()
    keep: tuple[Literal["finetune"], ...] = ()
    world: dict[str, Any] = field(default_factory=dict)


def load(
    path: str | Path, overrides: Sequence[str] = (), plugin_files: Sequence[str | Path] = ()
) -> Experiment:
    """Return the experiment of a YAML file after `key=value` overrides.

    `plugin_files` are loaded besides those that the file names. Paths are looked up beside the
    file, then in the working directory. Raises ConfigError: file, key, and what to do.
    """
    path = Path(path)
    given = yaml_file.read(path, overrides)
    where, folder = f"{path}: ", path.resolve().parent
    shared = {key: given.pop(key) for key in HOW_KEYS if key in given}
    shared = {key: getattr(_how(shared, where, {}), key) for key in shared}
    file = _File(**schema.block(_File, given, where, others=HOW_KEYS))
    modules = _plugins(file.plugins, plugin_files, at(where, "plugins"), folder)
    plugins.load_files(modules)
    model = _model(file.model, at(where, "model"), folder)
    policies = _policies(file.policies, at(where, "policies"), shared)
    _check_rows(file, policies, where)
    return Experiment(
        name=path.stem,
        model=model,
        corpus=_corpus(file.corpus, at(where, "corpus"), folder),
        policies=policies,
        tasks=_tasks(file, where, folder),
        seeds=file.seeds,
        intermediate_seeds=file.intermediate_seeds,
        baseline=file.baseline,
        **_trainings(given, model, where),
        plugins=modules,
        keep=file.keep,
        world=_world(file.world, where),
    )


def instance(kind: str, name: str, given: Mapping[str, Any], where: str = "") -> Any:
    """Return the plugin `name` made from its fields, JSON or not; raises ConfigError at `where`.

    A plugin that is a function takes no fields and is returned as it is.
    """
    entry = plugins.find(kind, name)
    return _made(entry, schema.block(entry.plugin, given, where or f"{kind} {name}"), where)


def _made(entry: Entry, values: Mapping[str, Any], where: str) -> Any:
    if not inspect.isclass(entry.plugin):
        return entry.plugin
    try:
        return entry.plugin(**values)
    except (MaskpolicyError, ValueError, TypeError) as error:
        raise ConfigError(f"{where or f'{entry.kind} {entry.name}'}: {error}") from error


def _plugins(
    named: Sequence[str], added: Sequence[str | Path], where: str, folder: Path
) -> tuple[str, ...]:
    paths = []
    for index, name in enumerate(named):
        found = yaml_file.locate(name, folder)
        if found is None:
            raise ConfigError(f"{where}[{index}]: no such file {name!r}, relative to {folder}")
        paths.append(str(found))
    return tuple(dict.fromkeys([*paths, *(str(Path(path).resolve()) for path in added)]))


def _model(given: Any, where: str, folder: Path) -> Model:
    block = {"name": given} if isinstance(given, str) else given
    model = Model(**schema.block(Model, block, where))
    if model.name in SCRATCH:
        return model
    found = yaml_file.locate(model.name, folder) if model.name else None
    if found is not None and found.is_dir():
        return Model(str(found), model.revision, model.kind)
    if model.name.count("/") != 1 or model.name.startswith((".", "/", "~")):
        raise ConfigError(
            f"{where}: {unknown('model', model.name, SCRATCH)}, a folder (none is there) "
            "or a Hub name such as facebook/bart-base"
        )
    return model


def _corpus(given: Any, where: str, folder: Path) -> Corpus:
    if isinstance(given, str) and given != WORLD:
        raise ConfigError(
            f"{where}: {unknown('corpus', given, [WORLD])}, {{files: [..]}} or {{hub: ..}}"
        )
    block = {"name": given} if isinstance(given, str) else given
    values = schema.block(Corpus, block, where)
    sources = [key for key in ("name", "files", "hub") if values[key]]
    if len(sources) != 1:
        raise ConfigError(f"{where}: give one of name, files and hub, not {len(sources)}")
    only_hub = {key for key in ("subset", "revision", "stream") if values[key]}
    if only_hub and not values["hub"]:
        raise ConfigError(f"{where}.{min(only_hub)}: is for a Hub dataset (hub: NAME) only")
    found: list[str] = []
    for index, pattern in enumerate(values["files"]):
        files = yaml_file.matches(pattern, folder)
        if not files:
            raise ConfigError(f"{where}.files[{index}]: no such file {pattern!r}")
        found += map(str, files)
    values["files"] = tuple(dict.fromkeys(found))
    return Corpus(**values)


def _how(given: Mapping[str, Any], where: str, defaults: Mapping[str, Any]) -> How:
    how = How(**schema.block(How, given, where, defaults))
    for key in ("insert", "mask_exclusion"):
        if not _SHARE.holds(getattr(how, key)):
            raise ConfigError(f"{at(where, key)}: must be {_SHARE}, not {getattr(how, key)}")
    return how


def _policies(
    items: Sequence[Any], where: str, shared: Mapping[str, Any]
) -> tuple[PolicyBlock, ...]:
    given = [_named(item, f"{where}[{i}]") for i, item in enumerate(items)]
    blocks = [_policy(item, f"{where}[{i}]", shared) for i, item in enumerate(given)]
    differ = [{**block.fields, **asdict(block.how)} for block in blocks]
    labels = name_all([b.name for b in blocks], [g.get("label") for g in given], differ, where)
    return tuple(replace(block, label=label) for block, label in zip(blocks, labels, strict=True))


def _policy(given: Mapping[str, Any], where: str, shared: Mapping[str, Any]) -> PolicyBlock:
    """Return one row, its label still to be chosen; the block's How wins, then the file's."""
    name = given["name"]
    own = {key: value for key, value in given.items() if key not in {"name", "label", *HOW_KEYS}}
    if name == NONE:
        strange = sorted(set(given) - {"name", "label"})
        if strange:
            raise ConfigError(f"{at(where, strange[0])}: {NONE} has no stage and takes no such key")
        return PolicyBlock(NONE, NONE)
    entry = _find("policy", name, where, [NONE])
    if not callable(getattr(entry.plugin, "select", None)):
        raise ConfigError(f"{entry.where}: policy {name!r} has no method `select`")
    others = ("name", "label", *HOW_KEYS)
    values = schema.block(entry.plugin, own, where, others=others)
    _made(entry, values, where)
    facts = asdict(_how(entry.facts, entry.where, {}))
    how = _how({k: given[k] for k in HOW_KEYS if k in given}, where, {**facts, **shared})
    return PolicyBlock(name, name, _plain(values, where), how)


def _tasks(file: _File, where: str, folder: Path) -> tuple[TaskBlock, ...]:
    data = _data(file.data, at(where, "data"), folder)
    where = at(where, "tasks")
    given = [_named(item, f"{where}[{i}]") for i, item in enumerate(file.tasks)]
    blocks = [task_block(item, f"{where}[{i}]", folder, data) for i, item in enumerate(given)]
    differ = [resolved_task(block) for block in blocks]
    labels = name_all([b.name for b in blocks], [g.get("label") for g in given], differ, where)
    return tuple(replace(block, label=label) for block, label in zip(blocks, labels, strict=True))


def task_block(given: Mapping[str, Any], where: str, folder: Path, data: str = WORLD) -> TaskBlock:
    """Return one column from its keys, called by its name; `data` is where the others come from.

    Raises ConfigError at `where`. Folders are looked up in `folder`, then from here.
    """
    name = given["name"]
    entry = _find("task", name, where)
    framework = {f.name for f in fields(TaskBlock)} - {"fields"}
    own = {key: value for key, value in given.items() if key not in framework}
    values = schema.block(entry.plugin, own, where, others=framework)
    _made(entry, values, where)
    ours = {key: value for key, value in given.items() if key in framework}
    block = schema.block(TaskBlock, ours, where, {"label": name, "data": data})
    block["data"] = _data(block["data"], at(where, "data"), folder)
    block["fields"] = _plain(values, where)
    return TaskBlock(**{**block, "label": name})


def _named(item: Any, where: str) -> Mapping[str, Any]:
    """Return a row or column as a block with a name, its label checked."""
    if isinstance(item, str):
        return {"name": item}
    if not isinstance(item, Mapping):
        raise schema.wrong(item, "a name or a block with a name", where)
    if "name" not in item:
        raise ConfigError(f"{where}.name: missing; it has no default")
    for key in ("name", "label"):
        if key in item:
            schema.check(item[key], str, at(where, key))
            if not item[key].strip():
                raise ConfigError(f"{at(where, key)}: is empty")
    return item


def _find(kind: str, name: str, where: str, others: Sequence[str] = ()) -> Entry:
    try:
        return plugins.find(kind, name)
    except ConfigError as error:
        if error.__cause__ is not None or name in names(kind):  # a broken plugin: say which
            raise
        raise ConfigError(f"{where}: {unknown(kind, name, [*names(kind), *others])}") from None


def _data(given: str, where: str, folder: Path) -> str:
    """Return where tasks come from: world, hub, or the absolute path of a folder."""
    if given in (WORLD, HUB):
        return given
    found = yaml_file.locate(given, folder) if given else None
    if found is None or not found.is_dir():
        raise ConfigError(f"{where}: {unknown('source', given, [WORLD, HUB])} or a folder")
    return str(found)


def _plain(values: Mapping[str, Any], where: str) -> dict[str, Json]:
    blocks = {
        key: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for key, value in values.items()
    }
    return {key: keys.plain(value, at(where, key)) for key, value in blocks.items()}


def _world(given: Mapping[str, Any], where: str) -> dict[str, Json]:
    """Return all settings of the embedded world, checked by the world itself."""
    from maskpolicy.world.settings import make

    try:
        settings = make(given)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error
    return keys.plain(asdict(settings))


def _trainings(given: Mapping[str, Any], model: Model, where: str) -> dict[str, Training]:
    """Return the four budgets; what a file leaves out depends on the model."""
    result = {}
    for stage, default in budgets.defaults(model.name).items():
        base = {f.name: getattr(default, f.name) for f in fields(Training)}
        result[stage] = Training(
            **schema.block(Training, given.get(stage, {}), at(where, stage), base)
        )
    if model.name not in SCRATCH and result["general"].steps:
        raise ConfigError(
            f"{where}general.steps: only a model built from scratch ({', '.join(SCRATCH)}) has a "
            "general stage: leave it out"
        )
    return result


def _check_rows(file: _File, policies: Sequence[PolicyBlock], where: str) -> None:
    for key in ("policies", "tasks", "seeds"):
        if not getattr(file, key):
            raise ConfigError(f"{at(where, key)}: is empty: give at least one")
    for seed in file.seeds:
        if file.seeds.count(seed) > 1:
            raise ConfigError(f"{at(where, 'seeds')}: seed {seed} is there twice")
    rows = [block.label for block in policies]
    if file.baseline not in rows:
        raise ConfigError(
            f"{at(where, 'baseline')}: {unknown('row', file.baseline, rows)}; the baseline must "
            "be one of the policies"
        )
