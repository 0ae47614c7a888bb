"""maskpolicy run and plan: run an experiment, or show what a run would compute."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.cli import leaderboard
from maskpolicy.cli.arguments import (
    STORE,
    Cache,
    File,
    Jobs,
    Keys,
    Only,
    Plugins,
    StorePlace,
    Threads,
    console,
    end,
    log_to,
    request_of,
)
from maskpolicy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

    from maskpolicy.cli.run_folder import FinishedRun
    from maskpolicy.config.experiment import Experiment
    from maskpolicy.config.verbatim import WrittenExperiment
    from maskpolicy.executors.request import Request
    from maskpolicy.graph.nodes import Stage
    from maskpolicy.graph.outcomes import Outcome
    from maskpolicy.graph.planning import Planned
    from maskpolicy.leaderboard.power import Power
    from maskpolicy.stages import Graph
    from maskpolicy.store.artifacts import Store

_ROWS = 12  # the most stages of one kind, state and reason that `plan` lists one by one


def run(
    file: File,
    keys: Keys = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Default: runs/<name of FILE>.")
    ] = None,
    store: StorePlace = STORE,
    cache: Cache = None,
    plugin: Plugins = None,
    only: Only = None,
    jobs: Jobs = None,
    threads: Threads = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that a stage may start.")] = 1,
    executor: Annotated[
        str, typer.Option(metavar="local|ray[=ADDRESS]|slurm", help="Who computes the stages.")
    ] = "local",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="slurm: print what sbatch would get, and end.")
    ] = False,
) -> None:
    """Run an experiment and print its leaderboard; the same command continues where it stopped."""
    started = time.monotonic()
    from maskpolicy.cli.run_folder import FinishedRun
    from maskpolicy.executors.capacity import check_jobs
    from maskpolicy.executors.engines import LOCAL, SLURM, parsed
    from maskpolicy.graph import processes

    name, address = parsed(executor, jobs)
    if dry_run and name != SLURM:
        raise ConfigError("--dry-run: is for --executor slurm; `maskpolicy plan` is for all others")
    if jobs is not None:
        check_jobs(jobs)
    notes = console(err=True)
    log_to(notes)
    request = replace(request_of(file, keys, store, cache, plugin, only), workers=workers)
    prepared = _prepare(request, out, is_dry=dry_run)
    if name == LOCAL:
        jobs, threads = _fit_machine(prepared, jobs, threads)
    if dry_run:
        _print_scripts(prepared)
        return
    if not processes.is_first():
        processes.follow(prepared.order, prepared.store, workers)
        return
    request = replace(request, threads=threads)
    outcomes = _compute(prepared, request, (name, address), jobs or 1, notes)
    processes.dismiss()
    _publish(
        FinishedRun(prepared.experiment, prepared.whole, outcomes, prepared.store, prepared.folder),
        started,
        jobs or 1,
    )
    cells = prepared.part.stages
    failed = sum(outcomes[stage.key].error is not None for stage in cells)
    why = f"the notes of {prepared.folder / 'leaderboard.md'} say why"
    end(outcomes.values(), f"{failed} of {len(cells)} cells failed: {why}")


@dataclass(frozen=True)
class _Prepared:
    """An experiment as it was read and planned, and where its results go."""

    written: WrittenExperiment
    experiment: Experiment
    whole: Graph  # all cells
    part: Graph  # the cells that --only names
    order: list[Stage]  # of `part`, inputs first
    store: Store
    folder: Path


def _prepare(request: Request, out: Path | None, *, is_dry: bool) -> _Prepared:
    """Read an experiment, create the run's folder (unless dry), and build the graph.

    Raises ConfigError, DataError or StoreError before any work.
    """
    from maskpolicy import stages
    from maskpolicy.config import verbatim
    from maskpolicy.config.parse import experiment_of
    from maskpolicy.graph.nodes import topological
    from maskpolicy.models.bart import check_folder
    from maskpolicy.results import run_folder_state
    from maskpolicy.store.opening import open_store

    written = verbatim.read_experiment(Path(request.file), request.keys, request.plugins)
    experiment = experiment_of(written, request.file)
    folder = out or written.home or Path("runs") / experiment.name
    if not is_dry:
        run_folder_state.claim(folder)
    store = open_store(request.store, request.cache)
    whole = stages.build(experiment, store.hash_file, store.cut_file)
    check_folder(experiment.model)
    part = stages.part(whole, request.only)
    return _Prepared(written, experiment, whole, part, topological(part.targets), store, folder)


def _fit_machine(prepared: _Prepared, jobs: int | None, threads: int | None) -> tuple[int, int]:
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


def _print_scripts(prepared: _Prepared) -> None:
    """Print the scripts that sbatch would get for all that is missing."""
    from maskpolicy.executors.slurm_engine import scripts
    from maskpolicy.graph import planning

    lacking = planning.missing(prepared.part.targets, prepared.store)
    order = [stage for stage in prepared.order if stage.key in lacking]
    for script in scripts(prepared.experiment, order, prepared.folder / "logs"):
        typer.echo(script)


def _compute(
    prepared: _Prepared, request: Request, executor: tuple[str, str], jobs: int, notes: Console
) -> Mapping[str, Outcome]:
    """Compute all stages with an executor (see `parsed`); returns outcomes by the stage's key."""
    from maskpolicy.cli.progress import ProgressBars
    from maskpolicy.config import verbatim
    from maskpolicy.executors.engines import engine
    from maskpolicy.executors.request import plan_digest
    from maskpolicy.graph.execution import execute
    from maskpolicy.graph.shared_notes import forgive

    order, store, logs = prepared.order, prepared.store, prepared.folder / "logs"
    verbatim.save(prepared.written, prepared.folder)
    request = replace(request, logs=str(logs), plan=plan_digest(order))
    forgive(store, order)  # this command tries again what failed before it
    with (
        engine(*executor, jobs, request, prepared.experiment, order, store) as who,
        ProgressBars(notes, len(order)) as bars,
    ):
        return execute(
            order,
            store,
            who.watch(bars),
            targets=prepared.part.targets,
            workers=request.workers,
            logs=logs,
            kinds=who.kinds,
            retry=False,
            pause=who.pause,
        )


