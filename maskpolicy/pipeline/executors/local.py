"""The engine of this machine, and what stages need of a machine."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.budgets import TRAININGS, Resources, resolve_auto
from maskpolicy.experiment.definition import Experiment
from maskpolicy.pipeline.graph.calls import Answer, Call, answer_elsewhere
from maskpolicy.pipeline.graph.processes import Process, Report


@dataclass(frozen=True)
class Room:
    """The GPUs and cores that a stage needs."""

    gpus: int
    cpus: int

    def __str__(self) -> str:
        """Return a text for messages."""
        gpus = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''} and " if self.gpus else ""
        return f"{gpus}{self.cpus} core{'s' if self.cpus > 1 else ''}"


def room_of(resources: Resources, kind: str, gpus: bool) -> Room:
    """Return what a kind of stage needs; `gpus`: whether the machines have GPUs."""
    need = resources.of(kind)
    if kind.endswith("-feedback"):  # reads what a training reads, in one process
        return Room(min(1, resources.gpus(kind, gpus)), need.cpus)
    return Room(resources.gpus(kind, gpus), need.cpus * need.members)


def check_auto(experiment: Experiment, gpus: bool) -> None:
    """Raise ConfigError if this machine has no GPU, and would decide `auto` for jobs that have one.

    `gpus`: whether trainings without `resources` get a GPU.
    """
    resources = experiment.resources
    words = [
        f"{name}.{key}"
        for name in TRAININGS
        if resources.gpus(name, gpus) and not resources.states_gpus(name)
        for key, value in vars(getattr(experiment, name)).items()
        if vars(resolve_auto(getattr(experiment, name)))[key] != value
    ]
    if words and not hardware.is_cuda():
        raise ConfigError(
            "the cluster has GPUs, but this machine, which decides the settings on auto, has none: "
            "add resources.intermediate.gpus=1, so that auto means a GPU on every machine, or set "
            + ", ".join(words)
        )


class LocalEngine(AbstractContextManager["LocalEngine"]):
    """Computes as many stages at a time as it has processes; use as a context manager."""

    def __init__(self, jobs: int, wide: int = 1, early: Process | None = None) -> None:
        """Start `jobs` processes, or use `early` as one; each gets `wide` GPUs, in turn."""
        self.capacity: int | None = jobs
        gpus = hardware.gpu_names()
        self._gpus = [
            ",".join(gpus[(number * wide + i) % len(gpus)] for i in range(min(wide, len(gpus))))
            for number in range(jobs)
        ]
        self._processes = [early or Process(self._gpus[0]), *map(Process, self._gpus[1:])]

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.stop()
        for process in self._processes:
            process.end()

    def submit(self, call: Call, report: Report) -> Future[Answer]:
        """Compute a stage in a process that is free; a killed one is replaced first."""
        number = next(n for n, process in enumerate(self._processes) if not process.is_busy)
        task = partial(answer_elsewhere, call)
        try:
            return self._processes[number].submit(task, report)
        except BrokenProcessPool:
            self._processes[number].end()
            self._processes[number] = Process(self._gpus[number])
            return self._processes[number].submit(task, report)


def one_early(jobs: int | None) -> AbstractContextManager[Process | None]:
    """Start a process before the experiment is read, if several will probably compute.

    It imports PyTorch meanwhile, and `LocalEngine` uses it. `jobs` is the user's number (None: as
    many as suit the machine). The process is killed when the block ends.
    """
    wanted = hardware.small_processes() if jobs is None else jobs
    # with GPUs, CUDA_VISIBLE_DEVICES must be set before PyTorch is imported
    return Process() if wanted > 1 and not hardware.may_have_gpus() else nullcontext()
