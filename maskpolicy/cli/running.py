"""maskpolicy run and plan: run an experiment, or show what a run would compute."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
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

    from maskpolicy.config.experiment import Experiment
    from maskpolicy.graph.planning import Planned
    from maskpolicy.leaderboard.power import Power
    from maskpolicy.runs.contents import FinishedRun
    from maskpolicy.runs.file_to_folder import Prepared
    from maskpolicy.runs.progress import StageSummary

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
    from maskpolicy.executors.capacity import check_jobs
    from maskpolicy.executors.engines import LOCAL, SLURM, parsed
    from maskpolicy.graph import processes
    from maskpolicy.runs import file_to_folder
    from maskpolicy.runs.progress import ProgressBars

    name, address = parsed(executor, jobs)
    if dry_run and name != SLURM:
        raise ConfigError("--dry-run: is for --executor slurm; `maskpolicy plan` is for all others")
    if jobs is not None:
        check_jobs(jobs)
    notes = console(err=True)
    log_to(notes)
    request = replace(request_of(file, keys, store, cache, plugin, only), workers=workers)
    prepared = file_to_folder.prepare(request, out, is_dry=dry_run)
    if name == LOCAL:
        jobs, threads = file_to_folder.fit_machine(prepared, jobs, threads)
    if dry_run:
        _print_scripts(prepared)
        return
    if not processes.is_first():
        processes.follow(prepared.order, prepared.store, workers)
        return
    request = replace(request, threads=threads)
    bars = ProgressBars(notes, len(prepared.order))
    outcomes = file_to_folder.compute(prepared, request, (name, address), jobs or 1, bars)
    processes.dismiss()
    seconds = time.monotonic() - started
    # before anything is printed, because output may be cut off, as by `| head`
    finished, took = file_to_folder.write(prepared, outcomes, seconds, jobs or 1)
    _print(finished, took, seconds, jobs or 1)
    end(outcomes.values(), file_to_folder.failed_cells(prepared, outcomes))


def _print_scripts(prepared: Prepared) -> None:
    """Print the scripts that sbatch would get for all that is missing."""
    from maskpolicy.executors.slurm_engine import scripts
    from maskpolicy.graph import planning

    lacking = planning.missing(prepared.part.targets, prepared.store)
    order = [stage for stage in prepared.order if stage.key in lacking]
    for script in scripts(prepared.experiment, order, prepared.folder / "logs"):
        typer.echo(script)


def _print(finished: FinishedRun, took: Sequence[StageSummary], seconds: float, jobs: int) -> None:
    """Print the leaderboard, the table of times, and where the files are."""
    from maskpolicy.runs import progress

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
