"""Parse experiment files: look names up, check keys, fill in defaults; an error is one line."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from maskpolicy import schema
from maskpolicy.config import learned_policies, pointers, sweeps, verbatim, yaml_file
from maskpolicy.config.budgets import (
    GENERAL_ONLY,
    TRAININGS,
    Training,
    row_trainings,
    training_blocks,
)
from maskpolicy.config.corpus_columns import OF_WORLD, check_columns
from maskpolicy.config.corpus_mix import check_mix, row_corpus, with_mix
from maskpolicy.config.experiment import (
    NONE,
    WORLD,
    CorpusBlock,
    Experiment,
    ModelBlock,
    PolicyBlock,
    Tracker,
)
from maskpolicy.config.general_policy import check_scratch, general_policy
from maskpolicy.config.model_and_corpus import corpus_block, model_block, world_block
from maskpolicy.config.policy_blocks import compares_corpora, denoising_block
from maskpolicy.config.resources import resources_block
from maskpolicy.config.row_blocks import Usual, baseline_row, row_blocks
from maskpolicy.config.slurm import Slurm
from maskpolicy.config.task_blocks import data_source, task_blocks, warn_of_missing_answers
from maskpolicy.config.verbatim import WrittenExperiment
from maskpolicy.errors import ConfigError
from maskpolicy.plugins import discovery
from maskpolicy.plugins.registry import CORPUS, DENOISING_KEYS
from maskpolicy.schema import Count, Seed, Stated, Steps, at, old_name, renamed

log = logging.getLogger(__name__)
_MOST_SEEDS = 20  # `seeds: N` up to here may be meant as N seeds

NameOrKeys = Annotated[Any, Stated(schema.NAME_OR_KEYS)]
Budget = Annotated[Any, Stated("a block of keys")]


@dataclass(frozen=True)
class File:
    """The keys of an experiment file except those of Denoising; names are not looked up yet."""

    model: NameOrKeys  # what is pre-trained further; a name stands for `{name: ..}`
    corpus: NameOrKeys  # the text of the intermediate stage: world, or a block
    policies: list[NameOrKeys]  # the rows of the leaderboard
    tasks: list[NameOrKeys]  # its columns
    # general text that policies compare the corpus with, as `corpus`; left out: that of the general
    # stage, which only a model built from scratch has
    contrast_corpus: NameOrKeys | None = None
    data: str = WORLD  # the source of tasks whose block names none: world, hub or a folder
    seeds: tuple[Seed, ...] = (0,)  # of fine-tuning: each cell is computed once per seed
    intermediate_seeds: Count = 1  # runs of each intermediate stage, divided among `seeds`
    intermediate_runs: tuple[Steps, ...] = ()  # the numbers of these runs; empty: 0, 1, ..
    general_seeds: Count = 1  # models built from scratch, divided among the intermediate runs
    # the row that all others are compared with: its label or its policy; of several rows of that
    # policy that differ in trainings alone, each row is compared with that most like it
    baseline: str = NONE
    general: Budget = field(default_factory=dict)  # pre-training of a model built from scratch
    intermediate: Budget = field(default_factory=dict)  # pre-training with a policy
    finetune: Budget = field(default_factory=dict)  # fine-tuning on a task
    fit: Budget = field(default_factory=dict)  # the training of a learned policy
    # lists of values by key, for all rows: a row for each combination (docs/sweeps.md)
    grid: Budget = field(default_factory=dict)
    zip: Budget = field(default_factory=dict)  # the same, but the lists are read in step
    # lists of values by key, for all rows: each takes those that are best on dev (docs/sweeps.md)
    tune: Budget = field(default_factory=dict)
    plugins: tuple[str, ...] = ()  # files with policies and tasks, beside the experiment file
    # stages whose models are kept, for `export`
    keep_models: tuple[Literal["finetune"], ...] = renamed("keep", ())
    # steps of the intermediate stage after which its model is fine-tuned as well
    checkpoint_steps: tuple[Count, ...] = renamed("keep_at", ())
    world: dict[str, Any] = field(default_factory=dict)  # settings of the embedded world
    tracker: Tracker | None = None  # writes the losses of every training below logs/
    # GPUs, processes and cores of each kind of stage; they change no result beyond rounding
    resources: Budget = field(default_factory=dict)
    slurm: Budget = field(default_factory=dict)  # the jobs of `--executor slurm`


def load_experiment(
    path: str | Path, overrides: Sequence[str] = (), plugin_files: Sequence[str | Path] = ()
) -> Experiment:
    """Return the experiment of a YAML file after `key=value` overrides; see `make_experiment`.

    Paths are looked up beside the file, then in the working directory. For a file that `run` kept
    in its folder, those are the original file's folder and the directory in which it was run.
    """
    return experiment_of(verbatim.read_experiment(Path(path), overrides, plugin_files), path)


def experiment_of(asked: WrittenExperiment, path: str | Path) -> Experiment:
    """Return the experiment that the file `path` states; see `load_experiment`."""
    given = yaml_file.values(asked.experiment, f"{path}: ", asked.keys)
    _prefer_overrides(given, asked.keys)
    return make_experiment(given, asked.name, f"{path}: ", asked.folders, asked.plugins)


def _prefer_overrides(given: dict[str, Any], overrides: Sequence[str]) -> None:
    """If an override sets one of the two keys of intermediate runs, drop the file's other one."""
    pair = ("intermediate_runs", "intermediate_seeds")
    stated = {override.partition("=")[0] for override in overrides}
    for key, other in (pair, pair[::-1]):
        if key in stated and given.get(key) and other not in stated:
            given.pop(other, None)


