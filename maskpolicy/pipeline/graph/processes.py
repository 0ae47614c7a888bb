"""Further processes of this command on this machine, each with a pipe for its reports."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeAlias, TypeVar

from maskpolicy.core import hardware

Report: TypeAlias = Callable[[int, int, str], None]
"""report(done, total, note): the progress of a stage in units such as steps; total 0: unknown."""
T = TypeVar("T")
_TIMEOUT = 60.0  # seconds for a process to finish a step, save a checkpoint and end
_EXIT = 10.0  # seconds for an idle process to end
_APART = 0.5  # seconds between two reports of a stage


class Process(AbstractContextManager["Process"]):
    """A further process of this command, which waits for tasks; killed at the end of its block."""

    def __init__(self, gpus: str = "", imports: bool = True) -> None:
        """Start it with GPUs, as in CUDA_VISIBLE_DEVICES.

        With `imports`, it imports PyTorch at once on a machine without GPUs.
        """
        spawn = get_context("spawn")
        self._pipe, other = spawn.Pipe(duplex=False)
        self._report: Report = lambda *about: None
        self._pool = ProcessPoolExecutor(1, spawn, _begin, (other, gpus))
        with _deaf_to_interrupts():
            started = self._pool.submit(os.getpid)  # this starts the process
        other.close()  # so that the pipe closes when the process ends
        self._started = started
        self._imports = self._pool.submit(_import_models) if imports else started
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._busy: Future[Any] | None = None

    def __exit__(self, *_: object) -> None:
        self.end(0.0)

    def submit(self, task: Callable[[Report], T], report: Report) -> Future[T]:
        """Call a function there; raises BrokenProcessPool, at once or later, if it is killed."""
        self._report = report
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
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that the block starts ignore control-C from the beginning.

    Other signals wait for the end of the block: half a process would print a traceback.
    """
    arrived: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or None in before.values():  # no other thread may set handlers
        yield
        return
    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, lambda late, frame: arrived.append(late))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in arrived:
            signal.raise_signal(late)


def seldom(report: Report, apart: float) -> Report:
    """Return a function that reports the end of a stage, and at most once in `apart` seconds."""
    latest = -apart

    def report_seldom(done: int, total: int, note: str) -> None:
        nonlocal latest
        if time.monotonic() - latest >= apart or done == total:
            latest = time.monotonic()
            report(done, total, note)

    return report_seldom


class SentLogs(logging.Handler):
    """Sends log records to the command's process: sends(logger's name, level, message)."""

    def __init__(self, send: Callable[[str, int, str], object]) -> None:
        """Replace all handlers of maskpolicy's logger."""
        super().__init__()
        self.send, self.pid = send, os.getpid()
        logger = logging.getLogger("maskpolicy")
        logger.handlers = [self]
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record; a process that was forked since does not."""
        if os.getpid() == self.pid:
            self.send(record.name, record.levelno, record.getMessage())


# In the further process

_PIPE: list[Connection] = []
_SENDING = threading.Lock()
_IDLE, _ENDED = threading.Event(), threading.Event()
_IDLE.set()


def _begin(pipe: Connection, gpus: str) -> None:
    """Prepare the process before its first task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, _end)
    hardware.end_with_parent(then=_leave)
    hardware.collect_garbage_rarely()
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries, as its command does
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    _PIPE.append(pipe)
    SentLogs(partial(_send, "log"))


def _leave() -> None:
    """End this process after SIGTERM, when a training has saved a checkpoint."""
    _IDLE.wait(_TIMEOUT)
    os._exit(1)  # the pool would wait for a next task


def _end(number: int, frame: object) -> None:
    _ENDED.set()
    sys.unraisablehook = lambda *_: None  # a destructor that it meets would print a traceback
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
