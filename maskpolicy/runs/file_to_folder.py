"""Compute an experiment: read, plan, share the stages out, and write the run's folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from maskpolicy.executors.request import Request
from maskpolicy.graph.nodes import Stage, topological
from maskpolicy.graph.outcomes import Outcome, Progress
from maskpolicy.runs import progress
from maskpolicy.runs.progress import StageSummary
from maskpolicy.store.artifacts import Store

if TYPE_CHECKING:
    from maskpolicy.config.experiment import Experiment
    from maskpolicy.config.verbatim import WrittenExperiment
    from maskpolicy.executors.engines import Executor
    from maskpolicy.runs.contents import FinishedRun
    from maskpolicy.stages import Graph


@dataclass(frozen=True)
class Prepared:
    """An experiment as it was read and planned, and where its results go."""

    written: WrittenExperiment
    experiment: Experiment
    whole: Graph  # all cells
    part: Graph  # the cells that --only names
    order: list[Stage]  # of `part`, inputs first
    store: Store
    folder: Path
    damaged: tuple[Stage, ...] = ()  # artifacts that `verify` found, to be computed again


def prepare(
    request: Request,
    out: Path | None,
    *,
    is_dry: bool = False,
    verify: bool = False,
    is_temporary: bool = False,
) -> Prepared:
    """Read an experiment, check the run's folder (unless dry), and build the graph.

    With `verify`, all data files and artifacts that the run rests on are read again. Damaged
    artifacts are named, and moved to quarantine/. A temporary experiment file is not the user's
    own. Raises ConfigError, DataError or StoreError before any work, and leaves no folder behind.
    """
    from maskpolicy import stages
    from maskpolicy.config import verbatim
    from maskpolicy.config.parse import experiment_of
    from maskpolicy.models.model_kinds import check_folder
    from maskpolicy.results import run_folder_state
    from maskpolicy.store.opening import open_store
    from maskpolicy.training.tracking import check_installed

    written = verbatim.read_experiment(Path(request.file), request.keys, request.plugins)
    written = written.without_file() if is_temporary else written
    experiment = experiment_of(written, request.file)
    folder = out or default_folder(written)
    if not is_dry:
        run_folder_state.check(folder, written)
        for blocks in (experiment.policies, experiment.tasks):
            run_folder_state.check_labels(folder, [block.label for block in blocks])
    store = open_store(request.store, request.cache)
    if verify:
        store.distrust_digests()
    whole = stages.build(experiment, store.hash_file, store.cut_file)
    check_folder(experiment.model)
    check_installed(experiment.tracker)
    part = stages.choose_cells(whole, request.only)
    order = topological(part.targets)
    damaged = tuple(_damaged(order, store)) if verify else ()
    return Prepared(written, experiment, whole, part, order, store, folder, damaged)


def default_folder(written: WrittenExperiment) -> Path:
    """Return the folder of an experiment's run if --out names no other one.

    That of a file which a run kept is the run's; that of maskpolicy's own experiments has their
    whole name, such as runs/paper/mae-lm.
    """
    from maskpolicy.config import shipped

    name = written.file and shipped.name_of(written.file)
    return written.home or Path("runs") / (name or written.name)


def _damaged(order: Iterable[Stage], store: Store) -> Iterator[Stage]:
    """Yield the stages whose artifacts are damaged; name and quarantine these."""
    for stage in order:
        if store.has(stage.key) and store.verify(stage.key) is not None:
            store.get(stage.key)
            if not stage.transient:
                yield stage


def fit_machine(prepared: Prepared, jobs: int | None, threads: int | None) -> tuple[int, int]:
    """Return the stages at a time, and the threads of each, that this machine computes.

    Raises ConfigError if it lacks the GPUs that a missing stage takes.
    """
    from maskpolicy.executors.capacity import default_jobs, set_threads
    from maskpolicy.executors.stage_worker import check_resources

    experiment, targets, store = prepared.experiment, prepared.part.targets, prepared.store
    check_resources(experiment.resources, prepared.order, targets, store)
    missing = {stage.key for stage in targets} - store.committed()
    jobs = jobs or default_jobs(experiment, missing)
    return jobs, set_threads(experiment, threads, jobs)


def compute(
    prepared: Prepared,
    request: Request,
    executor: Executor,
    jobs: int,
    bars: AbstractContextManager[Progress],
) -> Mapping[str, Outcome]:
    """Compute all stages with an executor; returns outcomes by stage key.

    `jobs` stages are computed at a time on this machine. The run's folder is created once the
    executor is ready; raises StoreError if another experiment has it by then.
    """
    from maskpolicy.config import verbatim
    from maskpolicy.executors.engines import engine
    from maskpolicy.executors.request import plan_digest
    from maskpolicy.graph.execution import execute
    from maskpolicy.graph.shared_notes import forgive
    from maskpolicy.results import run_folder_state

    order, store, logs = prepared.order, prepared.store, prepared.folder / "logs"
    request = replace(request, logs=str(logs), plan=plan_digest(order))
    forgive(store, order)  # this run tries again what failed before it
    with (
        engine(executor, jobs, request, prepared.experiment, order, store) as who,
        bars as shown,
    ):
        # a command of another experiment may have taken the folder since it was checked
        run_folder_state.check_owner(prepared.folder, prepared.written)
        verbatim.save(prepared.written, prepared.folder)
        return execute(
            order,
            store,
            who.watch(shown),
            targets=[*prepared.part.targets, *prepared.damaged],
            workers=request.workers,
            logs=logs,
            kinds=who.kinds,
            retry=False,
            pause=who.pause,
        )


def write(
    prepared: Prepared, outcomes: Mapping[str, Outcome], seconds: float, jobs: int
) -> tuple[FinishedRun, list[StageSummary]]:
    """Write the run's folder; returns the run and what each of its parts took.

    Raises StoreError if the folder cannot be written.
    """
    from maskpolicy.runs import contents

    took = progress.parts(outcomes.values(), seconds)
    timing = {"seconds": round(seconds, 3), "jobs": jobs, "parts": [asdict(part) for part in took]}
    finished = contents.FinishedRun(
        prepared.experiment, prepared.whole, outcomes, prepared.store, prepared.folder, timing
    )
    with prepared.store.using(outcomes):
        contents.write(finished)
    return finished, took


def failed_cells(prepared: Prepared, outcomes: Mapping[str, Outcome]) -> str:
    """Return a line about the cells that failed, or "" if none did."""
    cells = prepared.part.stages
    failed = sum(outcomes[stage.key].error is not None for stage in cells)
    why = f"the notes of {prepared.folder / 'leaderboard.md'} say why"
    return f"{failed} of {len(cells)} cells failed: {why}" if failed else ""
