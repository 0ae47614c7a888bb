"""Trackers such as TensorBoard, through accelerate: what they do wrong never stops a training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

Log: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""log(step, values)."""

_PROJECT = "maskpolicy"
_log = logging.getLogger(__name__)


@contextmanager
def tracked(
    name: str | None, folder: Path | None, run: str, cpu: bool = False
) -> Iterator[Log | None]:
    """Give what logs the values of one training to a tracker below `folder`; None: none is wanted.

    `run` names the training: in TensorBoard it is a folder of its own. `cpu` says that it runs on a
    CPU: accelerate must be told so by everybody. Whatever fails, from a package that is not
    installed to a server that does not answer, is one warning.
    """
    if name is None or folder is None:
        yield None
        return
    tracker = _Tracker(name)
    tracker.attempt(lambda: tracker.open(folder, run, cpu))
    try:
        yield lambda step, values: tracker.attempt(lambda: tracker.log(step, values))
    finally:
        tracker.attempt(tracker.close)


class _Tracker:
    """The trackers of one training, off after the first failure."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trackers: list[Any] = []

    def attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a training is worth more than its curves
            self.trackers = []
            reason = next(iter(str(error).splitlines()), "")
            _log.warning(
                "tracker %s is off for this stage: %s: %s", self.name, type(error).__name__, reason
            )

    def open(self, folder: Path, run: str, cpu: bool) -> None:
        from accelerate import Accelerator

        folder.mkdir(parents=True, exist_ok=True)
        accelerator = Accelerator(cpu=cpu, log_with=self.name, project_dir=str(folder))
        if not accelerator.log_with:
            raise RuntimeError(f"its package is not installed: pip install {self.name}")
        by_folder = self.name in ("tensorboard", "dvclive")
        named = {"wandb": {"name": run}} if self.name == "wandb" else {}
        accelerator.init_trackers(run if by_folder else _PROJECT, init_kwargs=named)
        self.trackers = accelerator.trackers

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for tracker in self.trackers:
            tracker.log(dict(values), step=step)

    def close(self) -> None:
        for tracker in self.trackers:
            tracker.finish()
        self.trackers = []
