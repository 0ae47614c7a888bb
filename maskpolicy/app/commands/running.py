"""maskpolicy run: run an experiment."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from maskpolicy.app import printed
from maskpolicy.app.arguments import (
    DetailOptions,
    ExperimentOptions,
    Threads,
    Workers,
    end,
)
from maskpolicy.app.printed import console
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import from_here
from maskpolicy.pipeline.store import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from maskpolicy.app.contents import FinishedRun
    from maskpolicy.app.file_to_folder import Prepared
    from maskpolicy.app.progress import Detail, StageSummary


def run(
    *,
    out: Annotated[Path | None, Option(metavar="DIR", help="Default: runs/<name of FILE>.")] = None,
    experiment: ExperimentOptions,
    jobs: Annotated[
        int | None,
        Option(
            min=1,
            envvar="MASKPOLICY_JOBS",
            help="Stages at a time, a process for each. Default: what suits the machine.",
        ),
    ] = None,
    threads: Threads = None,
    workers: Workers = 1,
    executor: Annotated[
        str, Option(metavar="local|ray[=ADDRESS]|slurm", help="What computes the stages.")
    ] = "local",
    dry_run: Annotated[
        bool, Option("--dry-run", help="slurm: print the scripts for sbatch, and end.")
    ] = False,
    verify: Annotated[
        bool, Option("--verify", help="First read all files of the run again.")
    ] = False,
    detail: DetailOptions,
    show_page: Annotated[bool, Option("--open", help="Open the page at the end.")] = False,
) -> None:
    """Run an experiment and print its leaderboard; the same command continues where it stopped."""
    started = time.monotonic()
    from maskpolicy.pipeline.executors import local
    from maskpolicy.pipeline.executors.engines import LOCAL, SLURM, check_jobs, parsed

    chosen = parsed(executor, jobs)
    if dry_run and chosen.name != SLURM:
        raise ConfigError("--dry-run: is for --executor slurm; `maskpolicy plan` is for all others")
    if jobs is not None:
        check_jobs(jobs)
    with local.one_early(jobs if chosen.name == LOCAL else 1) as early:
        prepared, notes, amount = _prepared(experiment, out, detail, is_dry=dry_run, verify=verify)
        from maskpolicy.app import file_to_folder
        from maskpolicy.app.progress import RunProgress

        if chosen.name == LOCAL:
            jobs, threads = file_to_folder.fit_machine(prepared, jobs, threads)
        if dry_run:
            _print_scripts(prepared)
            return
        jobs, chosen = jobs or 1, replace(chosen, early=early)
        bars = RunProgress(notes, prepared.part.targets, prepared.store, jobs, detail=amount)
        outcomes = file_to_folder.compute(
            prepared, chosen, bars, jobs=jobs, workers=workers, threads=threads
        )
    seconds = time.monotonic() - started
    # before it prints anything, because output may be cut off, as by `| head`
    finished, took = file_to_folder.write(prepared, outcomes, seconds, jobs)
    _print(finished, took, seconds, jobs, show_page=show_page)
    end(outcomes.values(), file_to_folder.failed_cells(prepared, finished))


def _prepared(
    experiment: ExperimentOptions,
    out: Path | None,
    detail: DetailOptions,
    is_dry: bool,
    verify: bool,
) -> tuple[Prepared, Console, Detail]:
    """Read and plan an experiment; return it with the console for progress, and the detail."""
    from maskpolicy.app.progress import Display

    notes, amount = detail.notes()
    with Display(notes, "run", (0.0, "reading the experiment and its files"), amount):
        from maskpolicy.app import file_to_folder

        return file_to_folder.prepare(experiment, out, is_dry=is_dry, verify=verify), notes, amount


def _print_scripts(prepared: Prepared) -> None:
    """Print the scripts that sbatch would get for the missing stages."""
    from maskpolicy.pipeline.executors.slurm_engine import scripts
    from maskpolicy.pipeline.graph import planning

    lacking = planning.missing(prepared.part.targets, prepared.store)
    order = [stage for stage in prepared.order if stage.key in lacking]
    for script in scripts(prepared.experiment, order, prepared.folder / "logs"):
        typer.echo(script)


def _print(
    finished: FinishedRun,
    took: Sequence[StageSummary],
    seconds: float,
    jobs: int,
    *,
    show_page: bool,
) -> None:
    """Print the leaderboard, the table of times, and where the files are; open the page."""
    import webbrowser

    from maskpolicy.app import progress
    from maskpolicy.app.contents import PAGE

    screen, page = console(), finished.folder / PAGE
    printed.leaderboard(finished.board, screen, gaps=False)  # failures are printed already
    screen.print(progress.to_table(took, seconds, jobs))
    screen.print(f"written to {finished.folder}", soft_wrap=True)
    screen.print(f"page: {page}", soft_wrap=True)
    command = ["maskpolicy", "analyze", "all", str(finished.folder)]
    for file in finished.experiment.plugins:  # commands load no file that only a run names
        command += ["--plugin", from_here(file)]
    if finished.store.place != str(Path(DEFAULT).absolute()):
        command += ["--store", finished.store.place]
    screen.print(f"to explain the scores: {shlex.join(command)}", soft_wrap=True)
    if show_page and not webbrowser.open(page.resolve().as_uri()):
        typer.echo(f"--open: there is no browser here: open {page} elsewhere", err=True)
