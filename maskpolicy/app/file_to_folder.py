"""Compute an experiment: read and plan it, compute its stages, and write the run's folder."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy.app import progress
from maskpolicy.app.arguments import ExperimentOptions
from maskpolicy.app.progress import StageSummary
from maskpolicy.core import hub
from maskpolicy.core.files import claim_folder, locked, read_json
from maskpolicy.core.version import VERSION
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.definition import Experiment, TaskBlock
from maskpolicy.experiment.parse import experiment_of
from maskpolicy.experiment.task_kinds import SPAN, kind_of
from maskpolicy.experiment.text_budgets import TextSize
from maskpolicy.experiment.verbatim import WrittenExperiment
from maskpolicy.leaderboard.results import run_folder
from maskpolicy.leaderboard.results.cell import SETTINGS
from maskpolicy.models.model_kinds import check_folder
from maskpolicy.models.training.loop import check_installed
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.executors.engines import (
    LOCAL,
    Executor,
    check_resources,
    default_jobs,
    engine,
    set_threads,
    stage_threads,
)
from maskpolicy.pipeline.graph.calls import BUILTIN_FACT
from maskpolicy.pipeline.graph.events import Listener, Outcome
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, topological
from maskpolicy.pipeline.stages import Graph
from maskpolicy.pipeline.stages.evaluation import WINDOWS, read_examples
from maskpolicy.pipeline.stages.params import WindowsParams
from maskpolicy.pipeline.stages.preparation import SIZE_FACT
from maskpolicy.pipeline.store.artifacts import Artifact, Store, available
from maskpolicy.pipeline.store.opening import open_store
from maskpolicy.plugins import isolation
from maskpolicy.plugins.changed_files import builtin_code
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.isolation import code_digest

if TYPE_CHECKING:
    from maskpolicy.app.contents import FinishedRun

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """A planned experiment, and the folder for its results."""

    written: WrittenExperiment
    experiment: Experiment
    whole: Graph  # all cells
    part: Graph  # the cells that --only names
    order: list[Stage]  # of `part`, inputs first
    store: Store
    folder: Path
    damaged: tuple[Stage, ...] = ()  # artifacts that `verify` found, to be computed again


def prepare(
    asked: ExperimentOptions,
    out: Path | None = None,
    *,
    is_dry: bool = False,
    verify: bool = False,
    written: WrittenExperiment | None = None,
) -> Prepared:
    """Read an experiment, check the run's folder (unless dry), and build the graph.

    With `verify`, read all data files and artifacts of the run again, log damaged artifacts and
    move them to quarantine/. An experiment without a file is given as it is `written`; messages
    name it by the file that is asked for. Raises ConfigError, DataError or StoreError before any
    work, and leaves no folder behind.
    """
    if written is None:
        written = verbatim.read_experiment(asked.file, asked.keys or (), asked.plugin or ())
    store = open_store(asked.store, asked.cache)
    if verify:
        store.digests.distrust()
    folder = out or _default_folder(written)
    if not is_dry:
        run_folder.check(folder, written, store.root)
    hub.forget_commits()
    experiment = experiment_of(written, asked.file, StoreCounter(store))
    if not is_dry:
        for blocks in (experiment.policies, experiment.tasks):
            run_folder.check_labels(folder, [block.label for block in blocks])
    whole = stages.build(experiment, store.hash_file, store.cut_file)
    check_folder(experiment.model)
    check_installed(experiment.tracker)
    part = stages.choose_cells(whole, asked.only or ())
    order = topological(part.targets)
    damaged = tuple(_damaged(order, store)) if verify else ()
    _warn_of_edited_plugins(order, store)
    isolation.name_unkeyed({path for stage in order for path in stage.files})
    return Prepared(written, experiment, whole, part, order, store, folder, damaged)


@dataclass(frozen=True)
class StoreCounter:
    """Counts texts and examples; computes them on this machine if the store lacks them."""

    store: Store

    def text(self, experiment: Experiment) -> TextSize:
        """Return the size of the corpus that the first row reads.

        Raises the error of a stage that fails.
        """
        stage = stages.corpus(experiment, self.store.hash_file, self.store.cut_file)
        [made] = computed([stage], self.store)
        if size := made.manifest["record"]["facts"].get(SIZE_FACT):
            return TextSize(size["passages"], size["words"])
        passages = Passages.open(made.path)
        return TextSize(len(passages), passages.count_words())

    def examples(self, experiment: Experiment, task: TaskBlock) -> int:
        """Return the inputs of a task's train examples: of a span task, their windows.

        Raises the error of a stage that fails.
        """
        read = stages.train_examples(experiment, task, self.store.hash_file)
        if kind_of(find_plugin("task", task.name)) != SPAN:
            [made] = computed([read], self.store)
            return len(read_examples(made.path, "train"))
        from maskpolicy.models import families, loading, scratch

        model, tokenizer = experiment.model, stages.tokenizer(experiment, self.store.hash_file)
        if model.is_scratch:
            most: tuple[int | None, int | None] = scratch.preset(model).positions, None
        else:
            most = families.limits(loading.load_config(model.name, model.revision))
        spec = families.within(experiment.budget("finetune", experiment.policies[0], task), most)
        inputs = {"examples": read, "tokenizer": tokenizer}
        counted = Stage("windows", task.label, WindowsParams(spec.max_source), inputs)
        [made] = computed([counted], self.store)
        return int(read_json(made.path / WINDOWS))


def computed(wanted: Sequence[Stage], store: Store) -> list[Artifact]:
    """Return the artifacts of stages, and compute those that the store lacks.

    Raises the error of a stage that fails.
    """
    for outcome in execute(wanted, store, targets=wanted).values():
        if outcome.exception is not None:
            raise outcome.exception
    return [available(store, stage.key, stage.name) for stage in wanted]


def _default_folder(written: WrittenExperiment) -> Path:
    """Return the default folder of an experiment's run.

    The file that a run keeps in its folder is run in that folder; experiments that come with
    maskpolicy go to runs/ and their whole name, such as runs/paper/mae-lm.
    """
    name = written.file and verbatim.name_of(written.file)
    return written.home or Path("runs") / (name or written.name)


def _warn_of_edited_plugins(order: Sequence[Stage], store: Store) -> None:
    """Log a warning for each built-in policy and task that was edited since a stage used it."""
    digest = cache(code_digest)  # many stages have one policy
    edited: Counter[str] = Counter()
    store.prefetch(stage.key for stage in order)  # a run reads these manifests anyway
    for stage in order:
        manifest = store.peek(stage.key)
        if manifest is None or manifest["versions"]["maskpolicy"] != VERSION:
            continue
        before = manifest["record"]["facts"].get(BUILTIN_FACT, {})
        now = builtin_code(stage.params, digest) if before else {}
        edited.update(name for name in before if before[name] != now.get(name))
    for name, count in edited.items():
        log.warning(
            "%s: was edited since %d of the stages of this run were computed: their results are "
            "those of the code before; raise its version to compute them again",
            name,
            count,
        )


def _damaged(order: Iterable[Stage], store: Store) -> Iterator[Stage]:
    """Yield the stages with damaged artifacts; log these artifacts and move them to quarantine/."""
    for stage in order:
        if store.has(stage.key) and store.verify(stage.key) is not None:
            if store.mirror:
                store.forget(stage.key)  # a whole copy would hide the damage in the bucket
            store.get(stage.key)
            if not stage.transient:
                yield stage


def fit_machine(prepared: Prepared, jobs: int | None, threads: int | None) -> tuple[int, int]:
    """Return how many stages this machine computes at a time, and the threads of each.

    Raises ConfigError if it lacks the GPUs that a missing stage needs.
    """
    experiment, targets, store = prepared.experiment, prepared.part.targets, prepared.store
    check_resources(experiment.resources, prepared.order, targets, store)
    missing = {stage.key for stage in targets} - store.committed()
    jobs = jobs or default_jobs(experiment, missing)
    return jobs, set_threads(experiment, threads, jobs)


def compute(
    prepared: Prepared,
    executor: Executor,
    bars: AbstractContextManager[Listener],
    *,
    jobs: int = 1,
    workers: int = 1,
    threads: int | None = None,
) -> Mapping[str, Outcome]:
    """Compute all stages with an executor; returns outcomes by stage key.

    This machine computes `jobs` stages at a time, each with `threads` threads and at most `workers`
    processes. Creates the run's folder when the executor is ready; raises StoreError if another
    experiment has claimed it by then.
    """
    order, logs = prepared.order, (prepared.folder / "logs").absolute()
    if executor.name != LOCAL:
        threads = stage_threads(prepared.experiment, threads)
    with engine(executor, jobs, prepared.experiment, order, logs) as who, bars as shown:
        _take_folder(prepared)
        return execute(
            order,
            prepared.store,
            shown,
            targets=[*prepared.part.targets, *prepared.damaged],
            engine=who,
            workers=workers,
            threads=threads,
            logs=logs,
        )


def _take_folder(prepared: Prepared) -> None:
    """Save the experiment to its folder, unless another one has claimed it since `prepare`."""
    folder = prepared.folder
    run_folder.check_owner(folder, prepared.written)
    if not ((folder / SETTINGS).exists() and verbatim.is_saved(folder)):
        claim_folder(folder)
        with locked(folder):  # the experiment of earlier results stays until `write`
            run_folder.check_owner(folder, prepared.written)
            verbatim.save(prepared.written, folder)


def write(
    prepared: Prepared, outcomes: Mapping[str, Outcome], seconds: float, jobs: int
) -> tuple[FinishedRun, list[StageSummary]]:
    """Write the run's folder; returns the run and the seconds of each of its parts.

    Raises StoreError if the folder cannot be written.
    """
    from maskpolicy.app import contents

    took = progress.parts(outcomes.values(), seconds)
    timing = {"seconds": round(seconds, 3), "jobs": jobs, "parts": [asdict(part) for part in took]}
    finished = contents.FinishedRun(
        prepared.experiment,
        prepared.whole,
        outcomes,
        prepared.store,
        prepared.folder,
        prepared.written,
        timing,
    )
    # writing reads no transient artifacts, and another command that ends now may drop them
    kept = (key for key, outcome in outcomes.items() if not outcome.stage.transient)
    with prepared.store.using(kept):
        contents.write(finished)
    return finished, took


def failed_cells(prepared: Prepared, finished: FinishedRun) -> str:
    """Return a line about the cells that failed and have no earlier result, or "" without any."""
    run = finished.run
    failed = sum(result.error is not None for result in (*run.results, *run.early))
    why = f"the notes of {run.folder / 'leaderboard.md'} say why"
    return f"{failed} of {len(prepared.part.stages)} cells failed: {why}" if failed else ""
