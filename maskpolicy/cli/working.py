"""maskpolicy work and status: compute stages beside other workers, and show how far they are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.cli.arguments import (
    STORE,
    AsJson,
    Cache,
    File,
    Keys,
    Only,
    Plugins,
    StorePlace,
    Threads,
    Workers,
    console,
    log_to,
    request_of,
)

if TYPE_CHECKING:
    from maskpolicy.executors.status import Status


def work(
    file: File,
    keys: Keys = None,
    store: StorePlace = STORE,
    cache: Cache = None,
    plugin: Plugins = None,
    only: Only = None,
    workers: Workers = 1,
    threads: Threads = None,
    logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder for the files of trackers.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="Refuse to work unless the plan has this digest."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Compute only this kind of stages; repeatable."),
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Stay until all stages are done, and take over lost ones.")
    ] = True,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try again what failed on any worker.")
    ] = False,
) -> None:
    """Compute the stages of an experiment that no other worker computes, until none is left.

    Exit codes: 0, all that the experiment needs is in the store; 1, stages failed; 2, bad input,
    before any work; 3 (with --no-wait), other workers compute all that is left.
    """
    from maskpolicy.executors import stage_worker
    from maskpolicy.executors.console import WorkerLog, host_format

    log_to(console(err=True), host_format())
    request = replace(
        request_of(file, keys, store, cache, plugin, only),
        workers=workers,
        threads=threads,
        logs=str(logs) if logs else None,
        kinds=tuple(kind) if kind else None,
        plan=plan,
    )
    tally = stage_worker.plan_and_compute(request, WorkerLog(), wait=wait, retry=retry_failed)
    for line in tally.failed:
        typer.echo(f"failed: {line}", err=True)
    if tally.blocked:
        typer.echo(f"not run, because these failed: {tally.blocked} stages", err=True)
    if tally.left:
        typer.echo(f"left to other workers: {len(tally.left)} stages", err=True)
    typer.echo(f"{tally.done} stages are done, {tally.computed} of them by this worker", err=True)
    if tally.code:
        raise typer.Exit(tally.code)


def status(
    file: File,
    keys: Keys = None,
    store: StorePlace = STORE,
    cache: Cache = None,
    plugin: Plugins = None,
    only: Only = None,
    as_json: AsJson = False,
) -> None:
    """Print which stages of an experiment are done, under way, failed and left; compute nothing."""
    from dataclasses import asdict

    from maskpolicy.executors import stage_worker
    from maskpolicy.executors.status import status_of

    screen = console()
    log_to(console(err=True))
    request = request_of(file, keys, store, cache, plugin, only)
    found = status_of(stage_worker.plan(replace(request, kinds=())))  # whatever this machine has
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=1))
        return
    screen.print(f"plan {found.plan}")
    for each in found.under_way:
        share = "" if each.done is None else f": {each.done}"
        share += f" of {each.total}" if share and each.total else ""
        more = f", {each.note}" if each.note else ""
        where = f"on {each.host} (process {each.pid}) since {each.since}"
        lost = f"; no heartbeat since {each.silent}: start a worker" if each.silent else ""
        screen.print(f"… {each.stage} {where}{share}{more}{lost}", soft_wrap=True)
    for failed in found.failed:
        screen.print(f"✗ {failed.stage} on {failed.host}: {failed.error}", soft_wrap=True)
    counts = {
        "done": found.done,
        "under way": len(found.under_way),
        "failed": len(found.failed),
        "blocked by these": found.blocked,
        "left": found.left,
    }
    screen.print(", ".join(f"{number} {name}" for name, number in counts.items()))
    screen.print(_estimate(found), soft_wrap=True)


def _estimate(found: Status) -> str:
    if not found.left and not found.under_way:
        return "nothing is left to compute"
    if found.unknown:
        kinds = ", ".join(found.unknown)
        return f"time left: unknown, as no stage of these kinds has been computed yet: {kinds}"
    minutes = (found.seconds or 0.0) / 60
    time = f"{minutes / 60:.1f} h" if minutes > 90 else f"{max(1, round(minutes))} min"
    workers = max(1, sum(each.silent is None for each in found.under_way))
    return (
        f"time left: about {time}, estimated from {found.measured} finished stages of the same "
        f"kinds, for {workers} worker{'s' if workers > 1 else ''}"
    )