def make_experiment(
    given: dict[str, Any],
    name: str,
    where: str,
    folders: Sequence[Path],
    plugin_files: Sequence[str | Path] = (),
    needs: Sequence[str] = ("policies", "tasks", "seeds"),
) -> Experiment:
    """Return the experiment of the keys `given`; the dictionary is changed.

    Paths are looked up in `folders`, then in the working directory. `plugin_files` are loaded in
    addition to those that the keys name; `needs` are lists that must not be empty. Raises
    ConfigError with `where`, the key and what to do.
    """
    file, shared = _file(given, where)
    modules = _plugins(file.plugins, plugin_files, at(where, "plugins"), folders)
    discovery.load_files(modules, fresh=True)
    model = model_block(file.model, at(where, "model"), folders)
    trainings = training_blocks(given, model.is_scratch, where)
    if trainings["general"].steps:
        check_scratch(model, f"{where}general.steps")
    corpus = with_mix(file.corpus, at(where, CORPUS), folders)
    rows, policies = _rows(file, given, shared, model, trainings, corpus, where, folders)
    data = data_source(file.data, at(where, "data"), folders)
    _check_lists(file, where, needs)
    tasks = task_blocks(file.tasks, at(where, "tasks"), folders, data)
    contrast = None
    if file.contrast_corpus is not None:
        contrast = corpus_block(file.contrast_corpus, at(where, "contrast_corpus"), folders)
    world = world_block(file.world, where)
    warn_of_missing_answers(tasks, world, at(where, "tasks"))
    made = Experiment(
        name=name,
        where=where,
        model=model,
        corpus=corpus,
        policies=policies,
        tasks=tasks,
        contrast_corpus=contrast,
        data=data,
        plugins=modules,
        world=world,
        **_of_trainings(file, model, policies, trainings, where),
        keep_models=file.keep_models,
        tracker=file.tracker,
        resources=resources_block(file.resources, at(where, "resources")),
        slurm=Slurm(**schema.block(Slurm, file.slurm, at(where, "slurm"))),
    )
    _check_texts(made, rows)
    return made


