"""Parse experiment files: look names up, check keys, fill in defaults; an error is one line."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from maskpolicy.core import keys, schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.schema import Count, NameOrKeys, Seed, Stated, Steps, at
from maskpolicy.experiment import (
    budgets,
    learned_policies,
    model_and_corpus,
    pointers,
    policy_blocks,
    row_blocks,
    sweeps,
    task_blocks,
    text_budgets,
    verbatim,
    world_settings,
    yaml_file,
)
from maskpolicy.experiment.budgets import Slurm, Training
from maskpolicy.experiment.definition import (
    ARCHITECTURES,
    NONE,
    WORLD,
    CorpusBlock,
    Experiment,
    ModelBlock,
    PolicyBlock,
    Tracker,
)
from maskpolicy.experiment.task_kinds import is_zero_shot
from maskpolicy.plugins import discovery, hooks
from maskpolicy.plugins.registry import CORPUS, DENOISING_KEYS, is_builtin

log = logging.getLogger(__name__)
_MOST_SEEDS = 20  # `seeds: N` up to here may be meant as N seeds

Budget = Annotated[Any, Stated("a block of keys")]


@dataclass(frozen=True)
class File:
    """The keys of an experiment file except those of Denoising; names are not resolved yet."""

    model: NameOrKeys  # the model to pre-train further; NAME means `{name: NAME}`
    corpus: NameOrKeys  # the text of the intermediate stage: world, or a block
    policies: list[NameOrKeys]  # the rows of the leaderboard
    tasks: list[NameOrKeys]  # the columns of the leaderboard
    # general text to compare the corpus with, for some policies, written like `corpus`; if omitted,
    # the text of the general stage, which only models built from scratch have
    contrast_corpus: NameOrKeys | None = None
    data: str = WORLD  # the source of tasks whose block names none: world, hub or a folder
    seeds: tuple[Seed, ...] = (0,)  # seeds of fine-tuning: each cell is computed once per seed
    intermediate_seeds: Count = 1  # runs of each intermediate stage, divided among `seeds`
    intermediate_runs: tuple[Steps, ...] = ()  # the numbers of these runs; empty: 0, 1, ..
    # number of models built from scratch, divided among the intermediate runs; if omitted, one for
    # each run, so tests also hold for other general models
    general_seeds: Count | None = None
    # label or policy of the row that all others are compared with; if several rows of that policy
    # differ only in trainings, each row is compared with the most similar one
    baseline: str = NONE
    general: Budget = field(default_factory=dict)  # pre-training of a model built from scratch
    intermediate: Budget = field(default_factory=dict)  # pre-training with a policy
    finetune: Budget = field(default_factory=dict)  # fine-tuning on a task
    fit: Budget = field(default_factory=dict)  # the training of a learned policy
    # lists of values by key, for all rows: a row for each combination (docs/experiments.md)
    grid: Budget = field(default_factory=dict)
    # lists of the same length by key, for all rows: a row for each position
    zip: Budget = field(default_factory=dict)
    # lists of values by key, for all rows: each row uses the best ones on dev (docs/experiments.md)
    tune: Budget = field(default_factory=dict)
    plugins: tuple[str, ...] = ()  # files with policies and tasks, beside the experiment file
    # stages whose models are kept, for `export`
    keep_models: tuple[Literal["finetune"], ...] = ()
    # steps of the intermediate stage after which its model is fine-tuned as well
    checkpoint_steps: tuple[Count, ...] = ()
    # the same, in words of the corpus instead of steps: numbers, or 500k, 10M
    checkpoint_words: Annotated[Any, Stated("a list of numbers of words")] = ()
    # which passages a policy annotates (entities, scores etc.): all, or those that the intermediate
    # stage reads; then rows of other steps or seeds share no annotation
    annotate: Literal["all", "read"] = "all"
    world: dict[str, Any] = field(default_factory=dict)  # settings of the embedded world
    tracker: Tracker | None = None  # writes the losses of every training below logs/
    # GPUs, processes and cores of each kind of stage; they change rounding and dropout
    resources: Budget = field(default_factory=dict)
    slurm: Budget = field(default_factory=dict)  # the jobs of `--executor slurm`


def load_experiment(
    path: str | Path, overrides: Sequence[str] = (), plugin_files: Sequence[str | Path] = ()
) -> Experiment:
    """Return the experiment of a YAML file after `key=value` overrides; see `make_experiment`.

    Paths are looked up beside the file, then in the working directory. For the copy in a run's
    folder, these are the folder of the original file and the directory of the command.
    """
    return experiment_of(verbatim.read_experiment(Path(path), overrides, plugin_files), path)


def experiment_of(
    asked: verbatim.WrittenExperiment, path: str | Path, counter: text_budgets.Counter | None = None
) -> Experiment:
    """Return the experiment of the file `path`; see `load_experiment`.

    `counter` counts words and examples for budgets in words and epochs.
    """
    place = f"{path}: "
    given = yaml_file.values(asked.experiment, place, asked.keys)
    _prefer_overrides(given, asked.keys)
    return make_experiment(given, asked.name, place, asked.folders, asked.plugins, counter=counter)


def _prefer_overrides(given: dict[str, Any], overrides: Sequence[str]) -> None:
    """Drop the keys of the file that exclude a key of an override."""
    stated = {override.partition("=")[0] for override in overrides}
    for group in verbatim.ALTERNATIVES:
        for key in stated.intersection(group):
            *path, name = key.split(".")  # the path of the whole group
            block = given.get(path[0]) if path else given
            if isinstance(block, dict) and block.get(name) not in (None, []):
                for other in set(group) - stated:
                    block.pop(other.rpartition(".")[2], None)


def make_experiment(
    given: dict[str, Any],
    name: str,
    where: str,
    folders: Sequence[Path],
    plugin_files: Sequence[str | Path] = (),
    needs: Sequence[str] = ("policies", "tasks", "seeds"),
    counter: text_budgets.Counter | None = None,
) -> Experiment:
    """Return the experiment that the keys `given` describe.

    Paths are looked up in `folders`, then in the working directory. `plugin_files` are loaded in
    addition to those that the keys name; `needs` are lists that must not be empty; `counter` counts
    for budgets in words and epochs. Raises ConfigError with `where`, the key and what to do.
    """

    def draft(keys: dict[str, Any]) -> Experiment:
        return make_experiment(keys, "text", where, folders, plugin_files, needs=("policies",))

    given = text_budgets.without_null(given)
    in_text = text_budgets.TextBudgets(given, where, draft, counter)
    given = in_text.of_file()
    shared = _shared(given, where)
    file = _file(given, where)
    plugins = _plugins(file.plugins, plugin_files, at(where, "plugins"), folders)
    discovery.load_files(plugins, fresh=True)
    model = model_and_corpus.model_block(file.model, at(where, "model"), folders)
    trainings, general = _trainings(file, given, model, where, folders)
    corpus = model_and_corpus.with_mix(file.corpus, at(where, CORPUS), folders)
    data = task_blocks.data_source(file.data, at(where, "data"), folders)
    own = partial(_own, given, model, corpus, folders)
    place = at(where, "tasks")
    tasks = task_blocks.task_blocks(file.tasks, place, folders, data, own(()), file.data)
    columns = [block.get("finetune") or {} for block in budgets.blocks_of_columns(given)]
    rows = sweeps.rows(file.policies, at(where, "policies"), given, where)
    usual: row_blocks.Usual = {**trainings, CORPUS: corpus}
    keys_of_columns = {key for task in tasks for key in task.finetune or ()}
    of_file = row_blocks.OfFile(
        shared, model.kind, usual, keys_of_columns, own(columns), in_text.of_row
    )
    policies = row_blocks.row_blocks(rows, at(where, "policies"), of_file)
    for key in needs:
        if not getattr(file, key):
            raise ConfigError(f"{at(where, key)}: is empty: give at least one")
    world = keys.to_json(world_settings.make(file.world, at(where, WORLD)))
    if "tasks" in needs:  # not in a draft
        task_blocks.warn_of_missing_answers(tasks, world, at(where, "tasks"))
    runs, general_seeds = _runs(file, model, where)
    made = Experiment(
        name=name,
        where=where,
        model=model,
        corpus=corpus,
        policies=policies,
        tasks=tasks,
        contrast_corpus=_contrast(file, at(where, "contrast_corpus"), folders),
        data=data,
        seeds=file.seeds,
        intermediate_seeds=runs,
        intermediate_runs=file.intermediate_runs,
        general_seeds=general_seeds,
        baseline=row_blocks.baseline_row(file.baseline, policies, at(where, "baseline")),
        **general,
        plugins=plugins,
        keep_models=file.keep_models,
        checkpoint_steps=_checkpoint_steps(file, policies, trainings, where),
        annotate=file.annotate,
        world=world,
        tracker=file.tracker,
        resources=budgets.resources_block(file.resources, at(where, "resources")),
        slurm=Slurm(**schema.block(Slurm, file.slurm, at(where, "slurm"))),
    )
    _check_texts(made, rows)
    if "tasks" in needs:
        _warn_of_evaluations(made)
    if in_text.tunes_all_by_epochs:
        learned_policies.check_classifiers(made)
    return made


def _contrast(file: File, where: str, folders: Sequence[Path]) -> CorpusBlock | None:
    given = file.contrast_corpus
    return None if given is None else model_and_corpus.corpus_block(given, where, folders)


def _trainings(
    file: File, given: dict[str, Any], model: ModelBlock, where: str, folders: Sequence[Path]
) -> tuple[dict[str, Training], dict[str, Any]]:
    """Return the budgets of the file, and with them the corpus and policy of the general stage.

    By default, an architecture has no general steps unless the block `general` names a corpus.
    """
    place, block = at(where, "general"), file.general
    corpus = block.get(CORPUS) if isinstance(block, Mapping) else None
    if corpus is not None:
        policy_blocks.check_scratch(model, at(place, CORPUS))
        if model.is_preset:
            raise ConfigError(
                f"{at(place, CORPUS)}: {model.name} is trained on the general text of the world: "
                f"choose an architecture, e.g. {ARCHITECTURES[model.kind][-1]}"
            )
        corpus = model_and_corpus.corpus_block(corpus, at(place, CORPUS), folders)
    elif isinstance(block, Mapping) and model.is_scratch and not model.is_preset:
        given["general"] = {"steps": 0, **block}
    trainings = budgets.training_blocks(given, model.is_scratch, where)
    steps = trainings["general"].steps
    if steps:
        policy_blocks.check_scratch(model, f"{where}general.steps")
    policy = policy_blocks.general_policy(block, model, steps, place)
    return trainings, {**trainings, "general_corpus": corpus, "general_policy": policy}


def _own(
    given: Mapping[str, Any],
    model: ModelBlock,
    corpus: CorpusBlock,
    folders: Sequence[Path],
    columns: Sequence[Mapping[str, Any]],
) -> budgets.Own:
    """Return the function that checks the blocks of a row or column which replace the file's.

    `columns` are the blocks `finetune` that a row's block is merged with.
    """

    def own(stated: Mapping[str, Any], place: str) -> Mapping[str, Mapping[str, Any]]:
        trained = {key: block for key, block in stated.items() if key != CORPUS}
        changed = budgets.row_trainings(trained, given, model.is_scratch, place, columns)
        if CORPUS in stated:
            where = at(place, CORPUS)
            changed[CORPUS] = model_and_corpus.row_corpus(stated[CORPUS], corpus, where, folders)
        return changed

    return own


def _check_texts(made: Experiment, rows: Sequence[sweeps.Row]) -> None:
    """Raise ConfigError for a row, as written in `rows`, that cannot read its corpus or tasks."""
    model, world = made.model, made.world
    has_general = model.is_preset or made.general_corpus is not None
    needs_contrast = not has_general and made.contrast_corpus is None
    general = made.general_text or model_and_corpus.OF_WORLD
    reads_world = model.is_scratch and general.name == WORLD
    model_and_corpus.check_mix(made.corpus, reads_world, world, at(made.where, CORPUS))
    for row, block in zip(rows, made.policies, strict=True):
        for written, each in zip(row.candidates(), block.candidates or (block,), strict=True):
            own = made.corpus_of(each)
            try:
                model_and_corpus.check_mix(own, reads_world, world, at(row.place, CORPUS))
                model_and_corpus.check_columns(each, own, world, row.place)
                learned_policies.check(each, made.tasks, made.data, row.place)
            except ConfigError as error:
                raise written.placed(error) from None
            learned_policies.warn_of_long_warmups(each, row.place)
            _warn_of_long_warmups(made, each, row.place)
            if model.is_scratch and not made.general.steps:
                _warn_of_random_weights(each, row.place)
            if needs_contrast and policy_blocks.compares_corpora(each):
                raise ConfigError(
                    f"{row.place}: {each.name} compares the corpus with general text: set "
                    "contrast_corpus, e.g. {files: [general/*.txt]}"
                )
    if made.general_policy is not None:
        place = at(at(made.where, "general"), "policy")
        text = made.general_text or model_and_corpus.OF_WORLD
        model_and_corpus.check_columns(made.general_policy, text, world, place)


def _warn_of_random_weights(row: PolicyBlock, where: str) -> None:
    """Log a warning for each policy that reads a model which has learned nothing yet."""
    for leaf, place in policy_blocks.leaf_blocks(row, where):
        if hooks.FIT.of(leaf.policy) and is_builtin(leaf.policy) and "train_on" not in leaf.fields:
            log.warning(
                "%s: %s reads the model, and its weights are random: set general.steps, or remove "
                "the row",
                *(place, leaf.name),
            )


def _warn_of_long_warmups(made: Experiment, row: PolicyBlock, where: str) -> None:
    """Log a warning for each task whose block and the row's make a warm-up that is too long."""
    own = row.trainings.get("finetune", {})
    for index, task in enumerate(made.tasks):
        if task.finetune and ("steps" in own) != ("warmup" in own):
            spec = made.budget("finetune", row, task)
            place = f"{where} with tasks[{index}]: finetune"
            budgets.warn_of_long_warmup(spec.warmup, spec.steps, place)


