"""The engine of a Slurm cluster: stages that are ready together form an array of jobs."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from maskpolicy.core.errors import ConfigError, MaskpolicyError, need
from maskpolicy.experiment.budgets import Slurm
from maskpolicy.experiment.definition import Experiment
from maskpolicy.pipeline.executors.local import Room, check_auto, room_of
from maskpolicy.pipeline.graph.calls import Answer, Call, Lost, answer_elsewhere
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.graph.processes import Report, seldom

_GATHER = 0.5  # seconds in which stages are collected for one array
_POLL = 10.0  # seconds between two checks of the jobs
_APART = 12.0  # seconds between two reports of one stage
_MOST = 1000  # jobs of an array, as Slurm's default MaxArraySize is 1001
_PATIENCE = 3600.0  # seconds in which a rejected array is submitted again while no job runs
_GRACE = 120  # seconds between the signal of preemption or time-out and the end of a task
SLURM, LOCAL = "slurm", "local"  # names of submitit's clusters
_log = logging.getLogger(__name__)


@dataclass
class _Job:
    """A stage that was submitted."""

    call: Call
    future: Future[Answer]
    report: Report
    job: Any = None  # submitit's
    reported: str = ""  # the last report
    is_late: bool = False  # it had ended without a result when it was checked last
    rejected: float = 0.0  # when Slurm rejected it first


class SlurmEngine(AbstractContextManager["SlurmEngine"]):
    """Gives stages to Slurm through submitit; use as a context manager."""

    capacity: int | None = None

    def __init__(self, experiment: Experiment, logs: Path, cluster: str = SLURM) -> None:
        """Check that jobs can be submitted from this machine; raises ConfigError.

        `cluster` is a name of submitit: "slurm", or "local" for jobs on this machine.
        """
        need("submitit", "slurm", "--executor slurm: submitit is missing")
        if cluster == SLURM and shutil.which("sbatch") is None:
            raise ConfigError(
                "--executor slurm: there is no sbatch here: run it on a login node of the cluster, "
                "or see the scripts that it would get with --dry-run"
            )
        check_auto(experiment, experiment.slurm.gpus)
        self._experiment = experiment
        self._folder = logs.absolute() / SLURM
        self._cluster = cluster
        self._waiting: list[_Job] = []
        self._rejected: list[_Job] = []  # are submitted again
        self._jobs: list[_Job] = []
        self._accepted: set[Room] = set()  # sizes of jobs that Slurm has taken
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._poller = threading.Thread(target=self._poll, daemon=True)
        self._poller.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._poller.join(_POLL)
        for job in self._jobs:
            with suppress(Exception):
                job.job.cancel(check=False)

    def submit(self, call: Call, report: Report) -> Future[Answer]:
        """Compute a stage in a job."""
        future: Future[Answer] = Future()
        with self._lock:
            self._waiting.append(_Job(call, future, report))
        return future

    def _poll(self) -> None:
        """Submit waiting calls, and settle jobs that have ended, until the run ends."""
        checked = 0.0
        while not self._ended.wait(_GATHER):
            with self._lock:
                waiting, self._waiting = self._waiting, []
            arrays: dict[Room, list[_Job]] = defaultdict(list)
            resources, has_gpus = self._experiment.resources, self._experiment.slurm.gpus
            for job in waiting:
                arrays[room_of(resources, job.call.kind, has_gpus)].append(job)
            for room, array in arrays.items():
                for begin in range(0, len(array), _MOST):
                    self._submit(room, array[begin : begin + _MOST])
            if time.monotonic() - checked > (_POLL if self._cluster == SLURM else _GATHER):
                self._jobs = [job for job in self._jobs if not self._settle(job)]
                with self._lock:
                    self._waiting += self._rejected
                self._rejected = []
                checked = time.monotonic()

    def _note(self, call: Call) -> Path:
        return self._folder / f"{call.key[:16]}.json"

    def _submit(self, room: Room, array: list[_Job]) -> None:
        submitit: Any = import_module("submitit")
        slurm = self._experiment.slurm
        try:
            executor = submitit.AutoExecutor(
                self._folder / "%j", self._cluster, slurm_max_num_timeout=slurm.requeues
            )
            executor.update_parameters(**_for_slurm(slurm, room, self._experiment.name))
            calls = [replace(each.call, gpus=room.gpus) for each in array]
            tasks = [Task(call, room.cpus, self._note(call)) for call in calls]
            jobs = executor.submit_array(tasks)
        except Exception as error:  # noqa: BLE001 - what sbatch says, as submitit raises it
            reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            self._reject(room, array, ConfigError(f"--executor slurm: {reason[0]}"))
            return
        self._accepted.add(room)
        self._jobs += [replace(each, job=job) for each, job in zip(array, jobs, strict=True)]

    def _reject(self, room: Room, array: list[_Job], error: ConfigError) -> None:
        """Keep an array for later if Slurm took such jobs before, else end its futures.

        A busy controller does not answer, and a limit of submitted jobs holds until some end.
        """
        now = time.monotonic()
        first = min(each.rejected or now for each in array)
        if room not in self._accepted or (not self._jobs and now - first > _PATIENCE):
            for each in array:
                each.future.set_exception(error)
            return
        if first == now:
            _log.warning("%s: %d jobs are submitted again later", error, len(array))
        self._rejected += [replace(each, rejected=each.rejected or now) for each in array]

    def _settle(self, job: _Job) -> bool:
        """Pass the report of a job on, or set its future if it has ended; return whether it has."""
        has_ended = False
        with suppress(OSError):  # of a file system that may answer later
            has_ended = job.job.done()
        if not has_ended:
            with suppress(OSError, ValueError):
                text = self._note(job.call).read_text()
                if text != job.reported:
                    job.report(*json.loads(text))
                    job.reported = text
            return False
        try:
            if not job.is_late and not job.job.paths.result_pickle.exists():
                job.is_late = True  # a slow file system may show the result later
                return False
            job.job._results_timeout_s = 0  # submitit would wait 15 seconds for each lost job
            answer = job.job.result()
        except Exception as error:  # noqa: BLE001 - it failed, or a file cannot be read
            why = f"{type(error).__name__}; see {job.job.paths.stderr}"
            job.future.set_exception(Lost(f"Slurm job {job.job.job_id} gave no result ({why})"))
            return True
        if isinstance(answer, MaskpolicyError):
            job.future.set_exception(type(answer)(f"Slurm job {job.job.job_id}: {answer}"))
        else:
            job.future.set_result(answer)
        return True


@dataclass(frozen=True)
class Task:
    """Computes one stage; submitit pickles and calls it."""

    call: Call
    cpus: int
    note: Path  # a file for its progress

    def __call__(self) -> Answer | MaskpolicyError:
        """Compute the stage; return an error of this host instead of raising it."""
        logging.basicConfig(stream=sys.stdout, format="%(asctime)s %(message)s")
        logging.getLogger("maskpolicy").setLevel(logging.INFO)
        os.environ.setdefault("TQDM_DISABLE", "1")
        os.environ.setdefault("OMP_NUM_THREADS", str(self.cpus))

        def tell(done: int, total: int, note: str) -> None:
            with suppress(OSError):
                part = self.note.with_suffix(".part")
                part.write_text(json.dumps([done, total, note]))
                part.replace(self.note)

        report = seldom(tell, _APART)
        report(0, 0, "")
        try:
            return answer_elsewhere(self.call, report)
        except MaskpolicyError as error:
            return error
        finally:
            self.note.unlink(missing_ok=True)

    def checkpoint(self) -> Any:
        """Return the same task for submitit to queue after preemption or a time-out.

        It continues from the checkpoints in the store.
        """
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def scripts(experiment: Experiment, order: Sequence[Stage], logs: Path) -> list[str]:
    """Return the sbatch scripts for a run's stages, one for each size of job."""
    need("submitit", "slurm", "--executor slurm: submitit is missing")
    check_auto(experiment, experiment.slurm.gpus)
    slurm: Any = import_module("submitit.slurm.slurm")

    class Unsubmitted(slurm.SlurmExecutor):  # type: ignore[misc]
        """An executor for machines without Slurm."""

        @classmethod
        def affinity(cls) -> int:
            return 1

    kinds: dict[Room, list[str]] = defaultdict(list)
    for stage in order:
        room = room_of(experiment.resources, stage.kind, experiment.slurm.gpus)
        kinds[room].append(stage.kind)
    texts = []
    widest = sorted(kinds, key=lambda room: (room.gpus, room.cpus), reverse=True)
    for room, stages in ((room, kinds[room]) for room in widest):
        executor = Unsubmitted(folder=logs / SLURM, max_num_timeout=experiment.slurm.requeues)
        asked = _for_slurm(experiment.slurm, room, experiment.name)
        given = {key.removeprefix("slurm_"): value for key, value in asked.items()}
        executor.update_parameters(**executor._convert_parameters(given))
        executor.parameters["map_count"] = min(experiment.slurm.tasks, len(stages))
        text = executor._make_submission_file_text(executor._submitit_command_str, "")
        texts.append(f"# {room} for {', '.join(sorted(set(stages)))}\n{text}")
    return texts


def _for_slurm(slurm: Slurm, room: Room, name: str) -> dict[str, Any]:
    """Return the parameters of submitit's AutoExecutor for jobs of one size."""
    partition = slurm.gpu_partition or slurm.partition if room.gpus else slurm.partition
    asked = {
        "name": f"maskpolicy-{name}",
        "timeout_min": slurm.time,
        "cpus_per_task": room.cpus,
        "gpus_per_node": room.gpus or None,
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
    return {key: value for key, value in asked.items() if value is not None}
