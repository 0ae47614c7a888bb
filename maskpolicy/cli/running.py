"""maskpolicy run and plan: an experiment file to a leaderboard, or to what that would take."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.cli import ranking
from maskpolicy.cli.words import STORE, File, Keys, Plugins, StorePath, console, end, log_to

if TYPE_CHECKING:
    from maskpolicy.experiment import Experiment
    from maskpolicy.graph import Outcome
    from maskpolicy.progress import Part
    from maskpolicy.store import Store
    from maskpolicy.types import Json


def run(
    file: File,
    keys: Keys = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Default: runs/<name of FILE>.")
    ] = None,
    store: StorePath = STORE,
    plugin: Plugins = None,
    jobs: Annotated[int, typer.Option(min=1, help="Stages at a time, a process for each.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Processes that a stage may start.")] = 1,
) -> None:
    """Run an experiment and print its leaderboard; the same command goes on where it stopped."""
    started = time.monotonic()
    from maskpolicy import (
        config,
        graph,
        leaderboard,
        page,
        processes,
        progress,
        questions,
        report,
        results,
        stages,
    )
    from maskpolicy.jobs import Errand, beside, check
    from maskpolicy.store import Store

    check(jobs)
    screen, notes = console(), console(err=True)
    log_to(notes)
    os.environ.setdefault("TQDM_DISABLE", "1")  # other libraries' bars would tear ours
    experiment = config.load(file, keys or (), plugin or ())
    folder = out or Path("runs") / experiment.name
    results.claim(folder)
    artifacts = Store(store)
    plan = stages.build(experiment, artifacts.hash_file)
    order = graph.topological(plan.stages)
    if not processes.is_first():
        processes.follow(order, artifacts, workers)
        return
    logs = folder / "logs"
    errand = Errand(file, keys or (), plugin or (), store, workers, logs)
    with beside(jobs, errand), progress.Bars(notes, len(order)) as bars:
        outcomes = graph.execute(
            order, artifacts, bars, targets=plan.targets, workers=workers, logs=logs
        )
    processes.dismiss()
    collected = results.collect(experiment, plan.cells, outcomes, artifacts, folder, plan.early)
    board = leaderboard.build([collected])
    report.save(board, folder)
    ranking.show(board, screen, gaps=False)  # the bars have told what failed
    seconds = time.monotonic() - started
    took = progress.parts(outcomes.values(), seconds)
    screen.print(progress.to_table(took, seconds, jobs))
    _record(folder, experiment, list(outcomes.values()), took, seconds, jobs, artifacts)
    questions.save(plan.cells, artifacts, folder)
    page.save(board, folder / "leaderboard.html")
    screen.print(f"written to {folder}", soft_wrap=True)
    failed = sum(outcomes[stage.key].error is not None for stage in plan.targets)
    why = f"the notes of {folder / 'leaderboard.md'} say why"
    end(outcomes.values(), f"{failed} of {len(plan.targets)} cells failed: {why}")


def plan(file: File, keys: Keys = None, store: StorePath = STORE, plugin: Plugins = None) -> None:
    """Print the stages of an experiment and what is there of each; computes nothing."""
    from collections import Counter

    from rich.table import Table

    from maskpolicy import config, graph, stages
    from maskpolicy.store import Store

    screen = console()
    log_to(console(err=True))
    experiment = config.load(file, keys or (), plugin or ())
    artifacts = Store(store)
    made = stages.build(experiment, artifacts.hash_file)
    planned = graph.plan(made.stages, artifacts, targets=made.targets)
    table = Table("state", "stage", "why", box=None)
    for entry in planned:
        table.add_row(entry.state, entry.stage.name, entry.why)
    screen.print(table)
    counts = Counter(entry.state for entry in planned)
    screen.print(", ".join(f"{number} {state}" for state, number in counts.items()))


def _record(
    folder: Path,
    experiment: Experiment,
    outcomes: Sequence[Outcome],
    took: Sequence[Part],
    seconds: float,
    jobs: int,
    store: Store,
) -> None:
    """Write run.json: what differs from run to run, so that nothing but the page holds it."""
    from maskpolicy import hardware, manifest, results

    here = manifest.surroundings()
    made = {outcome.stage.key: store.recall(outcome.stage.key) or here for outcome in outcomes}
    record = {
        "experiment": experiment.name,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "jobs": jobs,
        "parts": [asdict(part) for part in took],
        "hardware": hardware.describe(),
        **here,
        "stages": [
            {
                "kind": outcome.stage.kind,
                "label": outcome.stage.label,
                "key": outcome.stage.key,
                "seconds": outcome.seconds or made[outcome.stage.key].get("seconds", 0.0),
                "from_store": outcome.hit,
                "error": outcome.error,
                "made_with": _other(made[outcome.stage.key], here),
            }
            for outcome in outcomes
        ],
    }
    results.write(folder / "run.json", f"{json.dumps(record, indent=1)}\n".encode())


def _other(made: Json, here: Json) -> Json:
    """Return versions and commit of what was made with others than ours, else None."""
    facts = {key: made[key] for key in ("versions", "commit")}
    return None if facts == {key: here[key] for key in facts} else facts
