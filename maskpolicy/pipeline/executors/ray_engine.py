"""The engine of a Ray cluster: each stage is a task, and Ray places it where there is room.

Ray's driver is a process of its own, because Ray ends the driver when the cluster is lost, waits
minutes for an address that does not answer, and prints to the standard output.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import Any

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, MaskpolicyError, cause, need
from maskpolicy.experiment.budgets import Resources
from maskpolicy.pipeline.executors.local import room_of
from maskpolicy.pipeline.graph.calls import Answer, Call, Lost, answer_elsewhere
from maskpolicy.pipeline.graph.processes import Report, SentLogs, seldom

_START = 300.0  # seconds for a Ray of this machine to start
_CONNECT = 40.0  # seconds for a cluster that accepts connections to accept this command
_ANSWER = 5.0  # seconds until an address must answer
_END = 20.0  # seconds for the session to end
_REPAIR = 10.0  # seconds until Ray knows that a node is lost, and gets its stages again
_MEMORY = 100 * 2**20  # bytes of a local Ray's object store, which stays almost empty
_LOCAL = "local"  # the address that starts a Ray of this machine


class RayEngine(AbstractContextManager["RayEngine"]):
    """Gives stages to a Ray cluster; use as a context manager."""

    capacity: int | None = None

    def __init__(self, address: str, resources: Resources) -> None:
        """Connect to the cluster at an address; without one, start a Ray of this machine.

        Raises ConfigError if the cluster cannot be used.
        """
        need("ray", "ray", "--executor ray: Ray is missing")
        self._address = address or _LOCAL
        self._resources = resources
        self._calls: dict[str, tuple[Future[Answer], Report]] = {}
        self._failure: MaskpolicyError | None = None
        self._lock = threading.Lock()
        spawn = get_context("spawn")
        self._pipe, other = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(self._address, other))
        self._process.start()
        other.close()  # so that the pipe closes when the process ends
        try:
            self.has_gpus = self._connected()
        except BaseException:
            self._process.kill()  # else the command would wait for it at its end
            raise
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(_END)
        self._process.kill()  # has no effect once it has ended
        self._process.join()

    def submit(self, call: Call, report: Report) -> Future[Answer]:
        """Compute a stage on the cluster; raises the error that ended the connection to it."""
        future: Future[Answer] = Future()
        room = room_of(self._resources, call.kind, self.has_gpus)
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._calls[call.key] = future, report
        with suppress(OSError):  # if the process has ended, the reader fails all futures
            self._pipe.send((call, room.gpus, room.cpus))
        return future

    def _connected(self) -> bool:
        """Wait until the process has connected; return whether the cluster has GPUs."""
        self._receive()  # the process has imported Ray, and something listens at the address
        if not self._pipe.poll(_START if self._address == _LOCAL else _CONNECT):
            raise ConfigError(
                f"--executor ray={self._address}: accepts connections, but is not a Ray cluster: "
                "name the address that `ray start --head` printed"
            )
        return bool(self._receive()[1])

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
        return what, *about

    def _read(self) -> None:
        """Pass reports, log lines and answers on, until the process has ended."""
        try:
            while True:
                what, *about = self._receive()
                if what == "log":
                    name, level, message = about
                    logging.getLogger(name).log(level, "%s", message)
                    continue
                key, *rest = about
                if what == "advance":
                    if key in self._calls:  # a report may arrive after the answer
                        self._calls[key][1](*rest)
                    continue
                future, _ = self._calls.pop(key)
                answer, error = rest
                if error is None:
                    future.set_result(answer)
                else:
                    future.set_exception(error)
        except MaskpolicyError as error:
            with self._lock:
                self._failure = error
                lost, self._calls = self._calls, {}
            for future, _ in lost.values():
                future.set_exception(error)


# In the process that is Ray's driver


def _serve(address: str, pipe: Any) -> None:
    """Connect to a cluster and submit the calls from the pipe: the target of a new process.

    Sends ("asking",) before it connects, ("up", whether there are GPUs) afterwards, then reports of
    tasks, ("answer", key, answer, error) for each, and ("failed", error) if the cluster fails.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command's process ends this one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    hardware.end_with_parent()
    null = os.open(os.devnull, os.O_WRONLY)  # Ray prints, and logs to files too
    os.dup2(null, sys.stdout.fileno())
    os.dup2(null, sys.stderr.fileno())
    with TemporaryDirectory() as empty:
        os.chdir(empty)  # Ray's workers import from the working directory of their driver
        try:
            _connect(address, pipe)
            try:
                _Session(pipe).serve()
            finally:
                import_module("ray").shutdown()
        except EOFError:  # the command's process has ended
            pass
        except MaskpolicyError as error:
            pipe.send(("failed", error))
        except Exception as error:  # noqa: BLE001 - Ray raises errors of many kinds
            reason = f"Ray at {address} failed: {cause(error)}"
            pipe.send(("failed", ConfigError(f"{reason}: the same command continues")))
        os.chdir("/")


