"""The engine that computes stages on a Ray cluster; this process waits for their artifacts."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from maskpolicy import hardware
from maskpolicy.config.experiment import Experiment
from maskpolicy.errors import ConfigError
from maskpolicy.executors.backlog import Backlog, Left, Slot, pinned_keys
from maskpolicy.executors.capacity import is_small
from maskpolicy.executors.ray_pool import LOCAL, Session
from maskpolicy.executors.ray_session import serve
from maskpolicy.executors.request import Request, absolute
from maskpolicy.executors.store_marker import hold_marker
from maskpolicy.graph.nodes import Stage
from maskpolicy.graph.outcomes import Progress
from maskpolicy.store.artifacts import Store

_START = 300.0  # seconds for a Ray of this machine to start
_CONNECT = 40.0  # seconds for a cluster that accepts connections to accept this command
_END = 20.0  # seconds for the session to end its workers
_log = logging.getLogger(__name__)


@contextmanager
def on_ray(
    address: str, request: Request, experiment: Experiment, order: Sequence[Stage], store: Store
) -> Iterator[RayWorkers]:
    """Keep workers on a Ray cluster until the block ends or this process dies.

    `address` is that of a cluster (see `ray_pool.Session`); if it is empty, a Ray of this machine
    is started. Raises ConfigError if the cluster cannot be used, before any computation.
    """
    if find_spec("ray") is None:
        raise ConfigError("--executor ray: Ray is missing: pip install 'maskpolicy[ray]'")
    pinned = pinned_keys(experiment)
    asked = absolute(request)
    threads = asked.threads or (1 if is_small(experiment) else None)
    with hold_marker(store) as marker:
        session = Session(
            address=address or LOCAL,
            request=replace(asked, keys=(*asked.keys, *pinned), threads=threads),
            resources=experiment.resources,
            kinds=tuple(sorted({stage.kind for stage in order})),
            folder=str(Path.cwd()),
            marker=marker,
        )
        pool = RayWorkers(session, order)
        try:
            pool.join()
            if any(slot.gpus for slot in pool.slots) and pinned and not hardware.is_cuda():
                _log.warning(
                    "the cluster has GPUs, but this machine, whose hardware decides the settings "
                    "on auto, has none: set %s for GPUs, e.g. precision=bf16, attention=sdpa",
                    ", ".join(word.partition("=")[0] for word in pinned),
                )
            yield pool
        finally:
            pool.end()


class RayWorkers:
    """The workers of a run, which another process starts and ends (`ray_session`)."""

    def __init__(self, session: Session, order: Sequence[Stage]) -> None:
        """Start the other process."""
        spawn = get_context("spawn")
        self.slots: Sequence[Slot] = ()
        self._order = order
        self._address = session.address
        self._backlog: Backlog | None = None
        self._sent: tuple[Left, ...] = ()
        self._pipe, other = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(session, other))
        self._process.start()
        other.close()  # so that the pipe closes when the process ends

    def join(self) -> None:
        """Wait until the process has connected; raises ConfigError if it cannot."""
        self._receive()  # it has imported Ray, and something listens at the address
        if not self._pipe.poll(_START if self._address == LOCAL else _CONNECT):
            self._process.kill()
            raise ConfigError(
                f"--executor ray={self._address}: accepts connections, but is no Ray cluster: "
                "name the address that `ray start --head` printed"
            )
        self.slots = self._receive()[0]

    def watch(self, progress: Progress) -> Progress:
        """Return a `Progress` that also counts the stages that are left, for the pool."""
        self._backlog = Backlog(self._order, progress)
        return self._backlog

    def pause(self, seconds: float) -> None:
        """Pause, and log the messages of workers; raises the error that stopped them."""
        if self._backlog is not None and (left := self._backlog.left(self.slots)) != self._sent:
            self._sent = left
            self._send(left)
        until = time.monotonic() + seconds
        while (wait := until - time.monotonic()) > 0 and self._pipe.poll(wait):
            name, level, message = self._receive()
            logging.getLogger(name).log(level, "%s", message)

    def end(self) -> None:
        """End all workers."""
        self._send(None)
        self._process.join(_END)
        self._process.kill()  # has no effect once it has ended
        self._process.join()
        self._pipe.close()

    def _send(self, left: Any) -> None:
        with suppress(OSError):  # if the process has ended, `_receive` raises its error
            self._pipe.send(left)

    def _receive(self) -> Any:
        try:
            what, *about = self._pipe.recv()
        except (EOFError, OSError):
            raise ConfigError(
                f"--executor ray={self._address}: the cluster was lost: start it again, and give "
                "the same command"
            ) from None
        if what == "failed":
            raise about[0]
        return about
