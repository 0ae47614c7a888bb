"""maskpolicy status: how far an experiment is; and work, which says what computes it now."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.app.commands.arguments import (
    STORE,
    AsJson,
    Cache,
    File,
    Keys,
    Only,
    Plugins,
    StorePlace,
    request_of,
)
from maskpolicy.app.screen import console, log_to
from maskpolicy.core.errors import ConfigError

if TYPE_CHECKING:
    from maskpolicy.pipeline.executors.status import Status


def work(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Say which command shares an experiment among machines."""
    raise ConfigError(
        "work: one command computes an experiment: on several machines, `maskpolicy run FILE "
        "--executor ray=ADDRESS` or `--executor slurm`"
    )


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
    from maskpolicy.app import file_to_folder
    from maskpolicy.pipeline.executors.status import status_of

    screen = console()
    log_to(console(err=True))
    request = request_of(file, keys, store, cache, plugin, only)
    prepared = file_to_folder.prepare(request, None, is_dry=True)
    state = status_of(prepared.order, prepared.part.targets, prepared.store)
    if as_json:
        typer.echo(json.dumps(asdict(state), indent=1))
        return
    screen.print(f"plan {state.plan}")
    for stage in state.under_way:
        share = f": {stage.done} of {stage.total}" if stage.total else ""
        more = f", {stage.note}" if stage.note else ""
        where = f"by the command on {stage.host} (process {stage.pid}) since {stage.since}"
        screen.print(f"… {stage.stage} {where}{share}{more}", soft_wrap=True)
    for failed in state.failed:
        screen.print(f"✗ {failed.stage} at {failed.time}: {failed.error}", soft_wrap=True)
    counts = {
        "done": state.done,
        "under way": len(state.under_way),
        "failed": len(state.failed),
        "blocked by these": state.blocked,
        "left": state.left,
    }
    screen.print(", ".join(f"{number} {name}" for name, number in counts.items()))
    screen.print(_estimate(state), soft_wrap=True)


def _estimate(state: Status) -> str:
    if not state.left and not state.under_way:
        return "nothing is left to compute"
    if state.unknown:
        kinds = ", ".join(state.unknown)
        return f"time left: unknown, as no stage of these kinds has been computed yet: {kinds}"
    minutes = (state.seconds or 0.0) / 60
    time = f"{minutes / 60:.1f} h" if minutes > 90 else f"{max(1, round(minutes))} min"
    count = max(1, len(state.under_way))
    return (
        f"time left: about {time}, estimated from {state.measured} finished stages of the same "
        f"kinds, for {count} stage{'s' if count > 1 else ''} at a time"
    )
