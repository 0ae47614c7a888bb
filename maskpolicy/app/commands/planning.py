"""maskpolicy plan and check: what a run would compute, find and mask, without any training."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from maskpolicy.app.commands.arguments import (
    AsJson,
    DetailOptions,
    ExperimentOptions,
    Workers,
    end,
)
from maskpolicy.app.screen import console, log_to, print_json
from maskpolicy.core.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from maskpolicy.experiment.definition import Experiment
    from maskpolicy.experiment.verbatim import WrittenExperiment
    from maskpolicy.pipeline.graph.costs import Costs
    from maskpolicy.pipeline.graph.planning import Planned


def plan(
    *,
    experiment: ExperimentOptions,
    digest: Annotated[bool, Option("--digest", help="Print the plan's digest only.")] = False,
    verbose: Annotated[
        bool, Option("--verbose", "-v", help="List the stages, and why each is to do.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a run would compute, and what its tests would find; compute nothing.

    Each stage is done, to do, begun, or outdated: computed before with other settings.
    """
    from maskpolicy.app import printed
    from maskpolicy.app.file_to_folder import default_folder
    from maskpolicy.experiment import verbatim
    from maskpolicy.experiment.parse import experiment_of
    from maskpolicy.leaderboard import power
    from maskpolicy.models.model_kinds import check_folder
    from maskpolicy.models.training.tracking import check_installed
    from maskpolicy.pipeline import stages
    from maskpolicy.pipeline.executors.capacity import default_jobs
    from maskpolicy.pipeline.graph import costs, planning
    from maskpolicy.pipeline.graph.nodes import topological
    from maskpolicy.pipeline.store.opening import open_store

    log_to(console(err=True))
    written = verbatim.read_experiment(
        experiment.file, experiment.keys or (), experiment.plugin or ()
    )
    resolved = experiment_of(written, experiment.file)
    check_installed(resolved.tracker)
    check_folder(resolved.model)
    artifacts = open_store(experiment.store, experiment.cache)
    whole = stages.build(resolved, artifacts.hash_file, artifacts.cut_file)
    part = stages.choose_cells(whole, experiment.only or ())
    order = topological(part.targets)
    if digest:
        console().print(planning.plan_digest(order))
        return
    artifacts.prefetch(stage.key for stage in order)
    missing = planning.missing(part.targets, artifacts)
    records = artifacts.records() if missing else []
    planned = planning.plan(part.targets, artifacts, targets=part.targets, records=records)
    past = costs.known_costs(order, missing, artifacts, elsewhere=lambda: records)
    rest = [stage for stage in order if stage.key in missing]
    takes = costs.expected(rest, past, default_jobs(resolved, missing))
    named = {task for _, task, _ in part.cells}
    corpora = _corpora(resolved, {row for row, _, _ in part.cells})
    finds = [each for each in power.plan(resolved, whole, artifacts) if each.task in named]
    if as_json:
        folder = str(default_folder(written))
        about: dict[str, Any] = {"plan": planning.plan_digest(order), "folder": folder}
        about["counts"] = Counter(entry.state for entry in planned)
        about |= {"expected": asdict(takes), "power": power.to_json(finds)}
        print_json({**about, "stages": _stages(planned, past), "corpora": corpora})
        return
    screen = console()
    printed.plan(planned, takes, screen, stages=verbose)
    screen.print(_folder_line(written), soft_wrap=True)
    printed.corpora(corpora, screen)
    remarks = [*power.lines(finds, resolved), *power.untested(whole, named)]
    printed.power(finds, remarks, screen)


def _stages(planned: Sequence[Planned], past: Costs) -> list[dict[str, Any]]:
    """Return the stages as JSON; seconds and bytes are null if nothing is known."""
    stages = []
    for entry in planned:
        cost = past.of(entry.stage) if entry.state != "done" else None
        about: dict[str, Any] = {"stage": entry.stage.name, "key": entry.stage.key}
        about |= {"kind": entry.stage.kind, "state": entry.state, "why": entry.why}
        about["seconds"] = None if cost is None else round(cost.seconds, 3)
        about["bytes"] = None if cost is None else cost.size
        stages.append(about)
    return stages


def _folder_line(written: WrittenExperiment) -> str:
    """Return the folder that `run` writes, and whether it holds another experiment's results."""
    from maskpolicy.app.file_to_folder import default_folder
    from maskpolicy.leaderboard.results import run_folder_state

    folder = default_folder(written)
    owner = run_folder_state.owner_of(folder, written)
    note = f", which holds the results of {owner}: give `run` another --out" if owner else ""
    return f"`run` writes {folder}{note}"


def _corpora(experiment: Experiment, rows: Container[str]) -> dict[str, str]:
    """Return the text of each row's intermediate stage in words, by its label."""
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
    from maskpolicy.app import file_to_folder, printed
    from maskpolicy.app.data_check import DataCheck
    from maskpolicy.app.progress import RunProgress
    from maskpolicy.pipeline.graph import processes

    if not processes.is_first():  # of several that a launcher started
        return
    notes, amount = detail.notes()
    prepared = file_to_folder.prepare(experiment.request(workers), None, is_dry=True)
    checked = DataCheck(prepared, Sampling(passages))
    bars = RunProgress(notes, checked.read, prepared.store, failures=False, detail=amount)
    end(checked.compute(workers, bars))
    rows, tasks = checked.rows(), checked.tasks()
    if as_json:
        about = {"rows": list(map(asdict, rows)), "tasks": list(map(asdict, tasks))}
        print_json({**about, "later": checked.later})
    else:
        printed.check(rows, tasks, checked.later, console())
    refused = [f"{each.row}: {each.problem}" for each in rows if each.problem]
    if refused:
        raise DataError("; ".join(refused))
