"""maskpolicy export and pack: a model as a Transformers folder, and a run as a zip file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maskpolicy.cli.arguments import (
    Cache,
    Plugins,
    Private,
    Push,
    RunStore,
    console,
    log_to,
)
from maskpolicy.runs.command_words import as_typed, public, repeated


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `run` wrote.")],
    policy: Annotated[str, typer.Argument(metavar="ROW", help="The label of a row.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The Transformers folder to write.")],
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="Export the model fine-tuned on it, not pre-trained."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="The fine-tuning seed; default: the first.")
    ] = None,
    store: RunStore = None,
    cache: Cache = None,
    plugin: Plugins = None,
    push: Push = None,
    private: Private = False,
) -> None:
    """Write the model of a row with its tokenizer and a model card with its results."""
    from maskpolicy.config.verbatim import WRITTEN
    from maskpolicy.plugins import discovery
    from maskpolicy.publishing import hub_upload, own_text
    from maskpolicy.publishing.transformers_folders import export_model
    from maskpolicy.results import run_record
    from maskpolicy.results.cell import read_run
    from maskpolicy.store.opening import open_store

    log_to(console(err=True))
    if push:
        hub_upload.check_name(push)
    discovery.load_files(plugin or (), fresh=True)
    words: list[str | Path] = ["export", run, policy, *(["--task", task] if task else [])]
    words += ["--seed", str(seed)] if seed is not None else []
    commands = [as_typed(*words, *repeated("--plugin", plugin), "--out", out)]
    if (run / WRITTEN).is_file():
        commands.insert(0, as_typed("run", Path(public(str(run))) / WRITTEN))
    out = out.resolve()
    own_text.claim(out, own_text.EXPORT)
    artifacts = open_store(run_record.trusted_store(store, [run]), cache)
    command = "\n".join(commands)
    name = push or ""
    export_model(read_run(run), policy, artifacts, out, task, seed, command=command, name=name)
    console().print(f"written to {out}", soft_wrap=True)
    if push:
        address = hub_upload.push(out, push, "model", private=private)
        console().print(f"pushed to {address}", soft_wrap=True)


def pack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `run` wrote.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: the run's name with .zip.")
    ] = None,
    push: Push = None,
    private: Private = False,
) -> None:
    """Pack a run's folder into a zip file that `leaderboard` joins, with no store."""
    from maskpolicy.publishing import hub_upload
    from maskpolicy.runs import packing

    if push:
        hub_upload.check_name(push)
    written = packing.pack(run, out or Path(f"{run.resolve().name}.zip"))
    console().print(f"written to {written}", soft_wrap=True)
    if push:
        address = hub_upload.push(written, push, "dataset", private=private)
        console().print(f"pushed to {address}", soft_wrap=True)
        console().print(f"to join it: maskpolicy leaderboard hf://datasets/{push}", soft_wrap=True)
