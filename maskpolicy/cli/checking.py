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
    Workers,
    console,
    detail_of,
    end,
    log_to,
    request_of,
)
from maskpolicy.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from maskpolicy.runs.data_check import RowFigures, TaskFigures


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
    workers: Workers = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Read all data of an experiment, mask its text, and print what each policy masks.

    Nothing is trained. `run` finds what was computed in the store.
    """
    from maskpolicy.findings.masked_sample import Sampling
    from maskpolicy.graph import processes
    from maskpolicy.runs import file_to_folder
    from maskpolicy.runs.data_check import DataCheck
    from maskpolicy.runs.meters import forecast
    from maskpolicy.runs.progress import RunProgress

    if not processes.is_first():  # of several that a launcher started
        return
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
    else:
        _print(rows, tasks, found.later, console())
    refused = [f"{each.row}: {each.problem}" for each in rows if each.problem]
    if refused:
        raise DataError("; ".join(refused))


def _print(
    rows: Sequence[RowFigures],
    tasks: Sequence[TaskFigures],
    later: Sequence[str],
    screen: Console,
) -> None:
    """Print a table of the tasks, one of what each row masks, and one of the answers masked."""
    if tasks:
        screen.print(_examples(tasks))
    for line in (line for each in tasks for line in each.notes):
        screen.print(line, soft_wrap=True, highlight=False)
    if rows:
        screen.print()
        screen.print(_masks(rows))
    if any(each.answer_places for each in rows):
        screen.print()
        screen.print(_answers(rows))
    if later:
        names = "; ".join(later)
        screen.print(f"masks depend on a training: {names}", soft_wrap=True, highlight=False)


def _examples(tasks: Sequence[TaskFigures]) -> Table:
    """Return a table of how many examples each task has."""
    table = _table("task", *tasks[0].examples)
    for each in tasks:
        table.add_row(each.task, *(f"{count:,}" for count in each.examples.values()))
    return table


def _masks(rows: Sequence[RowFigures]) -> Table:
    """Return a table of what each row masks."""
    heads = ("sampled", "of passages", "tokens each", "masked", "spans each", "without span")
    table = _table("first epoch", *heads, "epochs")
    for each in rows:
        table.add_row(
            each.row,
            f"{each.sampled:,}",
            f"{each.passages:,}",
            f"{each.tokens_per_passage:.1f}",
            f"{each.masked_tokens:.1%}",
            f"{each.spans_per_passage:.2f}",
            f"{each.without_span:.1%}",
            f"{each.epochs:.1f}",
        )
    return table


def _answers(rows: Sequence[RowFigures]) -> Table:
    """Return a table of how often the answers of tasks are masked where they stand."""
    table = _table("answers masked", *rows[0].answer_places)
    for each in rows:
        cells = []
        for task, places in each.answer_places.items():
            share = each.answers_masked[task] / places if places else 0.0
            cells.append(f"{share:.1%} of {places:,}" if places else "none there")
        table.add_row(each.row, *cells)
    return table


def _table(first: str, *heads: str) -> Table:
    """Return an empty table whose columns after the first hold numbers."""
    from rich.table import Table

    table = Table(first, box=None)
    for head in heads:
        table.add_column(head, justify="right")
    return table
