"""maskpolicy export and pack: a model as a Transformers folder, and a run as a zip file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maskpolicy.cli import pushing
from maskpolicy.cli.arguments import Cache, Plugins, RunStore, console, log_to
from maskpolicy.cli.pushing import Private, Push
from maskpolicy.runs.command_words import as_typed, public, repeated


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A folder that `run` wrote.")],
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
    from maskpolicy.publishing import own_text
    from maskpolicy.publishing.transformers_folders import export_model
    from maskpolicy.results import run_record
    from maskpolicy.results.cell import read_run
    from maskpolicy.runs import packing
    from maskpolicy.store.opening import open_store

    log_to(console(err=True))
    pushing.check(push, private=private)
    discovery.load_files(plugin or (), fresh=True)
    words: list[str | Path] = ["export", run, policy, *(["--task", task] if task else [])]
    words += ["--seed", str(seed)] if seed is not None else []
    commands = [as_typed(*words, *repeated("--plugin", plugin), "--out", out)]
    if (Path(run) / WRITTEN).is_file():
        commands.insert(0, as_typed("run", Path(public(run)) / WRITTEN))
    out = out.resolve()
    own_text.check_out(out, own_text.EXPORT)
    with packing.opened([run]) as runs:
        artifacts = open_store(run_record.trusted_store(store, runs.kept), cache)
        found, how = read_run(runs.only()), {"command": "\n".join(commands), "name": push or ""}
        with runs.naming(artifacts):
            export_model(found, policy, artifacts, out, task, seed, **how)
    console().print(f"written to {out}", soft_wrap=True)
    pushing.push(out, push, "model", private=private)


def pack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `run` wrote.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Default: the run's name below runs/, with .zip."),
    ] = None,
    push: Push = None,
    private: Private = False,
) -> None:
    """Pack a run's folder into a zip file that `leaderboard` joins, with no store."""
    from maskpolicy.runs import packing

    pushing.check(push, private=private)
    written = packing.pack(run, out or packing.default_file(run))
    console().print(f"written to {written}", soft_wrap=True)
    pushing.push(written, push, "dataset", private=private)
    if push:
        console().print(f"to join it: maskpolicy leaderboard hf://datasets/{push}", soft_wrap=True)
