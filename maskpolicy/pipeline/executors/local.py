"""The engine of this machine: some further processes, each with a pipe for its reports."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.budgets import TRAININGS, Resources, resolve_auto
from maskpolicy.experiment.definition import Experiment
from maskpolicy.pipeline.graph.calls import Answer, Call, Report, SentLogs, answer_elsewhere, seldom

T = TypeVar("T")
_log = logging.getLogger(__name__)
_TIMEOUT = 60.0  # seconds for a process to finish a step, save a checkpoint and end
_EXIT = 10.0  # seconds for an idle process to end
_APART = 0.5  # seconds between two reports of a stage


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


class Process:
    """A further process of this command, which waits for tasks."""

    def __init__(
        self, gpus: str = "", imports: bool = True, report: Report = lambda *about: None
    ) -> None:
        """Start it with GPUs, as in CUDA_VISIBLE_DEVICES, and the `report` of its tasks.

        With `imports`, it imports PyTorch at once on a machine without GPUs.
        """
        spawn = get_context("spawn")
        self._pipe, other = spawn.Pipe(duplex=False)
        self._report = report
        self._pool = ProcessPoolExecutor(1, spawn, _begin, (other, gpus))
        with _deaf_to_interrupts():
            started = self._pool.submit(os.getpid)  # this starts the process
        other.close()  # so that the pipe closes when the process ends
        self._started = started
        self._imports = self._pool.submit(_import_models) if imports else started
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._busy: Future[Any] | None = None

    def submit(self, task: Callable[[Report], T], report: Report | None = None) -> Future[T]:
        """Call a function there; raises BrokenProcessPool, at once or later, if it is killed."""
        self._report = report or self._report
        future = self._pool.submit(_call, task)
        self._busy = future
        return future

    @property
    def is_busy(self) -> bool:
        """Whether it has a task that has not ended."""
        return self._busy is not None and not self._busy.done()

    def stop(self) -> None:
        """Ask it to end; a training saves a checkpoint first."""
        if self._started.done() and self._started.exception() is None and self.is_busy:
            with suppress(ProcessLookupError):
                os.kill(self._started.result(), signal.SIGTERM)

    def end(self, timeout: float = _TIMEOUT) -> None:
        """Wait for its task, for `timeout` seconds at most, and end it."""
        if self._busy is not None:
            wait([self._busy], timeout)
        closing = threading.Thread(target=self._pool.shutdown, kwargs={"cancel_futures": True})
        closing.start()
        closing.join(0.0 if self.is_busy or not self._imports.done() else _EXIT)
        if closing.is_alive():
            with suppress(Exception):
                os.kill(self._started.result(_TIMEOUT), signal.SIGKILL)
            closing.join()

    def _read(self) -> None:
        """Pass reports and log records of the process on, until it has ended."""
        with suppress(EOFError, OSError):
            while True:
                what, *about = self._pipe.recv()
                if what == "log":
                    name, level, message = about
                    logging.getLogger(name).log(level, "%s", message)
                else:
                    self._report(*about)


@contextmanager
def member(report: Report) -> Iterator[Process]:
    """Start one of several processes that compute a training; see `calls.Group`."""
    process = Process(imports=False, report=report)
    try:
        yield process
    finally:
        process.end(0.0)


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
        self._processes = [
            early if early is not None and not number else Process(own, not own)
            for number, own in enumerate(self._gpus)
        ]

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.stop()
        for process in self._processes:
            process.end()

    def submit(self, call: Call, report: Report) -> Future[Answer]:
        """Compute a stage in a process that is free; a killed one is replaced first."""
        number = next(n for n, process in enumerate(self._processes) if not process.is_busy)
        task = partial(answer_elsewhere, call, member)
        try:
            return self._processes[number].submit(task, report)
        except BrokenProcessPool:
            self._processes[number].end()
            own = self._gpus[number]
            self._processes[number] = Process(own, not own)
            return self._processes[number].submit(task, report)


@contextmanager
def one_early(jobs: int | None) -> Iterator[Process | None]:
    """Start a process before the experiment is read, if several will probably compute.

    It imports PyTorch meanwhile, and `LocalEngine` uses it. `jobs` is the user's number (None: as
    many as suit the machine). The process is killed when the block ends.
    """
    wanted = hardware.small_processes() if jobs is None else jobs
    # with GPUs, CUDA_VISIBLE_DEVICES must be set before PyTorch is imported
    is_wanted = wanted > 1 and not hardware.may_have_gpus()
    process = Process() if is_wanted else None
    try:
        yield process
    finally:
        if process is not None:
            process.end(0.0)


def check_place(place: str, jobs: int) -> None:
    """Raise ConfigError for several processes and a store in the memory of one."""
    if jobs > 1 and place.startswith("memory:"):
        raise ConfigError(f"--store {place}: processes cannot share it: add --jobs 1")


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that the block starts ignore control-C from the beginning."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before is None:  # no other thread may set handlers; None: not set by Python
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# In the further process

_PIPE: list[Connection] = []
_SENDING = threading.Lock()
_IDLE, _ENDED = threading.Event(), threading.Event()
_IDLE.set()


def _begin(pipe: Connection, gpus: str) -> None:
    """Prepare the process before its first task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    hardware.collect_garbage_rarely()
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    _PIPE.append(pipe)
    SentLogs(partial(_send, "log"))


def _end_with_parent() -> None:
    """End this process when its parent has ended; a training saves a checkpoint first."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        _IDLE.wait(_TIMEOUT)  # the pool would wait for a next task
        os._exit(1)


def _end(number: int, frame: object) -> None:
    _ENDED.set()
    sys.exit(1)  # the exception saves checkpoints and releases locks


@contextmanager
def _ending() -> Iterator[None]:
    """End this process if SIGTERM comes in the block; the pool would start the next task."""
    try:
        yield
    finally:
        if _ENDED.is_set():
            os._exit(1)


@_ending()
def _import_models() -> None:
    from maskpolicy.models.model_kinds import IMPORTS

    if not hardware.may_have_gpus():
        for module in IMPORTS:
            import_module(module)


@_ending()
def _call(task: Callable[[Report], T]) -> T:
    _IDLE.clear()
    try:
        return task(seldom(partial(_send, "advance"), _APART))
    finally:
        _IDLE.set()


def _send(*message: Any) -> None:
    with suppress(OSError), _SENDING:  # the parent may have ended
        _PIPE[0].send(message)
