"""The engine that computes stages in arrays of Slurm jobs, which submitit submits."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maskpolicy.config.experiment import Experiment
from maskpolicy.config.slurm import Slurm
from maskpolicy.errors import ConfigError, StageError
from maskpolicy.executors.backlog import Backlog, Left, Slot, pinned_keys, slots_of
from maskpolicy.executors.capacity import is_small
from maskpolicy.executors.request import Request, absolute
from maskpolicy.executors.slurm_task import Task
from maskpolicy.executors.store_marker import hold_marker
from maskpolicy.graph.nodes import Stage
from maskpolicy.graph.outcomes import Progress
from maskpolicy.store.artifacts import Store

_POLL = 10.0  # seconds between two checks of the jobs
_GRACE = 120  # seconds between the signal of preemption or time-out and the end of a task
_MOST_FAILED = 20  # tasks that may fail one after another without a finished stage between them
SLURM, LOCAL = "slurm", "local"  # names of submitit's clusters


@contextmanager
def on_slurm(
    request: Request,
    experiment: Experiment,
    order: Sequence[Stage],
    store: Store,
    cluster: str = SLURM,
) -> Iterator[SlurmWorkers]:
    """Keep jobs queued for the stages that are left until the block ends; then cancel them.

    `cluster` is a name of submitit: "slurm", or "local" for jobs on this machine. Raises
    ConfigError if jobs cannot be submitted from this machine.
    """
    check_submitit()
    if cluster == SLURM and shutil.which("sbatch") is None:
        raise ConfigError(
            "--executor slurm: there is no sbatch here: run it on a login node of the cluster, or "
            "see the scripts that it would get with --dry-run"
        )
    asked = absolute(request)
    threads = asked.threads or (1 if is_small(experiment) else None)
    asked = replace(asked, keys=(*asked.keys, *pinned_keys(experiment)), threads=threads)
    kinds = {stage.kind for stage in order}
    slots = slots_of(experiment.resources, kinds, experiment.slurm.gpus)
    with hold_marker(store) as marker:
        workers = SlurmWorkers(asked, experiment, slots, order, marker, cluster)
        try:
            yield workers
        finally:
            workers.end()


def check_submitit() -> None:
    """Raise ConfigError if submitit is not installed."""
    if find_spec("submitit") is None:
        raise ConfigError("--executor slurm: submitit is missing: pip install 'maskpolicy[slurm]'")


def scripts(experiment: Experiment, order: Sequence[Stage], logs: Path) -> list[str]:
    """Return the sbatch scripts for a run's stages, with as many tasks as can run at a time."""
    check_submitit()
    slurm: Any = import_module("submitit.slurm.slurm")

    class Unsubmitted(slurm.SlurmExecutor):  # type: ignore[misc]
        """An executor for machines without Slurm."""

        @classmethod
        def affinity(cls) -> int:
            return 1

    found = []
    kinds = {stage.kind for stage in order}
    for slot in slots_of(experiment.resources, kinds, experiment.slurm.gpus):
        executor = Unsubmitted(folder=logs, max_num_timeout=experiment.slurm.requeues)
        asked = _for_slurm(experiment.slurm, slot, experiment.name)
        names = executor._equivalence_dict()
        given = {key.removeprefix("slurm_"): value for key, value in asked.items()}
        executor.update_parameters(
            **executor._convert_parameters({key: value for key, value in given.items() if names})
        )
        tasks = min(experiment.slurm.tasks, sum(stage.kind in slot.kinds for stage in order))
        executor.parameters["map_count"] = tasks
        text = executor._make_submission_file_text(executor._submitit_command_str, "")
        found.append(f"# {slot} for {', '.join(slot.kinds)}\n{text}")
    return found


