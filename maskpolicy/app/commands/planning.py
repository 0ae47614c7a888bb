"""maskpolicy plan, check and status: what a run will compute and mask, and its progress."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from maskpolicy.app.arguments import (
    AsJson,
    DetailOptions,
    ExperimentOptions,
    Workers,
    end,
)
from maskpolicy.app.printed import console, log_to, print_json, size_text, table
from maskpolicy.core.errors import DataError, listed

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from maskpolicy.app.file_to_folder import Prepared
    from maskpolicy.experiment.definition import Experiment
    from maskpolicy.leaderboard.power import Power
    from maskpolicy.pipeline.executors.status import Status
    from maskpolicy.pipeline.graph.costs import Costs, Expected
    from maskpolicy.pipeline.graph.planning import Planned

_ROWS = 12  # the most stages of one kind, state and reason that are listed one by one


def plan(
    *,
    experiment: ExperimentOptions,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="List the stages, and why each is to do.")
    ] = False,
    gpus: Annotated[
        str | None, Option("--hardware", metavar="GPUS", help="Hours and memory there: h100x8.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what a run would compute, and which differences its tests would find; train nothing.

    Each stage is done, to do, begun, or outdated (computed before with other settings).
    """
    from maskpolicy.app import file_to_folder
    from maskpolicy.leaderboard import power
    from maskpolicy.pipeline.executors.engines import default_jobs
    from maskpolicy.pipeline.graph import costs, events, planning

    log_to(console(err=True))
    prepared = file_to_folder.prepare(experiment, is_dry=True)
    resolved, artifacts, order = prepared.experiment, prepared.store, prepared.order
    targets, cells = prepared.part.targets, prepared.part.cells
    missing = planning.missing(targets, artifacts)
    records = artifacts.records() if missing else []
    planned = planning.plan(targets, artifacts, targets=targets, records=records)
    past = costs.known_costs(order, missing, artifacts, elsewhere=lambda: records)
    rest = [stage for stage in order if stage.key in missing]
    lacking = missing & {stage.key for stage in targets}  # `run` has a job for each at most
    takes = costs.expected(rest, past, default_jobs(resolved, lacking))
    named = {task for _, task, _ in cells}
    corpora = _corpora(resolved, {row for row, _, _ in cells})
    differences, untested = power.plan(resolved, prepared.whole, artifacts)
    finds = [each for each in differences if each.task in named]
    before = None
    if gpus is not None:
        from maskpolicy.pipeline.graph.preflight import Machine, preflight

        before = preflight(Machine.of(gpus), rest, resolved.model)
    if as_json:
        print_json(
            {
                "plan": events.plan_digest(order),
                "folder": str(prepared.folder),
                "counts": Counter(entry.state for entry in planned),
                "expected": asdict(takes),
                "power": power.to_json(finds),
                "stages": [_as_json(entry, past) for entry in planned],
                "corpora": corpora,
                **({"hardware": asdict(before)} if before else {}),
            }
        )
        return
    _print_plan(planned, takes, stages=verbose)
    for line in (*(before.lines if before else ()), _folder_line(prepared)):
        console().print(line, soft_wrap=True)
    _print_corpora(corpora)
    remarks = [f"No test on {task}: {untested[task]}." for task in sorted(named & {*untested})]
    _print_power(finds, [*power.lines(finds, resolved), *remarks])


def _as_json(entry: Planned, past: Costs) -> dict[str, Any]:
    """Return a stage as JSON; seconds and bytes are null if they are unknown."""
    cost = past.of(entry.stage) if entry.state != "done" else None
    return {
        "stage": entry.stage.name,
        "key": entry.stage.key,
        "kind": entry.stage.kind,
        "state": entry.state,
        "why": entry.why,
        "seconds": cost and round(cost.seconds, 3),
        "bytes": cost and cost.size,
    }


def _print_plan(planned: Sequence[Planned], takes: Expected, *, stages: bool) -> None:
    """Print how many stages of each kind are in each state, and what the rest will take.

    With `stages`, list each stage with the reason for its state.
    """
    screen = console()
    if stages:
        shown = table("state", "stage", "why")
        for row in _grouped(planned):
            shown.add_row(*row)
        screen.print(shown)
    for state, number in Counter(entry.state for entry in planned).items():
        kinds = Counter(entry.stage.kind for entry in planned if entry.state == state)
        names = (kind if count == 1 else f"{count} {kind}" for kind, count in kinds.items())
        screen.print(f"{number} {state}: {', '.join(names)}", soft_wrap=True)
    if any(entry.state != "done" for entry in planned):
        screen.print(_expectation(takes), soft_wrap=True)


