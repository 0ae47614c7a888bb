"""The engines of --executor: local processes, Ray, or Slurm."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from maskpolicy.config.experiment import Experiment
from maskpolicy.config.resources import widest
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.executors import local
from maskpolicy.executors.relay import Relayed
from maskpolicy.executors.request import Request
from maskpolicy.graph import processes
from maskpolicy.graph.nodes import Stage
from maskpolicy.graph.outcomes import Progress
from maskpolicy.store.artifacts import Store

LOCAL, RAY, SLURM = "local", "ray", "slurm"


@dataclass(frozen=True)
class Executor:
    """Who computes the stages, as `--executor` names it."""

    name: str = LOCAL
    address: str = ""  # of Ray's cluster
    early: local.Worker | None = None  # a worker on this machine that waits for its request


@dataclass(frozen=True)
class Engine:
    """The arguments of `graph.execution.execute` that depend on the engine."""

    kinds: Collection[str] | None = None  # of stages that the command itself computes
    pause: Callable[[float], None] = time.sleep
    watch: Callable[[Progress], Progress] = lambda progress: progress


def parsed(executor: str, jobs: int | None) -> Executor:
    """Return an executor by its name, or ray=ADDRESS; raises ConfigError."""
    name, sign, address = executor.partition("=")
    if name not in (LOCAL, RAY, SLURM):
        raise ConfigError(f"--executor: {unknown('executor', name, (LOCAL, RAY, SLURM))}")
    if sign and (name != RAY or not address):
        raise ConfigError(f"--executor {executor}: only ray takes an address, ray=HOST:PORT")
    if name == LOCAL:
        return Executor()
    if jobs is not None and jobs > 1:
        raise ConfigError(f"--jobs {jobs}: {name} starts the workers: leave --jobs out")
    if processes.count() > 1:
        raise ConfigError(
            f"--executor {executor}: torchrun or accelerate launch has started {processes.count()} "
            "processes: remove the launcher, and set resources: {intermediate: {gpus: ..}}"
        )
    return Executor(name, address)


@contextmanager
def engine(
    executor: Executor,
    jobs: int,
    request: Request,
    experiment: Experiment,
    order: Sequence[Stage],
    store: Store,
) -> Iterator[Engine]:
    """Start the workers of an executor, and end them when the block ends.

    Raises ConfigError if the executor cannot be used.
    """
    if executor.name == LOCAL:
        reports = Relayed(order)
        wide = widest(experiment.resources)
        with local.beside(jobs, request, wide, reports, executor.early):
            yield Engine(watch=reports.watch)
    elif executor.name == RAY:
        from maskpolicy.executors.ray_engine import on_ray

        with on_ray(executor.address, request, experiment, order, store) as workers:
            yield Engine((), workers.pause, workers.watch)
    else:
        from maskpolicy.executors.slurm_engine import on_slurm

        with on_slurm(request, experiment, order, store) as jobs_of_slurm:
            yield Engine((), jobs_of_slurm.pause, jobs_of_slurm.watch)