def _publish(finished: FinishedRun, started: float, jobs: int) -> None:
    """Write the run's folder, and print the leaderboard and the table of times."""
    from maskpolicy.cli import progress, run_folder

    seconds = time.monotonic() - started
    took = progress.parts(finished.outcomes.values(), seconds)
    parts = [asdict(part) for part in took]
    finished.timing = {"seconds": round(seconds, 3), "jobs": jobs, "parts": parts}
    run_folder.write(finished)  # first, because output may be cut off, as by `| head`
    screen = console()
    leaderboard.show(finished.board, screen, gaps=False)  # failures are printed already
    screen.print(progress.to_table(took, seconds, jobs))
    screen.print(f"written to {finished.folder}", soft_wrap=True)
    if finished.store.place != STORE:
        command = ["maskpolicy", "analyze", "all", str(finished.folder)]
        command += ["--store", finished.store.place]
        screen.print(f"to explain the scores: {shlex.join(command)}", soft_wrap=True)


def plan(
    file: File,
    keys: Keys = None,
    store: StorePlace = STORE,
    cache: Cache = None,
    plugin: Plugins = None,
    only: Only = None,
    digest: Annotated[bool, typer.Option("--digest", help="Print the plan's digest only.")] = False,
) -> None:
    """Print the state of each stage and the power of the planned tests; compute nothing."""
    from collections import Counter

    from rich.table import Table

    from maskpolicy import stages
    from maskpolicy.config.parse import load_experiment
    from maskpolicy.executors.request import plan_digest
    from maskpolicy.graph import planning
    from maskpolicy.graph.nodes import topological
    from maskpolicy.leaderboard import power
    from maskpolicy.store.opening import open_store

    screen = console()
    log_to(console(err=True))
    experiment = load_experiment(file, keys or (), plugin or ())
    artifacts = open_store(store, cache)
    whole = stages.build(experiment, artifacts.hash_file, artifacts.cut_file)
    part = stages.part(whole, only or ())
    if digest:
        screen.print(plan_digest(topological(part.targets)))
        return
    planned = planning.plan(part.targets, artifacts, targets=part.targets)
    table = Table("state", "stage", "why", box=None)
    for row in _grouped(planned):
        table.add_row(*row)
    screen.print(table)
    counts = Counter(entry.state for entry in planned)
    screen.print(", ".join(f"{number} {state}" for state, number in counts.items()))
    named = {task for _, task, _ in part.cells}
    found = [each for each in power.plan(experiment, whole, artifacts) if each.task in named]
    _print_power(found, experiment, screen)


def _grouped(planned: Sequence[Planned]) -> Iterator[tuple[str, str, str]]:
    """Yield (state, stage, why); many stages of one kind for one reason share a row."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry in planned:
        groups.setdefault((entry.state, entry.stage.kind, entry.why), []).append(entry.stage.name)
    for (state, _, why), names in groups.items():
        if len(names) > _ROWS:
            names = [f"{names[0]}, and {len(names) - 1} more"]
        yield from ((state, name, why) for name in names)


def _print_power(found: list[Power], experiment: Experiment, screen: Console) -> None:
    """Print the differences that the planned seeds would find."""
    from rich.table import Table

    from maskpolicy.leaderboard import power

    if not found:
        return
    rows = power.to_rows(found)
    table = Table(*rows[0], box=None)
    for row in rows:
        table.add_row(*row.values())
    screen.print()
    for line in power.lines(found, experiment):
        screen.print(line, soft_wrap=True)
    screen.print("Differences to the baseline that would be significant with 80% probability:")
    screen.print(table)
