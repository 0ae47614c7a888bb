"""How many stages a machine computes at a time, and with how many threads each.

The number of threads changes how sums are rounded. So a stage of a small model always has one, and
gives the same bytes on machines with any number of cores. Large models use all cores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.budgets import Resources, check_machine, widest
from maskpolicy.experiment.definition import Experiment
from maskpolicy.models.model_kinds import preset
from maskpolicy.pipeline.graph import planning, processes
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.store.artifacts import Store

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # of PyTorch's operations, and of MKL's


@dataclass(frozen=True)
class Room:
    """What the call of a stage takes of a machine."""

    gpus: int
    cpus: int

    def __str__(self) -> str:
        """Return it in words for a message."""
        gpus = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''} and " if self.gpus else ""
        return f"{gpus}{self.cpus} core{'s' if self.cpus > 1 else ''}"


def room_of(resources: Resources, kind: str, gpus: bool) -> Room:
    """Return what a kind of stage takes; `gpus`: whether the machines have GPUs."""
    need = resources.of(kind)
    return Room(resources.gpus(kind, gpus), need.cpus * need.members)


def is_small(experiment: Experiment) -> bool:
    """Return whether more threads would hardly speed up the steps of an experiment's model."""
    model = experiment.model
    return model.is_scratch and preset(model).is_small


def default_jobs(experiment: Experiment, missing: Collection[str]) -> int:
    """Return how many stages to compute at a time on this machine.

    With GPUs, it is their number divided by those of the widest stage. Without, it is the number of
    cores for a small model (fewer if memory is short) and 1 for a large one. It is never more than
    the number of `missing` stages.
    """
    if processes.count() > 1:
        return 1
    most = hardware.gpus() // max(1, widest(experiment.resources))
    if not most and is_small(experiment):
        most = hardware.small_processes()
    return max(1, min(most, len(missing)))


def check_resources(
    resources: Resources, order: Iterable[Stage], targets: Iterable[Stage], store: Store
) -> None:
    """Raise ConfigError if this machine lacks the GPUs of a missing stage.

    Also raises ConfigError if the experiment asks for several processes and a launcher has started
    some already.
    """
    if resources == Resources():
        return
    stages = list(order)
    if processes.count() > 1 and any(stage.local.processes > 1 for stage in stages):
        raise ConfigError(
            f"resources: torchrun or accelerate launch has started {processes.count()} processes "
            "that share each training: remove the launcher, or `processes` and `gpus`"
        )
    lacking = planning.missing(targets, store)
    kinds = {stage.kind for stage in stages if stage.key in lacking}
    check_machine(resources, kinds, hardware.gpus())


def remote_threads(experiment: Experiment, threads: int | None) -> int | None:
    """Return the threads of a process on another machine; None: as many as it has cores."""
    return threads or (1 if is_small(experiment) else None)


def check_jobs(count: int) -> None:
    """Raise ConfigError for more jobs than cores, or for jobs under a multi-process launcher."""
    most = max(2, os.cpu_count() or 1)  # two processes help even one core
    if count > most:
        raise ConfigError(f"--jobs {count}: name at most {most}, as many as there are cores")
    if count > 1 and processes.count() > 1:
        raise ConfigError(
            f"--jobs {count}: torchrun or accelerate launch has started {processes.count()} "
            "processes that share each training: remove --jobs or the launcher"
        )


@contextmanager
def threads_kept() -> Iterator[None]:
    """Leave no trace of `set_threads` in this process's environment after the block."""
    before = {name: os.environ.get(name) for name in _THREADS}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def set_threads(experiment: Experiment, threads: int | None, jobs: int = 1) -> int:
    """Set the number of PyTorch's threads in this process, one of `jobs`, and return it.

    `threads` is the user's setting. The default is 1 for a small model, and an equal share of all
    threads (of OMP_NUM_THREADS, if it is set) for others. If it is 1 and PyTorch is not imported
    yet, only the environment is set, which PyTorch reads when it is imported.
    """
    if threads is None and is_small(experiment):
        threads = 1
    if threads == 1 and "torch" not in sys.modules:
        os.environ.update(dict.fromkeys(_THREADS, "1"))
        return 1
    import torch

    if threads is None:
        threads = max(1, torch.get_num_threads() // jobs)
    torch.set_num_threads(threads)
    return threads