def _for_slurm(slurm: Slurm, slot: Slot, name: str) -> dict[str, Any]:
    """Return the parameters of submitit's AutoExecutor for the jobs of a slot."""
    partition = slurm.gpu_partition or slurm.partition if slot.gpus else slurm.partition
    given = {
        "name": f"maskpolicy-{name}",
        "timeout_min": slurm.time,
        "cpus_per_task": slot.cpus,
        "gpus_per_node": slot.gpus or None,
        "mem_gb": slurm.memory,
        "slurm_partition": partition,
        "slurm_account": slurm.account,
        "slurm_qos": slurm.qos,
        "slurm_constraint": slurm.constraint,
        "slurm_setup": list(slurm.setup) or None,
        "slurm_signal_delay_s": _GRACE,
        "slurm_array_parallelism": slurm.tasks,
        "slurm_additional_parameters": dict(slurm.more) or None,
    }
    return {key: value for key, value in given.items() if value is not None}


@dataclass
class SlurmWorkers:
    """The Slurm jobs of a run."""

    request: Request
    experiment: Experiment
    slots: Sequence[Slot]
    order: Sequence[Stage]
    marker: str  # in the store: see `store_marker`
    cluster: str
    jobs: list[tuple[Slot, Any]] = field(default_factory=list)  # those that have not ended
    failed: int = 0  # since a stage was last finished
    open: int = -1  # stages, when they were last counted
    polled: float = field(default_factory=lambda: time.monotonic() - _POLL)
    backlog: Backlog | None = None

    def watch(self, progress: Progress) -> Progress:
        """Return a `Progress` that also counts the stages that are left."""
        self.backlog = Backlog(self.order, progress)
        return self.backlog

    def pause(self, seconds: float) -> None:
        """Pause, and now and then check the jobs and submit more; raises what stopped them."""
        if self.backlog is not None and time.monotonic() - self.polled >= min(_POLL, 5 * seconds):
            self.polled = time.monotonic()
            self._check_jobs()
            for slot, left in zip(self.slots, self.backlog.left(self.slots), strict=True):
                self._submit(slot, left)
        time.sleep(seconds)

    def end(self) -> None:
        """Cancel all jobs."""
        for _, job in self.jobs:
            with suppress(Exception):
                job.cancel(check=False)

    def _check_jobs(self) -> None:
        """Remove the jobs that have ended; raises ConfigError or StageError for their errors."""
        still_open = sum(left.open for left in self.backlog.left(self.slots)) if self.backlog else 0
        if still_open != self.open:
            self.open, self.failed = still_open, 0
        for slot, job in list(self.jobs):
            if not job.done():
                continue
            self.jobs.remove((slot, job))
            error = job.exception()
            refused = None if error is not None else job.result()
            if refused:
                raise ConfigError(
                    f"Slurm job {job.job_id}: {refused} (all hosts need the same version of "
                    "maskpolicy, and the experiment, its plugins and its data under the same paths)"
                )
            self.failed += error is not None
            if self.failed >= _MOST_FAILED:
                raise StageError(
                    f"{_MOST_FAILED} Slurm jobs failed one after another without finishing a "
                    f"stage, the last one is {job.job_id}: see {job.paths.stderr}"
                )

    def _submit(self, slot: Slot, left: Left) -> None:
        """Submit tasks until there are as many as stages of a slot that can be computed now."""
        queued = sum(other == slot for other, _ in self.jobs)
        missing = min(left.ready, self.experiment.slurm.tasks) - queued
        if missing <= 0:
            return
        submitit: Any = import_module("submitit")
        folder = Path(self.request.logs or ".") / "slurm" / "%j"
        most = self.experiment.slurm.requeues
        executor = submitit.AutoExecutor(folder, self.cluster, slurm_max_num_timeout=most)
        executor.update_parameters(**_for_slurm(self.experiment.slurm, slot, self.experiment.name))
        task = Task(
            replace(self.request, kinds=slot.kinds, threads=self._threads(slot)), self.marker
        )
        jobs = executor.submit_array([task] * missing)
        self.jobs += [(slot, job) for job in jobs]

    def _threads(self, slot: Slot) -> int:
        return self.request.threads or slot.cpus