def _check_texts(made: Experiment, rows: Sequence[sweeps.Row]) -> None:
    """Raise ConfigError for a row, as written in `rows`, that cannot read its corpus or tasks."""
    model, world = made.model, made.world
    check_mix(made.corpus, model, world, at(made.where, CORPUS))
    for row, block in zip(rows, made.policies, strict=True):
        for written, each in zip(row.candidates(), block.candidates or (block,), strict=True):
            own = made.corpus_of(each)
            try:
                check_mix(own, model, world, at(row.place, CORPUS))
                check_columns(each, own, world, row.place)
                learned_policies.check(each, made.tasks, made.data, row.place)
            except ConfigError as error:
                raise written.placed(error) from None
            learned_policies.warn_of_long_warmups(each, row.place)
            if not model.is_scratch and made.contrast_corpus is None:
                _check_contrast(each, row.place)
    if made.general_policy is not None:
        place = at(at(made.where, "general"), GENERAL_ONLY)
        check_columns(made.general_policy, OF_WORLD, world, place)


def _of_trainings(
    file: File,
    model: ModelBlock,
    policies: Sequence[PolicyBlock],
    trainings: Mapping[str, Training],
    where: str,
) -> dict[str, Any]:
    """Return the fields of an Experiment that say how often and how long each row is trained."""
    runs, general = _runs(file, where), at(where, "general")
    return {
        **trainings,
        "general_policy": general_policy(file.general, model, trainings["general"].steps, general),
        "seeds": file.seeds,
        "intermediate_seeds": runs,
        "intermediate_runs": file.intermediate_runs,
        "general_seeds": _general_models(file, model, runs, at(where, "general_seeds")),
        "baseline": baseline_row(file.baseline, policies, at(where, "baseline")),
        "checkpoint_steps": _checkpoint_steps(
            file.checkpoint_steps, policies, trainings, at(where, "checkpoint_steps")
        ),
    }


def _file(given: dict[str, Any], where: str) -> tuple[File, dict[str, Any]]:
    """Return the keys of a file, and those of Denoising that all policies share."""
    _warn_of_old_names(File, given, where)
    for stage in TRAININGS:
        _warn_of_old_names(Training, given.get(stage), at(where, stage))
    shared = _shared(given, where)
    _check_places(given, where)
    _take_as_lists(given, where)
    return File(**schema.block(File, given, where, others=DENOISING_KEYS)), shared


def _take_as_lists(given: dict[str, Any], where: str) -> None:
    """Replace one policy, task or seed by a list of one."""
    seed = given.get("seeds")
    if type(seed) is int and 1 < seed <= _MOST_SEEDS:
        log.warning(
            "%s: %s is one seed, of this number; for so many seeds write %s",
            at(where, "seeds"),
            seed,
            list(range(seed)),
        )
    for key, kind in (("policies", str), ("tasks", str), ("seeds", int)):
        if type(given.get(key)) is kind:
            given[key] = [given[key]]


def _rows(
    file: File,
    given: Mapping[str, Any],
    shared: Mapping[str, Any],
    model: ModelBlock,
    trainings: Mapping[str, Training],
    corpus: CorpusBlock,
    where: str,
    folders: Sequence[Path],
) -> tuple[list[sweeps.Row], tuple[PolicyBlock, ...]]:
    """Return the rows of a file as written, after its sweeps, and as blocks."""
    place = at(where, "policies")
    rows = sweeps.rows(file.policies, place, given, where)

    def own(stated: Mapping[str, Any], place: str) -> Mapping[str, Mapping[str, Any]]:
        budgets = {key: each for key, each in stated.items() if key != CORPUS}
        found = row_trainings(budgets, given, model.is_scratch, place)
        if CORPUS not in stated:
            return found
        where = at(place, CORPUS)
        return {**found, CORPUS: row_corpus(stated[CORPUS], corpus, where, folders)}

    usual: Usual = {**trainings, CORPUS: corpus}
    return rows, row_blocks(rows, place, shared, model.kind, usual, own)


def _warn_of_old_names(block: type[File | Training], given: Any, where: str) -> None:
    for each in fields(block) if isinstance(given, Mapping) else ():
        if old_name(each) != each.name and old_name(each) in given:
            log.warning("%s: is now called %s", at(where, old_name(each)), each.name)


