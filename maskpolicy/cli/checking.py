"""maskpolicy check: read all data of an experiment and mask its text, without any training."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
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
    Quiet,
    StorePlace,
    Verbose,
    console,
    detail_of,
    end,
    log_to,
    request_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from maskpolicy.runs.data_check import DataCheck, RowFigures, TaskFigures


def check(
    file: File,
    keys: Keys = None,
    store: StorePlace = STORE,
    cache: Cache = None,
    plugin: Plugins = None,
    only: Only = None,
    passages: Annotated[
        int, typer.Option(min=1, help="The most passages of a corpus to mask.")
    ] = 2000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that a stage may start.")] = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Read all data of an experiment, mask its text, and print what each policy masks.

    Nothing is trained. `run` finds what was computed in the store.
    """
    from maskpolicy.findings.masked_sample import Sampling
    from maskpolicy.runs import file_to_folder
    from maskpolicy.runs.data_check import DataCheck
    from maskpolicy.runs.meters import forecast
    from maskpolicy.runs.progress import RunProgress

    notes, detail = console(err=True), detail_of(quiet, verbose)
    log_to(notes, detail=detail)
    request = replace(request_of(file, keys, store, cache, plugin, only), workers=workers)
    prepared = file_to_folder.prepare(request, None, is_dry=True)
    found = DataCheck(prepared, Sampling(passages))
    ahead = forecast(found.targets, prepared.store)
    end(found.compute(workers, RunProgress(notes, ahead, failures=False, detail=detail)))
    rows, tasks = found.rows(), found.tasks()
    if as_json:
        about = {"rows": list(map(asdict, rows)), "tasks": list(map(asdict, tasks))}
        typer.echo(json.dumps({**about, "later": found.later}, ensure_ascii=False, indent=1))
        return
    _print(rows, tasks, found, console())


def _print(
    rows: Sequence[RowFigures], tasks: Sequence[TaskFigures], found: DataCheck, screen: Console
) -> None:
    from rich.table import Table

    table = Table("task", box=None)
    for split in ("train", "dev", "test"):
        table.add_column(split, justify="right")
    for each in tasks:
        table.add_row(each.task, *(f"{count:,}" for count in each.examples.values()))
    screen.print(table)
    for line in (line for each in tasks for line in each.notes):
        screen.print(line, soft_wrap=True, highlight=False)
    if rows:
        screen.print()
        screen.print(_masks(rows))
    if any(each.answers for each in rows):
        screen.print()
        screen.print(_answers(rows))
    if found.later:
        names = ", ".join(found.later)
        screen.print(f"what these rows mask depends on a training: {names}", soft_wrap=True)


def _masks(rows: Sequence[RowFigures]) -> Table:
    """Return a table of what each row masks."""
    from rich.table import Table

    table = Table("policy", box=None)
    for head in (
        "passages",
        "tokens each",
        "epochs",
        "tokens masked",
        "spans each",
        "without span",
    ):
        table.add_column(head, justify="right")
    for each in rows:
        table.add_row(
            each.row,
            f"{each.passages:,}",
            f"{each.tokens_per_passage:.1f}",
            f"{each.epochs:.1f}",
            f"{each.masked_tokens:.1%}",
            f"{each.spans_per_passage:.2f}",
            f"{each.without_span:.1%}",
        )
    return table


def _answers(rows: Sequence[RowFigures]) -> Table:
    """Return a table of how often the answers of tasks are masked where they stand."""
    from rich.table import Table

    table = Table("answers masked, of those in the text", box=None)
    for task in rows[0].answers:
        table.add_column(task, justify="right")
    for each in rows:
        shares = (
            "none there" if share is None else f"{share:.1%}" for share in each.answers.values()
        )
        table.add_row(each.row, *shares)
    return table