def _grouped(planned: Sequence[Planned]) -> Iterator[tuple[str, str, str]]:
    """Yield (state, stage, why), with one row for many stages of one kind and reason."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry in planned:
        groups.setdefault((entry.state, entry.stage.kind, entry.why), []).append(entry.stage.name)
    for (state, _, why), names in groups.items():
        if len(names) > _ROWS:
            names = [listed(names, most=1)]
        yield from ((state, name, why) for name in names)


def _expectation(takes: Expected) -> str:
    """Return a line about the time and the disk space that a run will need."""
    from maskpolicy.app.progress import duration

    lacking = f"unknown for {', '.join(takes.unknown)}, because no such stage was computed yet"
    if not takes.measured:
        return f"time and bytes: {lacking}"
    jobs = f" with {takes.workers} stages at a time" if takes.workers > 1 else ""
    work = f" ({duration(takes.work)} of work)" if takes.workers > 1 else ""
    stages = "1 finished stage" if takes.measured == 1 else f"{takes.measured} finished stages"
    line = (
        f"expected: {duration(takes.seconds)}{jobs}{work}, {size_text(takes.written)} written, "
        f"{size_text(takes.kept)} of them kept; estimated from {stages} of the same kinds"
    )
    if takes.of_others:
        kinds = ", ".join(takes.of_others)
        line += f"; those of {kinds} are from other experiments, and may be far off"
    return f"{line}; {lacking}" if takes.unknown else line


def _print_corpora(corpora: Mapping[str, str]) -> None:
    """Print the corpora and the rows that read each."""
    rows: dict[str, list[str]] = {}
    for label, text in corpora.items():
        rows.setdefault(text, []).append(label)
    if not rows:
        return
    shown = table("corpus of the intermediate stage", "rows")
    for text, labels in rows.items():
        shown.add_row(text, "; ".join(labels))
    screen = console()
    screen.print()
    screen.print(shown)


def _print_power(differences: list[Power], remarks: Sequence[str]) -> None:
    """Print the remarks, and the differences that the planned seeds would find."""
    from maskpolicy.leaderboard.power import to_rows

    screen, rows = console(), to_rows(differences)
    if rows or remarks:
        screen.print()
    for line in remarks:
        screen.print(line, soft_wrap=True)
    if rows:
        shown = table(*rows[0])
        for row in rows:
            shown.add_row(*row.values())
        screen.print("Differences to the baseline that would be significant with 80% probability:")
        screen.print(shown)


def _folder_line(prepared: Prepared) -> str:
    """Return a line about the folder that `run` writes, and whose results it holds."""
    from maskpolicy.leaderboard.results import run_folder

    owner = run_folder.owner_of(prepared.folder, prepared.written)
    note = f", which holds the results of {owner}: give `run` another --out" if owner else ""
    return f"`run` writes {prepared.folder}{note}"


def _corpora(experiment: Experiment, rows: Container[str]) -> dict[str, str]:
    """Return a description of each row's corpus, by the row's label."""
    from maskpolicy.experiment.model_and_corpus import with_details

    texts = {}
    for block in experiment.policies:
        if block.has_stage and block.label in rows:
            candidates = block.candidates or (block,)
            own = [with_details(experiment.corpus_of(each)) for each in candidates]
            texts[block.label] = " or ".join(dict.fromkeys(own))
    return texts


def check(
    *,
    experiment: ExperimentOptions,
    passages: Annotated[int, Option(min=1, help="The most passages of a corpus to mask.")] = 2000,
    workers: Workers = 1,
    as_json: AsJson = False,
    detail: DetailOptions,
) -> None:
    """Read all data of an experiment, mask its text, and print what each policy masks.

    Nothing is trained. `run` finds what was computed in the store.
    """
    from maskpolicy.analyses.masked_sample import Sampling
    from maskpolicy.app import data_check, file_to_folder
    from maskpolicy.app.progress import RunProgress

    notes, amount = detail.notes()
    prepared = file_to_folder.prepare(experiment, is_dry=True)
    checked = data_check.DataCheck(prepared, Sampling(passages))
    bars = RunProgress(notes, checked.read, prepared.store, failures=False, detail=amount)
    end(checked.compute(workers, bars))
    rows, tasks = checked.rows(), checked.tasks()
    if as_json:
        about = {"rows": list(map(asdict, rows)), "tasks": list(map(asdict, tasks))}
        print_json({**about, "later": checked.later})
    else:
        data_check.show(rows, tasks, checked.later)
    problems = [f"{each.row}: {each.problem}" for each in rows if each.problem]
    if problems:
        raise DataError("; ".join(problems))


def status(
    *,
    experiment: ExperimentOptions,
    as_json: AsJson = False,
) -> None:
    """Print which stages of an experiment are done, under way, failed and left; compute nothing."""
    from maskpolicy.app import file_to_folder
    from maskpolicy.pipeline.executors.status import status_of

    screen = console()
    log_to(console(err=True))
    prepared = file_to_folder.prepare(experiment, is_dry=True)
    state = status_of(prepared.order, prepared.part.targets, prepared.store)
    if as_json:
        print_json(asdict(state))
        return
    screen.print(f"plan {state.plan}")
    for stage in state.under_way:
        share = f": {stage['done']} of {stage['total']}" if stage["total"] else ""
        more = f", {stage['note']}" if stage["note"] else ""
        where = "by the command on {host} (process {pid}) since {since}".format_map(stage)
        screen.print(f"… {stage['stage']} {where}{share}{more}", soft_wrap=True)
    for failed in state.failed:
        screen.print("✗ {stage} at {time}: {error}".format_map(failed), soft_wrap=True)
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
    from maskpolicy.app.progress import duration

    if not state.left and not state.under_way:
        return "nothing is left to compute"
    if state.unknown:
        kinds = ", ".join(state.unknown)
        return f"time left: unknown, as no stage of these kinds has been computed yet: {kinds}"
    count = max(1, len(state.under_way))
    return (
        f"time left: about {duration(state.seconds or 0.0)}, estimated from {state.measured} "
        f"finished stages of the same kinds, for {count} stage{'s' if count > 1 else ''} at a time"
    )
