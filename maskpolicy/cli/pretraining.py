"""maskpolicy pretrain: continue pre-training a model on your own text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from maskpolicy.cli import pushing
from maskpolicy.cli.arguments import (
    STORE,
    Cache,
    Keys,
    Plugins,
    Quiet,
    StorePlace,
    Verbose,
    Workers,
    console,
    detail_of,
    end,
    log_to,
)
from maskpolicy.cli.pushing import Private, Push
from maskpolicy.errors import ConfigError

_FILES = "FILE_OR_GLOB"
CorpusFiles: TypeAlias = Annotated[
    list[str], typer.Option(metavar=_FILES, help="Files of text; repeatable.")
]
ValidationFiles: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar=_FILES, help="Files of other text to measure the loss on; repeatable."),
]


def pretrain(
    model: Annotated[
        str, typer.Option(metavar="NAME_OR_DIR", help="mini, a folder, or a name on the Hub.")
    ],
    policy: Annotated[str, typer.Option(metavar="NAME", help="The masking policy.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The Transformers folder to write.")],
    corpus: CorpusFiles,
    keys: Keys = None,
    validation: ValidationFiles = None,
    store: StorePlace = STORE,
    cache: Cache = None,
    plugin: Plugins = None,
    workers: Workers = 1,
    push: Push = None,
    private: Private = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Continue pre-training on your own text; the same command continues where it stopped."""
    started = time.monotonic()
    from maskpolicy.graph import processes
    from maskpolicy.runs import progress, text_to_folder
    from maskpolicy.runs.meters import forecast
    from maskpolicy.runs.progress import RunProgress
    from maskpolicy.store.opening import open_store

    notes, detail = console(err=True), detail_of(quiet, verbose)
    log_to(notes, detail=detail)
    pushing.check(push, private=private)
    if any("=" not in word and Path(word).is_file() for word in keys or ()):
        raise ConfigError(
            "--corpus and --validation: take one file each: quote a pattern, --corpus 'notes/*.txt'"
        )
    asked = text_to_folder.Request(
        model,
        policy,
        tuple(corpus),
        out,
        tuple(keys or ()),
        tuple(plugin or ()),
        tuple(validation or ()),
    )
    prepared = text_to_folder.prepare(asked, open_store(store, cache))
    if not processes.is_first():
        processes.follow(prepared.order, prepared.store, workers)
        return
    ahead = forecast(text_to_folder.targets(prepared), prepared.store)
    bars = RunProgress(notes, ahead, failures=False, detail=detail)  # `end` reports failures
    outcomes = text_to_folder.compute(prepared, workers, bars)
    processes.dismiss()
    end(outcomes)
    text_to_folder.export(prepared, push or "")
    seconds, screen = time.monotonic() - started, console()
    screen.print(progress.to_table(progress.parts(outcomes, seconds), seconds))
    if found := text_to_folder.validation_sentence(prepared):
        screen.print(found, soft_wrap=True, highlight=False)
    screen.print(f"written to {prepared.out}", soft_wrap=True)
    pushing.push(prepared.out, push, "model", private=private)
