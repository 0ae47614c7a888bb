"""The log of a worker: its stages, their progress, and its host."""

from __future__ import annotations

import logging
import platform
import time

from maskpolicy.graph.nodes import Stage
from maskpolicy.graph.outcomes import Outcome

_INTERVAL = 30.0  # seconds between two lines about one stage
_log = logging.getLogger(__name__)


class WorkerLog:
    """A `Progress` that logs the stages that this process computes or waits for."""

    def __init__(self) -> None:
        """Start without a stage."""
        self._name = ""
        self._is_waiting = False
        self._last = 0.0

    def start(self, stage: Stage) -> None:
        """Log that this process computes a stage."""
        self._name, self._is_waiting, self._last = stage.name, False, time.monotonic()
        _log.info("%s: started", stage.name)

    def wait(self, stage: Stage) -> None:
        """Log once that other processes compute all stages that are ready."""
        self._name = stage.name
        if not self._is_waiting:
            self._is_waiting, self._last = True, time.monotonic()
            _log.info("waiting for other workers, which compute %s", stage.name)

    def advance(self, done: int, total: int, note: str) -> None:
        """Log the progress of the current stage, unless the last line is recent."""
        if time.monotonic() - self._last < _INTERVAL:
            return
        self._last = time.monotonic()
        line = "waiting for %s: %s%s" if self._is_waiting else "%s: %s%s"
        share = f"{done} of {total}" if total else str(done)
        _log.info(line, self._name, share, f", {note}" if note else "")

    def elsewhere(self, stage: Stage, done: int, total: int, note: str) -> None:
        """Do nothing: the other process has a log of its own."""

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """Log the outcome of a stage that this process computed."""
        if not outcome.here:
            return
        if outcome.error is None:
            _log.info("%s: done, %.1f s", stage.name, outcome.seconds)
        else:
            _log.error("%s: failed: %s", stage.name, outcome.error)


def host_format() -> str:
    """Return a format of log lines with host and process, so that workers can share a console."""
    return f"{platform.node()} %(process)d: %(message)s"
