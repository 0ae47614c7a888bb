"""maskpolicy plan: show what a run would compute, how long that takes, and what it could find."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

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
    console,
    log_to,
    size_text,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from rich.console import Console

    from maskpolicy.config.experiment import Experiment
    from maskpolicy.config.verbatim import WrittenExperiment
    from maskpolicy.graph.costs import Costs, Expected
    from maskpolicy.graph.planning import Planned
    from maskpolicy.leaderboard.power import Power

_ROWS = 12  # the most stages of one kind, state and reason that are listed one by one


def plan(
    file: File,
    keys: Keys = None,
    store: StorePlace = STORE,
    cache: Cache = None,
    plugin: Plugins = None,
    only: Only = None,
    digest: Annotated[bool, typer.Option("--digest", help="Print the plan's digest only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a run would compute, and what its tests would find; compute nothing.

    Each stage is done, to do, begun, or outdated: computed before with other settings.
    """
    from maskpolicy import stages
    from maskpolicy.config import verbatim
    from maskpolicy.config.parse import experiment_of
    from maskpolicy.executors.capacity import default_jobs
    from maskpolicy.executors.request import plan_digest
    from maskpolicy.graph import costs, planning
    from maskpolicy.graph.nodes import topological
    from maskpolicy.leaderboard import power
    from maskpolicy.runs.file_to_folder import default_folder
    from maskpolicy.store.opening import open_store
    from maskpolicy.training.tracking import check_installed

    log_to(console(err=True))
    written = verbatim.read_experiment(file, keys or (), plugin or ())
    experiment = experiment_of(written, file)
    check_installed(experiment.tracker)
    artifacts = open_store(store, cache)
    whole = stages.build(experiment, artifacts.hash_file, artifacts.cut_file)
    part = stages.choose_cells(whole, only or ())
    order = topological(part.targets)
    if digest:
        console().print(plan_digest(order))
        return
    artifacts.prefetch(stage.key for stage in order)
    missing = planning.missing(part.targets, artifacts)
    records = artifacts.records() if missing else []
    planned = planning.plan(part.targets, artifacts, targets=part.targets, records=records)
    known = costs.known_costs(order, missing, artifacts, elsewhere=lambda: records)
    rest = [stage for stage in order if stage.key in missing]
    takes = costs.expected(rest, known, default_jobs(experiment, missing))
    named = {task for _, task, _ in part.cells}
    corpora = _corpora(experiment, {row for row, _, _ in part.cells})
    found = [each for each in power.plan(experiment, whole, artifacts) if each.task in named]
    if as_json:
        about: dict[str, Any] = {"plan": plan_digest(order), "folder": str(default_folder(written))}
        about |= _to_json(planned, known, takes, found, corpora)
        typer.echo(json.dumps(about, ensure_ascii=False, indent=1))
        return
    _print(planned, takes, console())
    _print_folder(written, console())
    _print_corpora(corpora, console())
    _print_power(found, [*power.lines(found, experiment), *power.untested(whole, named)])


def _to_json(
    planned: Sequence[Planned],
    costs: Costs,
    takes: Expected,
    found: list[Power],
    corpora: dict[str, str],
) -> dict[str, Any]:
    """Return the plan as JSON; seconds and bytes of a stage are null if nothing is known."""
    from maskpolicy.leaderboard import power

    stages = []
    for each in planned:
        cost = costs.of(each.stage) if each.state != "done" else None
        about: dict[str, Any] = {"stage": each.stage.name, "key": each.stage.key}
        about |= {"kind": each.stage.kind, "state": each.state, "why": each.why}
        about["seconds"] = None if cost is None else round(cost.seconds, 3)
        about["bytes"] = None if cost is None else cost.size
        stages.append(about)
    counts = Counter(each.state for each in planned)
    expected, finds = asdict(takes), power.to_json(found)
    about = {"counts": counts, "expected": expected, "power": finds, "stages": stages}
    return {**about, "corpora": corpora}


