"""A worker: it computes the stages of an experiment that no other process is computing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from maskpolicy import hardware, stages
from maskpolicy.config.experiment import Experiment
from maskpolicy.config.parse import load_experiment
from maskpolicy.config.resources import Resources, check_machine
from maskpolicy.errors import ConfigError
from maskpolicy.executors.capacity import set_threads
from maskpolicy.executors.request import Request, check_plan
from maskpolicy.graph import planning, processes
from maskpolicy.graph.execution import execute
from maskpolicy.graph.nodes import Stage, check_kinds, topological
from maskpolicy.graph.outcomes import Outcome, Progress
from maskpolicy.store.artifacts import Store
from maskpolicy.store.opening import open_store

DONE, FAILED, LEFT = 0, 1, 3  # exit codes of a worker; 2 is bad input, as everywhere


@dataclass(frozen=True)
class Tally:
    """The state of the stages when a worker ends."""

    done: int  # stages that are in the store, or that are not needed
    computed: int  # those that this worker computed
    failed: tuple[str, ...]  # one line for each stage that failed
    blocked: int  # stages that were not run, because another one failed
    left: tuple[str, ...]  # names of the stages that other workers compute or are to compute

    @property
    def code(self) -> int:
        """The exit code of the worker."""
        return FAILED if self.failed else LEFT if self.left else DONE


@dataclass(frozen=True)
class Planned:
    """The stages of a request, in topological order, and the store that it names."""

    request: Request
    experiment: Experiment
    order: list[Stage]
    targets: tuple[Stage, ...]
    store: Store


def plan(request: Request) -> Planned:
    """Read an experiment and build its stages; compute nothing.

    Raises ConfigError or DataError for a mistake in the experiment, and ConfigError if the plan is
    not the one that the request names.
    """
    check_kinds(request.kinds or ())
    paths = [Path(file) for file in request.plugins]
    experiment = load_experiment(request.file, request.keys, paths)
    store = open_store(request.store, request.cache)
    whole = stages.build(experiment, store.hash_file, store.cut_file)
    part = stages.choose_cells(whole, request.only)
    order = topological(part.targets)
    check_plan(order, request.plan)
    check_resources(experiment.resources, order, part.targets, store, request.kinds)
    return Planned(request, experiment, order, part.targets, store)


def check_resources(
    resources: Resources,
    order: list[Stage],
    targets: Iterable[Stage],
    store: Store,
    kinds: Collection[str] | None = None,
) -> None:
    """Raise ConfigError if this machine lacks the GPUs of a missing stage that it may compute.

    `kinds` are those that it may compute (None: all). Also raises ConfigError if the experiment
    asks for several processes and a launcher has started some already.
    """
    if resources == Resources():
        return
    if processes.count() > 1 and any(stage.local.processes > 1 for stage in order):
        raise ConfigError(
            f"resources: torchrun or accelerate launch has started {processes.count()} processes "
            "that share each training: remove the launcher, or `processes` and `gpus`"
        )
    lacking = planning.missing(targets, store)
    wanted = {stage.kind for stage in order if stage.key in lacking}
    check_machine(resources, wanted & set(wanted if kinds is None else kinds), hardware.gpus())


def plan_and_compute(
    request: Request,
    progress: Progress | None = None,
    *,
    wait: bool = True,
    retry: bool = False,
) -> Tally:
    """Plan an experiment, and compute the stages that this worker can claim; return their state.

    Other workers may compute the same experiment at the same time: claims in the store distribute
    the stages. With `wait`, the worker stays until every stage is settled, and takes over the
    stages of lost workers; without, it ends when other workers compute all that is left. A stage
    that failed on another worker is not tried here, unless `retry` is True. Raises the errors of
    `plan`, before any computation, and StoreError if the store cannot be used.
    """
    return compute(plan(request), progress, wait=wait, retry=retry)


def compute(
    planned: Planned,
    progress: Progress | None = None,
    *,
    wait: bool = True,
    retry: bool = False,
) -> Tally:
    """Compute the stages of a plan that this worker can claim; see `plan_and_compute`."""
    request = planned.request
    set_threads(planned.experiment, request.threads)
    outcomes = execute(
        planned.order,
        planned.store,
        progress,
        targets=planned.targets,
        workers=request.workers,
        logs=Path(request.logs) if request.logs else None,
        kinds=request.kinds,
        wait=wait,
        retry=retry,
    )
    return tally(planned.order, outcomes)


def tally(order: list[Stage], outcomes: Mapping[str, Outcome]) -> Tally:
    """Count the outcomes of a plan."""
    ended = [outcomes[stage.key] for stage in order if stage.key in outcomes]
    failed = [each for each in ended if each.exception is not None]
    return Tally(
        done=sum(each.error is None for each in ended),
        computed=sum(each.here and each.error is None for each in ended),
        failed=tuple(f"{each.stage.name}: {each.error}" for each in failed),
        blocked=sum(each.error is not None for each in ended) - len(failed),
        left=tuple(stage.name for stage in order if stage.key not in outcomes),
    )
