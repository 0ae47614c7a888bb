"""Several processes of one command (torchrun, accelerate launch): the first runs the graph.

The others wait, join it in each training, and write nothing that stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from maskpolicy import hardware
from maskpolicy.errors import ConfigError, MaskpolicyError
from maskpolicy.graph.nodes import Run, Stage, function_of, topological
from maskpolicy.keys import plain
from maskpolicy.store.artifacts import Store

_PATIENCE = timedelta(days=30)  # the first process may annotate or evaluate for long


def count() -> int:
    """Return the number of processes of this command, as their launcher says."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Say whether this process is the one that runs the graph."""
    return count() == 1 or os.environ.get("RANK", "0") == "0"


def call(key: str) -> None:
    """Have the other processes begin to compute a stage; for the first one, which computes it too.

    Does nothing where there are no others.
    """
    if count() > 1:
        _tell(key)


def dismiss() -> None:
    """Let the other processes end."""
    if count() > 1:
        _tell(None)


def follow(stages: Iterable[Stage], store: Store, workers: int = 1) -> None:
    """Compute what the first process calls for, with it, until it dismisses this process.

    What a stage raises it raises in the first process too, where it is told.
    """
    known = {stage.key: stage for stage in topological(stages)}
    while (key := _tell(None)) is not None:
        if key not in known:
            raise ConfigError(
                "this process plans other stages than the first one: a file was changed while the "
                "command started: run the command again"
            )
        stage = known[key]
        inputs = {name: store.path(needed.key) for name, needed in stage.inputs.items()}
        run = Run(store.checkpoints(key), plain(stage.local), workers)
        with TemporaryDirectory() as out:
            try:
                function_of(stage.kind)(plain(stage.params), inputs, Path(out), run)
            except MaskpolicyError:
                continue


def _tell(word: str | None) -> Any:
    """Return the word of the first process."""
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    PartialState(cpu=hardware.device().type == "cpu", timeout=_PATIENCE)
    return broadcast_object_list([word])[0]
