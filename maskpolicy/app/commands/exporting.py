"""maskpolicy pretrain, export, submission, pack, verify and site: write models, share runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from typer import Argument, Option

from maskpolicy.app.arguments import (
    DetailOptions,
    Keys,
    Plugins,
    PushOptions,
    RunStoreOptions,
    StoreOptions,
    Workers,
    end,
    repeated,
)
from maskpolicy.app.printed import console, log_to
from maskpolicy.core.errors import ConfigError, MaskpolicyError
from maskpolicy.plugins import discovery

_FILES = "FILE_OR_GLOB"
ModelFolder: TypeAlias = Annotated[
    Path, Option(metavar="DIR", help="The Transformers folder to write.")
]


def pretrain(
    *,
    model: Annotated[
        str, Option(metavar="NAME_OR_DIR", help="mini, a folder, or a name on the Hub.")
    ],
    policy: Annotated[str, Option(metavar="NAME", help="The masking policy.")],
    out: ModelFolder,
    corpus: Annotated[list[str], Option(metavar=_FILES, help="Files of text; repeatable.")],
    keys: Keys = None,
    validation: Annotated[
        list[str] | None,
        Option(metavar=_FILES, help="Files of other text to measure the loss on; repeatable."),
    ] = None,
    store: StoreOptions,
    plugin: Plugins = None,
    workers: Workers = 1,
    hub: PushOptions,
    detail: DetailOptions,
) -> None:
    """Continue pre-training on your own text; the same command continues where it stopped."""
    started = time.monotonic()
    from maskpolicy.app import own_text, progress
    from maskpolicy.app.progress import RunProgress

    notes, amount = detail.notes()
    hub.check()
    if any("=" not in word and Path(word).is_file() for word in keys or ()):
        raise ConfigError(
            "--corpus and --validation: take one file each: quote a pattern, --corpus 'notes/*.txt'"
        )
    words, files, texts = keys or (), plugin or (), validation or ()
    asked = own_text.Request(model, policy, corpus, out, words, files, texts)
    prepared = own_text.prepare(asked, store.open())
    targets, artifacts = prepared.targets, prepared.store
    bars = RunProgress(notes, targets, artifacts, failures=False, detail=amount)
    outcomes = own_text.compute(prepared, workers, bars)
    end(outcomes)
    line = own_text.export(prepared, hub.push or "")
    seconds, screen = time.monotonic() - started, console()
    screen.print(progress.to_table(progress.parts(outcomes, seconds), seconds))
    if line:
        screen.print(line, soft_wrap=True, highlight=False)
    screen.print(f"written to {prepared.out}", soft_wrap=True)
    hub.upload(prepared.out, "model")


def export(
    *,
    run: Annotated[str, Argument(metavar="RUN", help="A folder that `run` wrote.")],
    policy: Annotated[str, Argument(metavar="ROW", help="The label of a row.")],
    out: ModelFolder,
    task: Annotated[
        str | None,
        Option(metavar="TASK", help="Export the model fine-tuned on it, not pre-trained."),
    ] = None,
    seed: Annotated[
        int | None, Option(metavar="N", help="The fine-tuning seed; default: the first.")
    ] = None,
    checkpoints: Annotated[
        bool,
        Option("--checkpoints", help="Its checkpoints too, chck_1M, ..; --push: as branches."),
    ] = False,
    store: RunStoreOptions,
    plugin: Plugins = None,
    hub: PushOptions,
) -> None:
    """Write the model of a row with its tokenizer and a model card with its results."""
    from maskpolicy.app import packing, transformers_folders
    from maskpolicy.leaderboard.results.cell import read_run

    log_to(console(err=True))
    hub.check()
    if checkpoints and task:
        raise ConfigError("--checkpoints: are models before fine-tuning: leave out --task")
    discovery.load_files(plugin or (), fresh=True)
    more = [*(["--checkpoints"] if checkpoints else []), *repeated("--plugin", plugin)]
    command = transformers_folders.command(run, policy, out, task, seed, more)
    out = out.resolve()
    transformers_folders.check_out(out, transformers_folders.EXPORT)
    with packing.opened([run]) as runs:
        artifacts = store.open(runs.kept)
        results = read_run(runs.only())
        with runs.naming(lambda: artifacts):
            early = transformers_folders.export_model(
                results,
                policy,
                artifacts,
                out,
                task,
                seed,
                command=command,
                name=hub.push or "",
                checkpoints=checkpoints,
            )
    console().print(f"written to {out}", soft_wrap=True)
    hub.upload(out, "model", early)


def submission(
    *,
    runs: Annotated[list[str], Argument(metavar="RUN...", help="Folders that `run` wrote.")],
    row: Annotated[str, Option(metavar="ROW", help="The label of a row.")],
    name: Annotated[str, Option(metavar="NAME", help="What the pipeline calls the model.")],
    out: Annotated[
        Path, Option(metavar="DIR", help="The folder of the pipeline's results.")
    ] = Path("results"),
    seed: Annotated[
        int | None, Option(metavar="N", help="The fine-tuning seed; default: the first.")
    ] = None,
    store: RunStoreOptions,
    plugin: Plugins = None,
) -> None:
    """Write a row's answers to BabyLM's tasks as its pipeline of 2025 does, and an entry's JSON."""
    from maskpolicy.app import packing
    from maskpolicy.app import submission as entries
    from maskpolicy.leaderboard.results.cell import read_run

    if Path(name).name != name:
        raise ConfigError(f"--name {name}: name a folder in that of --out, without a slash")
    if Path(name).stem != name:
        raise ConfigError(f"--name {name}: the pipeline cuts names at the last dot: leave dots out")
    discovery.load_files(plugin or (), fresh=True)
    with packing.opened(runs) as opened:
        artifacts = store.open(opened.kept)
        results = [read_run(folder) for folder in opened.folders]
        with opened.naming(lambda: artifacts):
            path, missing = entries.write(results, row, seed, artifacts, out / name)
    if missing:
        console(err=True).print(f"not in it: {', '.join(missing)}", soft_wrap=True)
    console().print(f"written to {path}", soft_wrap=True)


