"""What stages take: processes, GPUs, cores, and jobs on a Slurm cluster. They are in no key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.schema import Count, Positive, Steps, at
from maskpolicy.experiment.budgets import TRAININGS

ON_GPU = (*TRAININGS, "evaluate")  # kinds of stages that use a GPU where there is one


@dataclass(frozen=True)
class Need:
    """What one stage takes."""

    # GPUs of one machine; null: one for each process where there are GPUs, none for stages that
    # use none
    gpus: Steps | None = None
    # of a training, which share its batches on one machine; null: one for each GPU
    processes: Count | None = None
    cpus: Count = 1  # cores that Ray and Slurm reserve for a stage, and the threads it uses there

    @property
    def members(self) -> int:
        """The number of processes."""
        return self.processes or max(1, self.gpus or 1)


@dataclass(frozen=True)
class Resources:
    """What the stages of each kind take; `others` are all kinds without a block of their own."""

    general: Need = field(default_factory=Need)
    fit: Need = field(default_factory=Need)
    intermediate: Need = field(default_factory=Need)
    finetune: Need = field(default_factory=Need)
    evaluate: Need = field(default_factory=Need)
    corpus: Need = field(default_factory=Need)
    annotate: Need = field(default_factory=Need)
    count: Need = field(default_factory=Need)
    others: Need = field(default_factory=Need)

    def of(self, kind: str) -> Need:
        """Return what a stage of a kind takes; KIND-OTHER, as a shard, takes what KIND takes."""
        need: Need = getattr(self, kind.partition("-")[0], self.others)
        return need

    def gpus(self, kind: str, there: bool) -> int:
        """Return the GPUs that a stage takes on a machine or cluster that has some (`there`)."""
        need = self.of(kind)
        if need.gpus is not None:
            return need.gpus
        return need.members if there and kind.partition("-")[0] in ON_GPU else 0


@dataclass(frozen=True)
class Slurm:
    """The jobs that `--executor slurm` submits; GPUs and cores are those of `resources`."""

    partition: str | None = None  # null: the cluster's default
    gpu_partition: str | None = None  # of jobs that take GPUs; null: `partition`
    gpus: bool = True  # whether trainings take a GPU where `resources` does not say
    time: Count = 240  # minutes until a job is stopped; it is then queued again, and resumes
    requeues: Steps = 100  # how often a job is queued again after such a stop
    tasks: Count = 16  # the most tasks of an array at a time
    memory: Positive | None = None  # GB of a task; null: the cluster's default
    account: str | None = None  # that the jobs are charged to
    qos: str | None = None  # quality of service
    constraint: str | None = None  # features that a node must have
    setup: tuple[str, ...] = ()  # lines of shell before a task starts, e.g. module load cuda
    more: dict[str, Any] = field(default_factory=dict)  # other options of sbatch, by name


KINDS = tuple(each.name for each in fields(Resources))


def resources_block(given: Any, where: str) -> Resources:
    """Return the checked resources of an experiment file; raises ConfigError at `where`."""
    for key in given if isinstance(given, Mapping) else ():
        if key in schema.fields_of(Need):
            block = f"{{intermediate: {{{key}: {given[key]}}}}}"
            raise ConfigError(f"{at(where, key)}: is for a kind of stage: write e.g. {block}")
    blocks = schema.block(Resources, given, where)
    for kind, need in blocks.items():
        _check(kind, need, at(where, kind))
    return Resources(**blocks)


def _check(kind: str, need: Need, where: str) -> None:
    if kind in TRAININGS:
        if need.gpus and need.processes and need.processes != need.gpus:
            raise ConfigError(
                f"{where}: {need.processes} processes cannot share {need.gpus} GPUs: give each "
                "process one GPU, or leave `processes` out"
            )
    elif need.members > 1:
        key = "processes" if need.processes else "gpus"
        raise ConfigError(
            f"{at(where, key)}: only trainings ({', '.join(TRAININGS)}) are computed by several "
            "processes: leave it out"
        )


def widest(resources: Resources) -> int:
    """Return the most GPUs that a stage takes on a machine with GPUs."""
    return max(resources.gpus(kind, there=True) for kind in KINDS)


def check_machine(resources: Resources, kinds: Iterable[str], gpus: int) -> None:
    """Raise ConfigError if a stage of one of `kinds` takes more GPUs than this machine has."""
    for kind in kinds:
        wanted = resources.gpus(kind, gpus > 0)
        if wanted > gpus:
            key = kind.partition("-")[0]
            raise ConfigError(
                f"resources.{key}: takes {wanted} GPUs, and this machine has {gpus}: lower it, or "
                "compute these stages on another machine"
            )
