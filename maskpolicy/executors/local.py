"""Workers on this machine: further processes that compute the same experiment."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from typing import Any

from maskpolicy import hardware
from maskpolicy.errors import ConfigError, MaskpolicyError
from maskpolicy.executors.relay import Relayed, Sender, SentProgress
from maskpolicy.executors.request import Request

_TIMEOUT = 60  # seconds for a process to finish a step, save a checkpoint and end
_log = logging.getLogger(__name__)


@contextmanager
def beside(
    count: int, request: Request, wide: int = 1, reports: Relayed | None = None
) -> Iterator[None]:
    """Run `count` - 1 further workers until the block ends or this process dies.

    Claims in the store distribute the stages; if a worker is lost, another one computes its stage.
    `reports` gets the progress of all workers. Each worker uses `wide` GPUs, assigned in turn.
    Raises ConfigError for a store in this process's memory.
    """
    if count > 1 and request.store.startswith("memory:"):
        raise ConfigError(f"--store {request.store}: processes cannot share it: add --jobs 1")
    gpus = hardware.gpu_names() if count > 1 else []
    spawn = get_context("spawn")
    others, receivers = [], []
    try:
        for number in range(1, count):
            receiver, sender = spawn.Pipe(duplex=False)
            own = [gpus[(number * wide + i) % len(gpus)] for i in range(min(wide, len(gpus)))]
            other = spawn.Process(target=_join, args=(request, ",".join(own), sender))
            other.start()
            others.append(other)
            receivers.append(receiver)
            sender.close()  # so that the pipe closes when the process ends
        processes = dict(zip(receivers, others, strict=True))
        threading.Thread(target=_relay, args=(processes, reports), daemon=True).start()
        yield
    finally:
        for other in others:
            other.terminate()
        for other in others:
            other.join(_TIMEOUT)
            other.kill()  # has no effect once it has ended


def _relay(processes: dict[Any, Any], reports: Relayed | None) -> None:
    """Log the messages of other processes in this one, until all of them have ended.

    Reports of progress are passed on to `reports`. `processes` has each process under the end
    of its pipe that this process reads.
    """
    while processes:
        ready: list[Any] = connection.wait(list(processes))
        for receiver in ready:
            try:
                what, *about = receiver.recv()
            except (EOFError, OSError):  # the process has ended, perhaps within a message
                other = processes.pop(receiver)
                other.join(_TIMEOUT)
                if other.exitcode == -signal.SIGKILL:
                    _log.warning(
                        "a process of --jobs was killed (out of memory?): %d go on",
                        len(processes) + 1,
                    )
            else:
                if what == "log":
                    name, level, message = about
                    logging.getLogger(name).log(level, "%s", message)
                elif reports is not None:
                    with suppress(OSError, ValueError):  # output is closed; the pipe must be read
                        reports.receive(what, *about)


def _join(request: Request, gpus: str, sender: Any) -> None:
    """Run a worker: the target of a new process, which sends its messages through a pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that claims are given back
    hardware.end_with_parent()
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus
    logger = logging.getLogger("maskpolicy")
    messages = Sender(sender)
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


class _PipeHandler(logging.Handler):
    """Sends log records through a pipe."""

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        self._sender.send("log", record.name, record.levelno, record.getMessage())
