"""Workers on this machine: further processes that compute the same experiment."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import connection, get_context
from typing import Any

from maskpolicy import hardware
from maskpolicy.errors import ConfigError, MaskpolicyError
from maskpolicy.executors.relay import Relayed, Sender, SentProgress
from maskpolicy.executors.request import Request
from maskpolicy.graph import processes

_TIMEOUT = 60  # seconds for a process to finish a step, save a checkpoint and end
_log = logging.getLogger(__name__)


class Worker:
    """A further process of this command: it imports what takes long, and waits for a request."""

    def __init__(self) -> None:
        """Start the process."""
        spawn = get_context("spawn")
        self.pipe, other = spawn.Pipe()
        self._process = spawn.Process(target=_join, args=(other,))
        self._is_asked = False
        with _deaf_to_interrupts():
            self._process.start()
        other.close()  # so that the pipe closes when the process ends

    def ask(self, request: Request, gpus: str) -> None:
        """Let it compute an experiment, on GPUs as CUDA_VISIBLE_DEVICES names them."""
        self._is_asked = True
        with suppress(OSError):  # it has ended, as `_relay` finds out
            self.pipe.send((request, gpus))

    def end(self) -> None:
        """Let it end; one that computes gives its claims back (see `join`)."""
        if self._is_asked:
            self._process.terminate()
        else:
            self._process.kill()

    def join(self) -> int | None:
        """Wait until the process has ended, at most _TIMEOUT seconds; return its exit code."""
        self._process.join(_TIMEOUT)
        found = self._process.exitcode
        self._process.kill()  # has no effect once it has ended
        return found


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that the block starts ignore control-C from their first moment on."""
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


@contextmanager
def one_early(jobs: int | None) -> Iterator[Worker | None]:
    """Start a worker before the experiment is read, if this machine probably computes with two.

    The worker imports PyTorch meanwhile; `beside` asks it to compute. If nobody has asked it when
    the block ends, it is killed. `jobs` is the number that the user asks for (None: what suits).
    """
    wanted = hardware.small_processes() if jobs is None else jobs
    # with GPUs, CUDA_VISIBLE_DEVICES must be known before PyTorch is imported
    is_wanted = wanted > 1 and processes.count() == 1 and not hardware.may_have_gpus()
    worker = Worker() if is_wanted else None
    try:
        yield worker
    finally:
        if worker is not None:
            worker.end()
            worker.join()


@contextmanager
def beside(
    count: int,
    request: Request,
    wide: int = 1,
    reports: Relayed | None = None,
    early: Worker | None = None,
) -> Iterator[None]:
    """Run `count` - 1 further workers until the block ends or this process dies.

    Claims in the store distribute the stages; if a worker is lost, another one computes its stage.
    `reports` gets the progress of all workers. Each worker uses `wide` GPUs, assigned in turn.
    `early` is one that waits already; it is ended if there is nothing for it to do. Raises
    ConfigError for a store in this process's memory.
    """
    if count > 1 and request.store.startswith("memory:"):
        raise ConfigError(f"--store {request.store}: processes cannot share it: add --jobs 1")
    if early is not None and count == 1:
        early.end()
        early.join()
    gpus = hardware.gpu_names() if count > 1 else []
    workers: list[Worker] = []
    try:
        for number in range(1, count):
            own = [gpus[(number * wide + i) % len(gpus)] for i in range(min(wide, len(gpus)))]
            workers.append(early if early and not workers else Worker())
            workers[-1].ask(request, ",".join(own))
        threading.Thread(target=_relay, args=(list(workers), reports), daemon=True).start()
        yield
    finally:
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.join()


def _relay(workers: list[Worker], reports: Relayed | None) -> None:
    """Log the messages of workers in this process, until all of them have ended.

    Reports of progress are passed on to `reports`.
    """
    by_pipe: dict[Any, Worker] = {worker.pipe: worker for worker in workers}
    while by_pipe:
        ready: list[Any] = connection.wait(list(by_pipe))
        for pipe in ready:
            try:
                what, *about = pipe.recv()
            except (EOFError, OSError):  # the process has ended, perhaps within a message
                if by_pipe.pop(pipe).join() == -signal.SIGKILL:
                    _log.warning(
                        "a process of --jobs was killed (out of memory?): %d go on",
                        len(by_pipe) + 1,
                    )
            else:
                if what == "log":
                    name, level, message = about
                    logging.getLogger(name).log(level, "%s", message)
                elif reports is not None:
                    with suppress(OSError, ValueError):  # output is closed; the pipe must be read
                        reports.receive(what, *about)


def _join(pipe: Any) -> None:
    """Run a worker: the target of a new process, which gets its request through a pipe.

    Its messages go the other way. It ends if the pipe is closed before there is a request.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that claims are given back
    hardware.end_with_parent()
    hardware.collect_garbage_rarely()
    try:
        if not hardware.may_have_gpus():
            _import_models()
        request, gpus = pipe.recv()
    except EOFError:
        return
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    logger = logging.getLogger("maskpolicy")
    messages = Sender(pipe)
    logger.addHandler(_PipeHandler(messages))
    logger.setLevel(logging.ERROR)  # the parent process logs the plan
    logger.propagate = False
    from maskpolicy.executors.stage_worker import compute, plan

    try:
        planned = plan(request)
        logger.setLevel(logging.INFO)
        compute(planned, SentProgress(messages))
    except MaskpolicyError as error:
        logger.error("a process of --jobs ended: %s", error)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # its claims are given back: it may end


def _import_models() -> None:
    from maskpolicy.models.model_kinds import IMPORTS

    for module in IMPORTS:
        import_module(module)


class _PipeHandler(logging.Handler):
    """Sends log records through a pipe."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        self._sender.send("log", record.name, record.levelno, record.getMessage())