def _warn_of_evaluations(made: Experiment) -> None:
    """Log a warning for each key about evaluations that has no effect in an experiment."""
    rows = made.policies
    specs = [
        (task.label, made.budget("finetune", row, task))
        for row in rows
        for task in made.tasks
        if not is_zero_shot(task)
    ]
    reasons = {
        f"{stage}.{key}": "is for fit and finetune, which dev examples judge: leave it out"
        for stage in ("general", "intermediate")
        for key in ("eval_every", "patience")
        for own in (vars(getattr(made, stage)), *(row.trainings.get(stage, {}) for row in rows))
        if own.get(key)
    }
    if any(spec.patience and not spec.eval_every for _, spec in specs):
        reasons["finetune.patience"] = "counts evaluations on dev: set finetune.eval_every too"
    if short := [label for label, spec in specs if spec.eval_every >= spec.steps > 0]:
        told = ", ".join(dict.fromkeys(short))
        reasons["finetune.eval_every"] = f"is not below the steps of {told}: lower it"
    for key, reason in reasons.items():
        log.warning("%s%s: has no effect: it %s", made.where, key, reason)


def _file(given: dict[str, Any], where: str) -> File:
    """Return the keys of a file without those of Denoising.

    One policy, task or seed becomes a list. The ConfigError for a key that belongs elsewhere, such
    as `lr`, says where it belongs.
    """
    seed = given.get("seeds")
    if type(seed) is int and 1 < seed <= _MOST_SEEDS:
        log.warning(
            "%s: %s is the number of one seed; for several seeds write %s",
            at(where, "seeds"),
            seed,
            list(range(seed)),
        )
    for key, kind in (("policies", str), ("tasks", str), ("seeds", int)):
        if type(given.get(key)) is kind:
            given[key] = [given[key]]
    elsewhere = partial(pointers.pointer, place="top", given=given)
    return File(**schema.block(File, given, where, None, DENOISING_KEYS, elsewhere))


