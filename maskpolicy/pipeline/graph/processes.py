"""A command that torchrun or accelerate launch started in several processes.

The first process runs the graph. The others wait, compute shared stages together with it, and
write no artifacts.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, MaskpolicyError
from maskpolicy.pipeline.graph.nodes import Stage, StageRun, compute, topological
from maskpolicy.pipeline.store.artifacts import Store

_TIMEOUT = timedelta(days=30)  # the first process may annotate or evaluate for a long time


def count() -> int:
    """Return the number of processes of this command, as set by their launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Return whether this process is the one that runs the graph."""
    return count() == 1 or os.environ.get("RANK", "0") == "0"


def call(key: str) -> None:
    """Make the other processes compute a stage; the first process then computes it too.

    Does nothing if there are no others.
    """
    if count() > 1:
        _broadcast(key)


def dismiss() -> None:
    """End `follow` in the other processes."""
    if count() > 1:
        _broadcast(None)


def follow(stages: Iterable[Stage], store: Store, workers: int = 1) -> None:
    """Compute stages together with the first process, until it dismisses this process.

    An error that a stage raises is raised and reported in the first process too. Raises
    ConfigError if the two processes plan different stages.
    """
    known = {stage.key: stage for stage in topological(stages)}
    while (key := _broadcast(None)) is not None:
        if key not in known:
            raise ConfigError(
                "this process plans other stages than the first one: a file was changed while the "
                "command started: run the command again"
            )
        stage = known[key]
        inputs = {name: store.path(needed.key) for name, needed in stage.inputs.items()}
        run = StageRun(store.checkpoints(key), stage.local, workers)
        with TemporaryDirectory() as out:
            try:
                compute(stage.kind, stage.keyed, inputs, Path(out), run)
            except MaskpolicyError:
                continue


def _broadcast(key: str | None) -> Any:
    """Return the `key` that the first process calls this with; all processes must call it."""
    from accelerate.utils import broadcast_object_list

    _enter()
    return broadcast_object_list([key])[0]


@cache
def _enter() -> None:
    """Connect to the other processes, and leave them when this one exits."""
    from accelerate import PartialState

    state = PartialState(cpu=hardware.device().type == "cpu", timeout=_TIMEOUT)
    atexit.register(state.destroy_process_group)  # its threads would abort the exit