def _shared(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Remove the keys of Denoising that all policies share from `given`; return them checked."""
    stated = {key: given.pop(key) for key in DENOISING_KEYS if key in given}
    denoising = denoising_block(stated, where, {})
    return {key: getattr(denoising, key) for key in stated}


def _plugins(
    named: Sequence[str], added: Sequence[str | Path], where: str, folders: Sequence[Path]
) -> tuple[str, ...]:
    paths = []
    for index, name in enumerate(named):
        found = yaml_file.locate(name, folders)
        if found is None:
            beside = next(iter(folders), Path.cwd())
            raise ConfigError(f"{where}[{index}]: no such file {name!r}, relative to {beside}")
        if fault := discovery.fault_of_path(found):
            raise ConfigError(f"{where}[{index}]: {name}: {fault}")
        paths.append(str(found))
    return tuple(dict.fromkeys([*paths, *(str(Path(path).resolve()) for path in added)]))


def _runs(file: File, where: str) -> int:
    """Return the number of intermediate runs of each row; raises ConfigError."""
    numbers, key = file.intermediate_runs, "intermediate_runs"
    for run in numbers:
        if numbers.count(run) > 1:
            raise ConfigError(f"{at(where, key)}: run {run} is given twice")
    if numbers and file.intermediate_seeds not in (1, len(numbers)):
        raise ConfigError(
            f"{at(where, key)}: names {len(numbers)} runs, but intermediate_seeds is "
            f"{file.intermediate_seeds}: leave intermediate_seeds out, or set it to {len(numbers)}"
        )
    found = len(numbers) or file.intermediate_seeds
    if found > max(1, len(file.seeds)):
        place = at(where, key if numbers else "intermediate_seeds")
        raise ConfigError(
            f"{place}: {found} runs cannot be divided among {len(file.seeds)} of seeds: give "
            "more seeds, or fewer runs"
        )
    return found


def _general_models(file: File, model: ModelBlock, runs: int, where: str) -> int:
    """Return the number of general models; raises ConfigError.

    With intermediate_runs, several machines may share the general models, so that this machine's
    runs need not divide evenly.
    """
    wanted = file.general_seeds
    if wanted > 1:
        check_scratch(model, where)
    if runs % wanted and not file.intermediate_runs:
        raise ConfigError(
            f"{where}: {wanted} general models cannot be divided evenly among {runs} of "
            f"intermediate_seeds: set intermediate_seeds: {wanted} or a multiple, and as many seeds"
        )
    return wanted


def _checkpoint_steps(
    given: Sequence[int],
    policies: Sequence[PolicyBlock],
    trainings: Mapping[str, Training],
    where: str,
) -> tuple[int, ...]:
    """Return the steps in order; raises ConfigError for one beyond every intermediate stage."""
    every = (each for block in policies for each in block.candidates or (block,) if each.has_stage)
    own = (block.trainings.get("intermediate", {}) for block in every)
    steps = trainings["intermediate"].steps
    longest = max((each.get("steps", steps) for each in own), default=steps)
    for index, step in enumerate(given):
        if step >= longest:
            raise ConfigError(
                f"{where}[{index}]: {step} must be smaller than intermediate.steps "
                f"({longest}), after which every model is fine-tuned anyway"
            )
    return tuple(sorted(set(given)))


def _check_places(given: Mapping[str, Any], where: str) -> None:
    """Raise ConfigError for a key at the top that belongs elsewhere, such as `lr`."""
    known = {*schema.fields_of(File), *DENOISING_KEYS, *map(old_name, fields(File))}
    for key in given:
        pointer = None if key in known else pointers.of_top(key, given)
        if pointer is not None:
            raise ConfigError(f"{where}{key}: {pointer}")


def _check_lists(file: File, where: str, needs: Sequence[str]) -> None:
    for key in needs:
        if not getattr(file, key):
            raise ConfigError(f"{at(where, key)}: is empty: give at least one")
    for seed in file.seeds:
        if file.seeds.count(seed) > 1:
            raise ConfigError(f"{at(where, 'seeds')}: seed {seed} is given twice")


def _check_contrast(block: PolicyBlock, where: str) -> None:
    """Raise ConfigError for a policy that compares the corpus with another one."""
    if compares_corpora(block):
        raise ConfigError(
            f"{where}: {block.name} compares the corpus with general text: set contrast_corpus, "
            "e.g. {files: [general/*.txt]}"
        )