def _shared(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Remove the keys of Denoising, which all policies share, from `given`; return them checked."""
    stated = {key: given.pop(key) for key in DENOISING_KEYS if key in given}
    denoising = policy_blocks.denoising_block(stated, where, {})
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


def _runs(file: File, model: ModelBlock, where: str) -> tuple[int, int]:
    """Return the numbers of intermediate runs of each row, and of general models.

    By default, each run of a model from scratch has its own general model. Otherwise the runs share
    them evenly, unless `intermediate_runs` divides the runs among machines. Raises ConfigError.
    """
    numbers, key = file.intermediate_runs, "intermediate_runs"
    for name, what, values in ((key, "run", numbers), ("seeds", "seed", file.seeds)):
        for value in values:
            if values.count(value) > 1:
                raise ConfigError(f"{at(where, name)}: {what} {value} is given twice")
    if numbers and file.intermediate_seeds not in (1, len(numbers)):
        raise ConfigError(
            f"{at(where, key)}: names {len(numbers)} runs, but intermediate_seeds is "
            f"{file.intermediate_seeds}: leave intermediate_seeds out, or set it to {len(numbers)}"
        )
    runs, general = len(numbers) or file.intermediate_seeds, file.general_seeds or 1
    if runs > max(1, len(file.seeds)):
        place = at(where, key if numbers else "intermediate_seeds")
        raise ConfigError(
            f"{place}: {runs} runs need as many seeds, and there are {len(file.seeds)}: give more "
            "seeds, or fewer runs"
        )
    if general > 1:
        policy_blocks.check_scratch(model, at(where, "general_seeds"))
    if runs % general and not numbers:
        raise ConfigError(
            f"{at(where, 'general_seeds')}: {general} general models cannot be divided evenly "
            f"among {runs} intermediate runs: set intermediate_seeds: {general} or a multiple, "
            "and as many seeds"
        )
    if file.general_seeds is None and model.is_scratch:
        general = 1 + max(numbers, default=runs - 1)
    return runs, general


def _checkpoint_steps(
    file: File, policies: Sequence[PolicyBlock], trainings: Mapping[str, Training], where: str
) -> tuple[int, ...]:
    """Return the sorted steps; raises ConfigError for one beyond every intermediate stage.

    A tuned row has those before the end of its shortest candidate.
    """
    usual = trainings["intermediate"].steps
    longest = max(
        (
            min(
                each.trainings.get("intermediate", {}).get("steps", usual)
                for each in block.candidates or (block,)
            )
            for block in policies
            if block.has_stage
        ),
        default=usual,
    )
    key = "checkpoint_words" if file.checkpoint_words else "checkpoint_steps"
    for index, step in enumerate(file.checkpoint_steps):
        if step >= longest:
            raise ConfigError(
                f"{at(where, key)}[{index}]: {step} steps must be fewer than "
                f"intermediate.steps ({longest}), after which every model is fine-tuned anyway"
            )
    return tuple(sorted(set(file.checkpoint_steps)))
