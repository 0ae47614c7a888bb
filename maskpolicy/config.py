"""Experiment files: names looked up, keys checked, defaults filled in, one line for each error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from maskpolicy import budgets, keys, learned, plugins, schema, yaml_file
from maskpolicy.blocks import (
    data_source,
    how_block,
    instance,
    policy_block,
    policy_blocks,
    task_block,
    task_blocks,
)
from maskpolicy.budgets import SCRATCH, Training
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.experiment import (
    ENCODER,
    HUB,
    NONE,
    SEQ2SEQ,
    WORLD,
    Corpus,
    Experiment,
    Model,
    PolicyBlock,
    TaskBlock,
    resolved,
)
from maskpolicy.registry import HOW_KEYS
from maskpolicy.schema import Count, Seed, Stated, at
from maskpolicy.tracking import Tracker
from maskpolicy.types import Json

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
    "data_source",
    "instance",
    "load",
    "make",
    "policy_block",
    "resolved",
    "task_block",
]

NameOrKeys = Annotated[Any, Stated("a name or a block of keys")]
Budget = Annotated[Any, Stated("a block of keys")]


@dataclass(frozen=True)
class File:
    """The keys of an experiment file, before names are looked up; those of How come besides."""

    model: NameOrKeys  # what is pre-trained further; a name stands for `{name: ..}`
    corpus: NameOrKeys  # the text of the intermediate stage: world, or a block
    policies: list[NameOrKeys]  # the rows of the leaderboard
    tasks: list[NameOrKeys]  # its columns
    data: str = WORLD  # where tasks lie that do not say it themselves: world, hub or a folder
    seeds: tuple[Seed, ...] = (0,)  # of fine-tuning: each cell is computed once for each
    intermediate_seeds: Count = 1  # runs of each intermediate stage, shared out over `seeds`
    baseline: str = NONE  # label of the row that every other is compared with
    general: Budget = field(default_factory=dict)  # pre-training of a model built from scratch
    intermediate: Budget = field(default_factory=dict)  # pre-training with a policy
    finetune: Budget = field(default_factory=dict)  # fine-tuning on a task
    fit: Budget = field(default_factory=dict)  # the training of a learned policy
    plugins: tuple[str, ...] = ()  # files with policies and tasks, beside the experiment file
    keep: tuple[Literal["finetune"], ...] = ()  # stages whose models stay, for `export`
    keep_at: tuple[Count, ...] = ()  # steps of the intermediate stage that are fine-tuned besides
    world: dict[str, Any] = field(default_factory=dict)  # settings of the embedded world
    tracker: Tracker | None = None  # writes the losses of every training below logs/


def load(
    path: str | Path, overrides: Sequence[str] = (), plugin_files: Sequence[str | Path] = ()
) -> Experiment:
    """Return the experiment of a YAML file after `key=value` overrides; see `make`.

    Paths are looked up beside the file, then in the working directory.
    """
    path = Path(path)
    given = yaml_file.read(path, overrides)
    return make(given, path.stem, f"{path}: ", path.resolve().parent, plugin_files)


def make(
    given: dict[str, Any],
    name: str,
    where: str,
    folder: Path,
    plugin_files: Sequence[str | Path] = (),
    needs: Sequence[str] = ("policies", "tasks", "seeds"),
) -> Experiment:
    """Return the experiment of the keys `given`, which are used up.

    `plugin_files` are loaded besides those that the keys name; `needs` are lists that must not be
    empty. Raises ConfigError: where, key, and what to do.
    """
    shared = {key: given.pop(key) for key in HOW_KEYS if key in given}
    how = how_block(shared, where, {})
    shared = {key: getattr(how, key) for key in shared}
    file = File(**schema.block(File, given, where, others=HOW_KEYS))
    modules = _plugins(file.plugins, plugin_files, at(where, "plugins"), folder)
    plugins.load_files(modules)
    model = _model(file.model, at(where, "model"), folder)
    policies = policy_blocks(file.policies, at(where, "policies"), shared, model.kind)
    data = data_source(file.data, at(where, "data"), folder)
    _check_rows(file, policies, where, needs)
    trainings = _trainings(given, model, where)
    tasks = task_blocks(file.tasks, at(where, "tasks"), folder, data)
    for index, block in enumerate(policies):
        place = f"{at(where, 'policies')}[{index}]"
        learned.check(block, tasks, data, place)
        learned.tell_warmups(block, place)
    return Experiment(
        name=name,
        model=model,
        corpus=_corpus(file.corpus, at(where, "corpus"), folder),
        policies=policies,
        tasks=tasks,
        data=data,
        seeds=file.seeds,
        intermediate_seeds=file.intermediate_seeds,
        baseline=file.baseline,
        **trainings,
        plugins=modules,
        keep=file.keep,
        keep_at=_keep_at(file.keep_at, trainings["intermediate"], at(where, "keep_at")),
        world=_world(file.world, where),
        tracker=file.tracker,
    )


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
    _check_layers(model, where)
    if model.is_scratch:
        return model
    found = yaml_file.locate(model.name, folder) if model.name else None
    if found is not None and found.is_dir():
        return replace(model, name=str(found))
    example = "facebook/bart-base" if model.kind == SEQ2SEQ else "FacebookAI/roberta-base"
    if model.name.count("/") != 1 or model.name.startswith((".", "/", "~")):
        others = set(SCRATCH[ENCODER]) - set(SCRATCH[model.kind])
        more = f", {min(others)} (of kind: {ENCODER} only)" if others else ""
        known = unknown("model", model.name, SCRATCH[model.kind])
        raise ConfigError(
            f"{where}: {known}{more}, a folder (none is there) or a Hub name such as {example}"
        )
    return model


def _check_layers(model: Model, where: str) -> None:
    """Raise ConfigError where a size is given to a model that does not take it."""
    if model.layers is not None and not (model.kind == ENCODER and model.is_scratch):
        raise ConfigError(
            f"{at(where, 'layers')}: is for an encoder built from scratch "
            f"({', '.join(SCRATCH[ENCODER])}) only: leave it out"
        )
    if model.kind == SEQ2SEQ and model.decoder_layers != Model.decoder_layers:
        raise ConfigError(f"{at(where, 'decoder_layers')}: is for kind: {ENCODER} only")


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
            raise ConfigError(f"{where}.files[{index}]: {_no_file(pattern, folder)}")
        found += map(str, files)
    values["files"] = tuple(dict.fromkeys(found))
    return Corpus(**values)


def _no_file(pattern: str, folder: Path) -> str:
    """Return why a path or pattern gives no file, and what to write where it is a folder."""
    found = yaml_file.locate(pattern, folder)
    if found is None:
        return f"no such file {pattern!r}"
    return f"{pattern!r} is a folder: name its files, e.g. {str(Path(pattern) / '*.txt')!r}"


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
    for stage, default in budgets.defaults(model.name, model.kind).items():
        base = {f.name: getattr(default, f.name) for f in fields(Training)}
        block = given.get(stage, {})
        spec = Training(**schema.block(Training, block, at(where, stage), base))
        if "warmup" not in block:
            spec = replace(spec, warmup=budgets.warmup(default.warmup, spec.steps))
        budgets.tell_warmup(spec.warmup, spec.steps, at(where, stage))
        result[stage] = spec
    if not model.is_scratch and result["general"].steps:
        raise ConfigError(
            f"{where}general.steps: only a model built from scratch "
            f"({', '.join(SCRATCH[model.kind])}) has a general stage: leave it out"
        )
    return result


def _keep_at(given: Sequence[int], spec: Training, where: str) -> tuple[int, ...]:
    """Return the steps in order; each must lie within the intermediate stage."""
    for index, step in enumerate(given):
        if step >= spec.steps:
            raise ConfigError(
                f"{where}[{index}]: {step} is not before the last of intermediate.steps "
                f"({spec.steps}), after which every model is fine-tuned anyway"
            )
    return tuple(sorted(set(given)))


def _check_rows(
    file: File, policies: Sequence[PolicyBlock], where: str, needs: Sequence[str]
) -> None:
    for key in needs:
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
