"""maskpolicy run and plan: run an experiment, or show what a run would compute."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, replace
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
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from maskpolicy.cli.run_folder import FinishedRun
    from maskpolicy.config.experiment import Experiment
    from maskpolicy.graph.nodes import Stage
    from maskpolicy.graph.planning import Planned
    from maskpolicy.leaderboard.power import Power
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
    from maskpolicy import stages
    from maskpolicy.cli.progress import ProgressBars
    from maskpolicy.cli.run_folder import FinishedRun
    from maskpolicy.config import verbatim
    from maskpolicy.config.parse import experiment_of
    from maskpolicy.executors.capacity import check_jobs, default_jobs, set_threads
    from maskpolicy.executors.engines import LOCAL, SLURM, engine, parsed
    from maskpolicy.executors.request import plan_digest
    from maskpolicy.executors.working import check_room
    from maskpolicy.graph import processes
    from maskpolicy.graph.execution import execute
    from maskpolicy.graph.nodes import topological
    from maskpolicy.graph.shared_notes import forgive
    from maskpolicy.results import run_folder_state
    from maskpolicy.store.opening import open_store

    name, address = parsed(executor, jobs)
    if dry_run and name != SLURM:
        raise ConfigError("--dry-run: is for --executor slurm; `maskpolicy plan` is for all others")
    if jobs is not None:
        check_jobs(jobs)
    notes = console(err=True)
    log_to(notes)
    written = verbatim.read_experiment(file, keys or (), plugin or ())
    experiment = experiment_of(written, file)
    folder = out or written.home or Path("runs") / experiment.name
    if not dry_run:
        run_folder_state.claim(folder)
    artifacts = open_store(store, cache)
    whole = stages.build(experiment, artifacts.hash_file, artifacts.cut_file)
    plan = stages.part(whole, only or ())
    order = topological(plan.targets)
    if name == LOCAL:
        check_room(experiment.resources, order, plan.targets, artifacts)
        jobs = jobs or default_jobs(
            experiment, {s.key for s in plan.targets} - artifacts.committed()
        )
        threads = set_threads(experiment, threads, jobs)
    if dry_run:
        _print_scripts(experiment, plan.targets, artifacts, folder)
        return
    if not processes.is_first():
        processes.follow(order, artifacts, workers)
        return
    verbatim.save(written, folder)
    logs = folder / "logs"
    request = replace(
        request_of(file, keys, store, cache, plugin, only),
        workers=workers,
        threads=threads,
        logs=str(logs),
        plan=plan_digest(order),
    )
    forgive(artifacts, order)  # this command tries again what failed before it
    with (
        engine(name, address, jobs or 1, request, experiment, order, artifacts) as who,
        ProgressBars(notes, len(order)) as bars,
    ):
        outcomes = execute(
            order,
            artifacts,
            who.watch(bars),
            targets=plan.targets,
            workers=workers,
            logs=logs,
            kinds=who.kinds,
            retry=False,
            pause=who.pause,
        )
    processes.dismiss()
    _publish(FinishedRun(experiment, whole, outcomes, artifacts, folder), started, jobs or 1)
    failed = sum(outcomes[stage.key].error is not None for stage in plan.stages)
    why = f"the notes of {folder / 'leaderboard.md'} say why"
    end(outcomes.values(), f"{failed} of {len(plan.stages)} cells failed: {why}")


def _print_scripts(
    experiment: Experiment, targets: Sequence[Stage], store: Store, folder: Path
) -> None:
    """Print the scripts that sbatch would get for all that is missing."""
    from maskpolicy.executors.slurm_engine import scripts
    from maskpolicy.graph import planning
    from maskpolicy.graph.nodes import topological

    lacking = planning.missing(targets, store)
    order = [stage for stage in topological(targets) if stage.key in lacking]
    for script in scripts(experiment, order, folder / "logs"):
        typer.echo(script)


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
