"""Log to trackers such as TensorBoard through accelerate. Their errors never stop a training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from maskpolicy.core.errors import ConfigError

Log: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""log(step, values)."""

_PROJECT = "maskpolicy"
_log = logging.getLogger(__name__)


def check_installed(name: str | None) -> None:
    """Raise ConfigError if the package of a tracker is not installed; None: there is no tracker."""
    if name is None:
        return
    from accelerate.tracking import get_available_trackers

    if name not in [each.value for each in get_available_trackers()]:
        package = name.replace("_", "-")
        raise ConfigError(f"tracker: {name} is not installed: run `pip install {package}`")


@contextmanager
def tracked(
    name: str | None, folder: Path | None, run: str, cpu: bool = False
) -> Iterator[Log | None]:
    """Yield a function that logs the values of one training; None without a tracker or folder.

    `name` is the tracker, which writes below `folder`; `run` names the training (in TensorBoard, a
    folder of its own). Set `cpu` for a training on a CPU: every Accelerator of a process needs the
    same setting. Any failure, such as a missing package or a server that is down, is one warning,
    and the tracker is off from there.
    """
    if name is None or folder is None:
        yield None
        return
    trackers: list[Any] = []

    def attempt(act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a tracker must not stop a training
            trackers.clear()
            reason = next(iter(str(error).splitlines()), "")
            _log.warning(
                "tracker %s is off for this stage: %s: %s", name, type(error).__name__, reason
            )

    def log(step: int, values: Mapping[str, float]) -> None:
        for tracker in trackers:
            tracker.log(dict(values), step=step)

    attempt(lambda: trackers.extend(_opened(name, folder, run, cpu)))
    try:
        yield lambda step, values: attempt(lambda: log(step, values))
    finally:
        for tracker in tuple(trackers):
            attempt(tracker.finish)


def _opened(name: str, folder: Path, run: str, cpu: bool) -> list[Any]:
    from accelerate import Accelerator

    folder.mkdir(parents=True, exist_ok=True)
    accelerator = Accelerator(cpu=cpu, log_with=name, project_dir=str(folder))
    if not accelerator.log_with:
        raise RuntimeError(f"its package is not installed: pip install {name}")
    named = {"wandb": {"name": run}} if name == "wandb" else {}
    project = run if name in ("tensorboard", "dvclive") else _PROJECT
    accelerator.init_trackers(project, init_kwargs=named)
    return list(accelerator.trackers)