def pack(
    *,
    run: Annotated[Path, Argument(metavar="RUN", help="A folder that `run` wrote.")],
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Default: the run's name below runs/, with .zip.")
    ] = None,
    hub: PushOptions,
) -> None:
    """Pack a run's folder into a zip file that `leaderboard` joins, with no store."""
    from maskpolicy.app import packing

    hub.check()
    written = packing.pack(run, out or packing.default_file(run))
    console().print(f"written to {written}", soft_wrap=True)
    hub.upload(written, "dataset")
    if hub.push:
        line = f"to join it: maskpolicy leaderboard hf://datasets/{hub.push}"
        console().print(line, soft_wrap=True)


def verify(
    *,
    runs: Annotated[
        list[str],
        Argument(metavar="ZIP...", help="Zips, folders of `run` or `board`, or hf://datasets/.."),
    ],
) -> None:
    """Check that the digests of runs and boards hold: a line for each fault, and exit code 1."""
    from maskpolicy.app import packing, site

    results, lines = 0, list[str]()
    for place in runs:
        try:
            with packing.opened([place]) as opened:
                for folder in opened.folders:
                    count, faults = site.faults(opened, folder)
                    results += count
                    lines += faults
        except MaskpolicyError as error:
            lines.append(str(error))
    for line in lines:
        console().print(line, soft_wrap=True)
    pairs = ((results, "result"), (len(lines), "fault"))
    counts = ", ".join(f"{count} {word}{'s'[: count != 1]}" for count, word in pairs)
    console().print(f"{counts}: {', '.join(runs)}", soft_wrap=True)
    if lines:
        raise typer.Exit(1)


def site(
    *,
    runs: Annotated[
        list[str],
        Argument(metavar="RUN...", help="Folders of `run` or `board`, zips, or hf://datasets/.."),
    ],
    out: Annotated[Path, Option(metavar="DIR", help="A new folder, or a site to write again.")],
    title: Annotated[str, Option(metavar="TEXT", help="The heading.")] = "Leaderboards",
    unverified: Annotated[
        bool, Option("--unverified", help="Do not check digests, as `verify` does.")
    ] = False,
) -> None:
    """Write a static site of runs and boards: an index with search and filters, and all pages."""
    from maskpolicy.app.site import write

    with console(err=True).status("reading", refresh_per_second=2) as status:
        count = write(runs, out, title, status.update, unverified=unverified)
    s = "s"[: count != 1]
    console().print(f"{count} leaderboard{s}, written to {out / 'index.html'}", soft_wrap=True)
