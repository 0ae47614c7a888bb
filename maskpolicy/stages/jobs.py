"""Several stages at a time: processes beside this one that compute the same experiment."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

from maskpolicy.errors import ConfigError, MaskpolicyError
from maskpolicy.graph import processes

_PATIENCE = 10  # seconds that a process has to end


@dataclass(frozen=True)
class Request:
    """What the processes compute, named as the command names it: each plans it for itself."""

    file: Path
    keys: Sequence[str]
    plugins: Sequence[Path]
    store: Path
    workers: int
    logs: Path
    only: Sequence[str] = ()  # a part of the experiment


def check(count: int) -> None:
    """Refuse more jobs than cores, or beside a launcher's several processes (ConfigError)."""
    most = max(2, os.cpu_count() or 1)  # make quickstart has two, also where there is one core
    if count > most:
        raise ConfigError(f"--jobs {count}: name at most {most}, as many as there are cores")
    if count > 1 and processes.count() > 1:
        raise ConfigError(
            f"--jobs {count}: torchrun or accelerate launch has started {processes.count()} "
            "processes that share each training; leave out --jobs, or the launcher"
        )


@contextmanager
def beside(count: int, request: Request) -> Iterator[None]:
    """Have `count` - 1 processes compute what this one computes, until it is done or dies.

    The store deals the stages out. All share the CPU's threads evenly, and the GPUs in turn. A
    process that is lost leaves its stage to the others.
    """
    if count == 1:
        yield
        return
    import torch

    threads, gpus = torch.get_num_threads(), _gpus()
    share = max(1, threads // count)
    spawn = get_context("spawn")
    others, ends = [], []
    try:
        torch.set_num_threads(share)
        for number in range(1, count):
            end, said = spawn.Pipe(duplex=False)
            gpu = gpus[number % len(gpus)] if gpus else ""
            other = spawn.Process(target=_join, args=(request, share, gpu, said))
            other.start()
            others.append(other)
            ends.append(end)
            said.close()  # so that the pipe ends with the process
        threading.Thread(target=_relay, args=(ends,), daemon=True).start()
        yield
    finally:
        for other in others:
            other.terminate()
        for other in others:
            other.join(_PATIENCE)
            other.kill()  # does nothing to one that has ended
        torch.set_num_threads(threads)


def _relay(ends: list[Any]) -> None:
    """Say here what other processes log, until all of them have ended."""
    while ends:
        ready: list[Any] = connection.wait(ends)
        for end in ready:
            try:
                name, level, message = end.recv()
            except (EOFError, OSError):  # it has ended, perhaps in the middle of a line
                ends.remove(end)
            else:
                logging.getLogger(name).log(level, "%s", message)


def _gpus() -> list[str]:
    """Return the names of the GPUs that this process may use, its own first."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def _join(request: Request, threads: int, gpu: str, said: Any) -> None:
    """Compute the stages of an experiment that no other process is at; for a process of its own.

    Errors are left to the process that started this one: it meets them itself.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that started this one ends it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # in order: nothing is left behind
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    logger = logging.getLogger("maskpolicy")
    logger.addHandler(_Pipe(said))
    logger.setLevel(logging.ERROR)  # what there is to say of the plan, that process says
    logger.propagate = False
    import torch

    from maskpolicy import stages
    from maskpolicy.config.parse import load_experiment
    from maskpolicy.graph.execution import execute
    from maskpolicy.store.artifacts import Store

    torch.set_num_threads(threads)
    with suppress(MaskpolicyError):
        experiment = load_experiment(request.file, request.keys, request.plugins)
        store = Store(request.store)
        plan = stages.part(stages.build(experiment, store.hash_file), request.only)
        logger.setLevel(logging.INFO)
        execute(
            plan.targets, store, targets=plan.targets, workers=request.workers, logs=request.logs
        )


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


class _Pipe(logging.Handler):
    """Sends what is logged through a pipe."""

    def __init__(self, end: Any) -> None:
        super().__init__()
        self._end = end

    def emit(self, record: logging.LogRecord) -> None:
        self._end.send((record.name, record.levelno, record.getMessage()))
