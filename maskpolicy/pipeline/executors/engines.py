"""Who computes the stages, as --executor names it: this machine, a Ray cluster, or Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.experiment.budgets import widest
from maskpolicy.experiment.definition import Experiment
from maskpolicy.pipeline.executors import local
from maskpolicy.pipeline.graph import processes
from maskpolicy.pipeline.graph.execution import Engine
from maskpolicy.pipeline.graph.nodes import Stage

LOCAL, RAY, SLURM = "local", "ray", "slurm"


@dataclass(frozen=True)
class Executor:
    """Who computes the stages, as `--executor` names it."""

    name: str = LOCAL
    address: str = ""  # of Ray's cluster
    early: local.Process | None = None  # a process of this machine that was started before


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
        raise ConfigError(f"--jobs {jobs}: {name} decides how many run at a time: leave it out")
    if processes.count() > 1:
        raise ConfigError(
            f"--executor {executor}: torchrun or accelerate launch has started {processes.count()} "
            "processes: remove the launcher, and set resources: {intermediate: {gpus: ..}}"
        )
    return Executor(name, address)


@contextmanager
def engine(
    executor: Executor, jobs: int, experiment: Experiment, order: Sequence[Stage], logs: Path
) -> Iterator[Engine | None]:
    """Start the engine of an executor, and end what it started when the block ends.

    It is None for one stage at a time in this process. Raises ConfigError if the executor cannot
    be used.
    """
    if executor.name == RAY:
        from maskpolicy.pipeline.executors.ray_engine import RayEngine

        with RayEngine(executor.address, experiment) as on_ray:
            yield on_ray
    elif executor.name == SLURM:
        from maskpolicy.pipeline.executors.slurm_engine import SlurmEngine

        with SlurmEngine(experiment, logs) as on_slurm:
            yield on_slurm
    elif jobs == 1:
        yield None
    else:
        wide = widest(experiment.resources)
        with local.LocalEngine(jobs, wide, executor.early) as here:
            yield here