def _print(planned: Sequence[Planned], takes: Expected, screen: Console) -> None:
    """Print the states of the stages, their counts, and what is left to compute."""
    from rich.table import Table

    table = Table("state", "stage", "why", box=None)
    for row in _grouped(planned):
        table.add_row(*row)
    screen.print(table)
    counts = Counter(entry.state for entry in planned)
    screen.print(", ".join(f"{number} {state}" for state, number in counts.items()))
    if any(entry.state != "done" for entry in planned):
        screen.print(_expectation(takes), soft_wrap=True)


def _print_folder(written: WrittenExperiment, screen: Console) -> None:
    """Print the folder that `run` writes, and whether it holds another experiment's results."""
    from maskpolicy.results import run_folder_state
    from maskpolicy.runs.file_to_folder import default_folder

    folder = default_folder(written)
    owner = run_folder_state.owner_of(folder, written)
    note = f", which holds the results of {owner}: give `run` another --out" if owner else ""
    screen.print(f"`run` writes {folder}{note}", soft_wrap=True)


def _expectation(takes: Expected) -> str:
    """Return a line about the time and the bytes that a run takes."""
    from maskpolicy.runs.meters import duration

    lacking = f"unknown for {', '.join(takes.unknown)}, of which no stage has been computed yet"
    if not takes.measured:
        return f"time and bytes: {lacking}"
    jobs = f" with {takes.workers} stages at a time" if takes.workers > 1 else ""
    work = f" ({duration(takes.work)} of work)" if takes.workers > 1 else ""
    line = (
        f"expected: {duration(takes.seconds)}{jobs}{work}, {size_text(takes.written)} written, "
        f"{size_text(takes.kept)} of them kept; estimated from {takes.measured} finished stages "
        "of the same kinds"
    )
    return f"{line}; {lacking}" if takes.unknown else line


def _grouped(planned: Sequence[Planned]) -> Iterator[tuple[str, str, str]]:
    """Yield (state, stage, why); many stages of one kind for one reason share a row."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry in planned:
        groups.setdefault((entry.state, entry.stage.kind, entry.why), []).append(entry.stage.name)
    for (state, _, why), names in groups.items():
        if len(names) > _ROWS:
            names = [f"{names[0]}, and {len(names) - 1} more"]
        yield from ((state, name, why) for name in names)


def _corpora(experiment: Experiment, rows: Container[str]) -> dict[str, str]:
    """Return the text of each row's intermediate stage in words, by its label."""
    from maskpolicy.config.corpus_mix import with_details

    found = {}
    for block in experiment.policies:
        if block.has_stage and block.label in rows:
            own = [
                with_details(experiment.corpus_of(each)) for each in block.candidates or (block,)
            ]
            found[block.label] = " or ".join(dict.fromkeys(own))
    return found


def _print_corpora(corpora: Mapping[str, str], screen: Console) -> None:
    """Print which rows read which text."""
    from rich.table import Table

    rows: dict[str, list[str]] = {}
    for label, text in corpora.items():
        rows.setdefault(text, []).append(label)
    if not rows:
        return
    table = Table("corpus of the intermediate stage", "rows", box=None)
    for text, labels in rows.items():
        table.add_row(text, "; ".join(labels))
    screen.print()
    screen.print(table)


def _print_power(found: list[Power], remarks: Sequence[str]) -> None:
    """Print the remarks, and the differences that the planned seeds would find."""
    from rich.table import Table

    from maskpolicy.leaderboard import power

    screen = console()
    if found or remarks:
        screen.print()
    for line in remarks:
        screen.print(line, soft_wrap=True)
    if not found:
        return
    rows = power.to_rows(found)
    table = Table(*rows[0], box=None)
    for row in rows:
        table.add_row(*row.values())
    screen.print("Differences to the baseline that would be significant with 80% probability:")
    screen.print(table)
