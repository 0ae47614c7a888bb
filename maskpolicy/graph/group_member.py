"""The code of each member of a process group: all compute the stage, the first one writes files.

A member has one pipe, to the process that started it (`process_group`), which commits the files.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from maskpolicy import hardware
from maskpolicy.errors import MaskpolicyError, StageError, cause
from maskpolicy.graph.nodes import compute
from maskpolicy.graph.stage_run import Local, StageRun
from maskpolicy.plugins import discovery, isolation
from maskpolicy.types import Json

_TIMEOUT = timedelta(days=1)  # of collective operations: the first member may evaluate meanwhile


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The stage that the members compute, and what they need for it."""

    module: str  # its import registers the stage function
    kind: str
    params: Json
    inputs: Mapping[str, Path]
    out: Path
    local: Local
    workers: int
    name: str
    logs: Path | None
    byproducts: Sequence[str]
    checkpoint: tuple[int, Path] | None  # the newest one
    plugins: isolation.State
    threads: int  # of each member
    port: int  # of the TCPStore for the rendezvous of the members


def join(assignment: Assignment, rank: int, count: int, pipe: Any) -> None:
    """Compute a stage as member `rank` of `count`: the target of a new process.

    Messages go through `pipe` to the process that started this one. They are tuples: ("advance",
    done, total, note), ("log", logger, level, message), ("save", step), ("commit", name, facts),
    ("written",), and at the end ("done", facts) or ("failed", error, is_cause).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    hardware.end_with_parent(signal.SIGKILL)  # it may wait inside a library
    try:
        _enter(assignment, rank, count)
        facts = _compute(assignment, rank, pipe)
    except Exception as error:  # noqa: BLE001 - it is raised in the process that started this one
        pipe.send(("failed", _portable(error), isinstance(error, MaskpolicyError)))
        os._exit(1)  # threads of the group may wait for its other members
    pipe.send(("done", facts))
    pipe.recv()  # until all are done: others may still communicate with this process
    _leave()


def _enter(assignment: Assignment, rank: int, count: int) -> None:
    """Connect to the other members, before PyTorch computes anything here."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ |= {name: str(number) for name, number in place.items()}
    os.environ["OMP_NUM_THREADS"] = str(assignment.threads)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)  # also where the host has no address
    import torch
    from accelerate import PartialState
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    torch.set_num_threads(assignment.threads)
    PartialState(
        cpu=hardware.device().type == "cpu",
        store=TCPStore("127.0.0.1", assignment.port, is_master=False),
        rank=rank,
        world_size=count,
        timeout=_TIMEOUT,
    )


def _leave() -> None:
    """Leave the group, because its threads would abort the exit of this process."""
    import torch

    torch.distributed.destroy_process_group()


def _compute(assignment: Assignment, rank: int, pipe: Any) -> dict[str, Json]:
    """Compute the stage and return its facts; only the first member reports and writes files."""
    logger = logging.getLogger("maskpolicy")
    logger.propagate = False
    logger.addHandler(logging.NullHandler() if rank else _PipeHandler(pipe))
    logger.setLevel(logging.INFO)
    isolation.take(assignment.plugins)
    discovery.load_files(assignment.plugins.roots)
    import_module(assignment.module)
    checkpoints: Any = _Checkpoints(assignment.checkpoint, pipe)
    if rank:
        run = StageRun(checkpoints, assignment.local, assignment.workers)
        with TemporaryDirectory() as out, isolation.checked():
            compute(assignment.kind, assignment.params, assignment.inputs, Path(out), run)
        return {}
    run = StageRun(
        checkpoints=checkpoints,
        local=assignment.local,
        workers=assignment.workers,
        advance=lambda done, total, note: pipe.send(("advance", done, total, note)),
        byproducts={name: partial(_commit, pipe, name) for name in assignment.byproducts},
        name=assignment.name,
        logs=assignment.logs,
    )
    with isolation.checked():
        compute(assignment.kind, assignment.params, assignment.inputs, assignment.out, run)
    return run.facts


@dataclass(frozen=True)
class _Checkpoints:
    """The checkpoints of the stage, which the process that started this one keeps."""

    newest: tuple[int, Path] | None  # step and folder
    pipe: Any

    def latest(self) -> tuple[int, Path] | None:
        return self.newest

    def save(self, step: int, write: Callable[[Path], None]) -> None:
        _request(self.pipe, write, "save", step)


def _commit(pipe: Any, name: str, write: Callable[[Path], None], facts: Mapping[str, Json]) -> None:
    _request(pipe, write, "commit", name, dict(facts))


def _request(pipe: Any, write: Callable[[Path], None], *message: Any) -> None:
    """Send a request, and call `write` with each folder that is sent back, until None is."""
    pipe.send(message)
    while (folder := pipe.recv()) is not None:
        write(folder)
        pipe.send(("written",))


def _portable(error: Exception) -> Exception:
    """Return the error, or a StageError with its text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - an error's class may do anything
        return StageError(cause(error))
    return error


class _PipeHandler(logging.Handler):
    """Sends log records to the process that started this one."""

    def __init__(self, pipe: Any) -> None:
        super().__init__()
        self.pipe = pipe

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the process that started this one has ended
            self.pipe.send(("log", record.name, record.levelno, record.getMessage()))
