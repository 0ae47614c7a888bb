"""The engine that --executor names, how many stages it computes at a time, and their threads.

The number of threads changes how sums are rounded. So a stage of a small model always has one
thread, and gives the same bytes with any number of cores. Large models use all cores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.experiment.budgets import Resources, check_machine, widest
from maskpolicy.experiment.definition import Experiment
from maskpolicy.models.scratch import preset
from maskpolicy.pipeline.executors import local
from maskpolicy.pipeline.graph import planning
from maskpolicy.pipeline.graph.execution import Engine
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.graph.processes import Process
from maskpolicy.pipeline.store.artifacts import Store

LOCAL, RAY, SLURM = "local", "ray", "slurm"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # of PyTorch's operations, and of MKL's
_MOST_THREADS = 1024


def is_small(experiment: Experiment) -> bool:
    """Return whether more threads would hardly speed up the steps of an experiment's model."""
    model = experiment.model
    return model.is_scratch and preset(model).is_small


def default_jobs(experiment: Experiment, missing: Collection[str]) -> int:
    """Return how many stages to compute at a time on this machine.

    With GPUs, it is their number divided by the number that one stage may need. Without GPUs, it is
    the number of cores for a small model (fewer if memory is short), and 1 for a large one. It is
    at most the number of `missing` stages.
    """
    most = hardware.gpus() // max(1, widest(experiment.resources))
    if not most and is_small(experiment):
        most = hardware.small_processes()
    return max(1, min(most, len(missing)))


def check_resources(
    resources: Resources, order: Iterable[Stage], targets: Iterable[Stage], store: Store
) -> None:
    """Raise ConfigError if this machine lacks the GPUs of a missing stage."""
    if resources == Resources():
        return
    lacking = planning.missing(targets, store)
    kinds = {stage.kind for stage in order if stage.key in lacking}
    check_machine(resources, kinds, hardware.gpus())


def stage_threads(experiment: Experiment, threads: int | None) -> int | None:
    """Return the threads of a stage: as the user says, or 1 for a small model; None: all cores."""
    return threads or (1 if is_small(experiment) else None)


def check_jobs(count: int) -> None:
    """Raise ConfigError for more jobs than cores."""
    most = max(2, os.cpu_count() or 1)  # two processes help even one core
    if count > most:
        raise ConfigError(f"--jobs {count}: name at most {most}, as many as there are cores")


@contextmanager
def threads_kept() -> Iterator[None]:
    """Restore the threads and environment variables that `set_threads` changes in the block."""
    before = {name: os.environ[name] for name in _THREADS if name in os.environ}
    count = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 0
    try:
        yield
    finally:
        for name in _THREADS:
            os.environ.pop(name, None)
        os.environ |= before
        if torch := sys.modules.get("torch"):
            named = before.get(_THREADS[0], "")
            default = int(named) if named.isdecimal() else hardware.cores()
            torch.set_num_threads(count or max(1, default))  # 0: it was imported in the block


def set_threads(experiment: Experiment, threads: int | None, jobs: int = 1) -> int:
    """Set the number of PyTorch's threads in this process, one of `jobs`, and return it.

    `threads` is the user's setting. The default is 1 for a small model, else an equal share of all
    threads (of OMP_NUM_THREADS, if it is set). If the number is 1 and PyTorch is not imported yet,
    only the environment is set; PyTorch reads it later. Raises ConfigError for more than
    `_MOST_THREADS`, which would end the process.
    """
    if threads is not None and threads > _MOST_THREADS:
        raise ConfigError(f"--threads {threads}: more than {_MOST_THREADS} are too many")
    threads = stage_threads(experiment, threads)
    if threads == 1 and "torch" not in sys.modules:
        os.environ.update(dict.fromkeys(_THREADS, "1"))
        return 1
    import torch

    if threads is None:
        threads = max(1, torch.get_num_threads() // jobs)
    torch.set_num_threads(threads)
    return threads


@dataclass(frozen=True)
class Executor:
    """Who computes the stages, as `--executor` names it."""

    name: str = LOCAL
    address: str = ""  # of Ray's cluster
    early: Process | None = None  # a process that `local.one_early` has started


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
        said = f"--jobs {jobs}: {name} decides how many run at a time"
        raise ConfigError(f"{said}: leave it out, and unset $MASKPOLICY_JOBS")
    return Executor(name, address)


@contextmanager
def engine(
    executor: Executor, jobs: int, experiment: Experiment, order: Sequence[Stage], logs: Path
) -> Iterator[Engine | None]:
    """Start the engine of an executor, and end its processes when the block ends.

    Yields None if this process computes one stage at a time. Raises ConfigError if the executor
    cannot be used.
    """
    if executor.name == RAY:
        from maskpolicy.pipeline.executors.ray_engine import RayEngine

        with RayEngine(executor.address, experiment.resources) as on_ray:
            local.check_auto(experiment, on_ray.has_gpus)
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