def _connect(address: str, pipe: Any) -> None:
    """Start a local Ray, or join a cluster; raises ConfigError if it does not answer."""
    import ray

    own: dict[str, Any] = (
        {"object_store_memory": _MEMORY, "include_dashboard": False} if address == _LOCAL else {}
    )
    if address not in (_LOCAL, "auto"):
        _check_listening(address)
    pipe.send(("asking",))
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            **own,
        )
    except Exception as error:
        if address == "auto" and isinstance(error, ConnectionError):
            raise ConfigError(
                "--executor ray=auto: this machine is in no Ray cluster: name an address, "
                "ray=HOST:PORT, or write ray for a Ray on this machine"
            ) from None
        raise ConfigError(
            f"--executor ray={address}: {cause(error)}: if the cluster asks for a token, set "
            "RAY_AUTH_MODE=token here and give this machine the token (`ray get-auth-token`)"
        ) from error


def _check_listening(address: str) -> None:
    """Raise ConfigError if nothing listens at an address; Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigError(
            f"--executor ray={address}: is not an address: write ray (a Ray on this machine), "
            "ray=auto (the cluster that this machine belongs to), ray=HOST:PORT or "
            "ray=ray://HOST:PORT"
        )
    try:
        socket.create_connection((host, int(port)), _ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--executor ray={address}: nobody answers ({cause(error)}): start the cluster with "
            "`ray start --head`, or name the address that it printed"
        ) from None


class _Session:
    """The tasks of a run, and the queue of their reports."""

    def __init__(self, pipe: Any) -> None:
        self.ray: Any = import_module("ray")
        self.pipe = pipe
        self.sending = threading.Lock()
        # with soft=True, Ray would place it on another node, which may be lost
        here = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(
            self.ray.get_runtime_context().get_node_id(), soft=False
        )
        placed = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
        self.reports = import_module("ray.util.queue").Queue(actor_options=placed)
        self.has_gpus = bool(self.ray.cluster_resources().get("GPU"))
        self.wide: set[tuple[int, int]] = set()  # needs that a warning has named

    def serve(self) -> None:
        """Submit calls from the pipe until it brings None."""
        self.send("up", self.has_gpus)
        threading.Thread(target=self._pass_reports, daemon=True).start()
        while (asked := self.pipe.recv()) is not None:
            self._submit(*asked)

    def send(self, *message: Any) -> None:
        """Send a message to the command's process; several threads may call this."""
        with suppress(OSError), self.sending:
            self.pipe.send(message)

    def _submit(self, call: Call, gpus: int, cpus: int) -> None:
        self._warn_if_too_wide(call, gpus, cpus)
        asked: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0}
        if self.has_gpus and not gpus:  # Ray would let it use those of others
            asked["runtime_env"] = {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}}
        task = self.ray.remote(**asked)(_task)
        future = task.remote(replace(call, gpus=gpus), self.reports).future()
        future.add_done_callback(partial(self._answer, call))

    def _answer(self, call: Call, future: Future[Answer]) -> None:
        error: Any = future.exception()
        errors = self.ray.exceptions
        if error is None:
            self.send("answer", call.key, future.result(), None)
        elif isinstance(error, errors.RayTaskError):
            self.send("answer", call.key, None, _cause_of(error))
        else:  # a task or its node was killed; Ray needs a moment to know which nodes are left
            gone = isinstance(error, errors.NodeDiedError | errors.RayActorError)
            how = "its node was lost" if gone else f"Ray lost its process ({type(error).__name__})"
            lost = ("answer", call.key, None, Lost(how))
            threading.Timer(_REPAIR, self.send, lost).start()

    def _pass_reports(self) -> None:
        while True:
            try:
                self.send(*self.reports.get())
            except Exception:  # noqa: BLE001 - the actor starts again, or the session ends
                time.sleep(1.0)

    def _warn_if_too_wide(self, call: Call, gpus: int, cpus: int) -> None:
        """Warn once if no node has room for a stage; Ray waits for one silently."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        fits = any(n.get("CPU", 0) >= cpus and n.get("GPU", 0) >= gpus for n in nodes)
        if not fits and (gpus, cpus) not in self.wide:
            self.wide.add((gpus, cpus))
            what = f"no node has {gpus} GPUs and {cpus} cores for {call.kind}: waiting for one"
            self.send("log", __name__, logging.WARNING, what)


def _cause_of(error: Any) -> Exception:
    """Return what a task raised: a MaskpolicyError, Lost, or a ConfigError that names the rest."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, MaskpolicyError | Lost):
        return type(inner)(str(inner))
    return ConfigError(f"Ray's task failed: {cause(inner or error)}")


# On the cluster


def _task(call: Call, reports: Any) -> Answer:
    """Compute a stage on a node."""
    put, host = reports.actor.put_nowait.remote, socket.gethostname()
    SentLogs(lambda name, level, said: put(("log", name, level, f"{host}: {said}")))
    report = seldom(lambda *about: put(("advance", call.key, *about)), 1.0)
    report(0, 0, "")
    return answer_elsewhere(call, report)
