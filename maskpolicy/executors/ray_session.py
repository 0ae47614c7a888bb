"""A process that is Ray's driver, and keeps workers on the cluster for the stages that are left.

It is not the command's process, because Ray ends its driver when the cluster is lost, waits minutes
for an address that does not answer, and writes to the standard output.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

from maskpolicy import hardware
from maskpolicy.errors import ConfigError, MaskpolicyError, cause
from maskpolicy.executors.backlog import Left
from maskpolicy.executors.ray_pool import LOCAL, Pool, Session

_TICK = 0.2  # seconds between two checks of the workers
_CONNECT = 5.0  # seconds until an address must answer
_MEMORY = 100 * 2**20  # bytes of a local Ray's object store, which stays almost empty


def serve(session: Session, pipe: Any) -> None:
    """Connect to a cluster and keep workers there: the target of a new process.

    It sends ("asking",) before it connects and ("up", slots) afterwards, then ("log", logger,
    level, message) for messages of workers, and ("failed", error) before it ends with an error. It
    receives the counts of stages that are left for each slot, and None when it is to end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command's process ends this one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    hardware.end_with_parent()
    _discard_output()
    with TemporaryDirectory() as empty:
        os.chdir(empty)  # Ray's workers import from the working directory of their driver
        try:
            _connect(session.address, pipe)
            try:
                _serve(session, pipe)
            finally:
                import_module("ray").shutdown()
        except MaskpolicyError as error:
            pipe.send(("failed", error))
        except Exception as error:  # noqa: BLE001 - Ray raises errors of many kinds
            reason = f"Ray at {session.address} failed: {cause(error)}"
            pipe.send(("failed", ConfigError(f"{reason}: the same command continues")))
        os.chdir("/")


def _discard_output() -> None:
    """Discard what Ray prints; it also logs to files."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.dup2(null, sys.stderr.fileno())


def _connect(address: str, pipe: Any) -> None:
    """Start a local Ray, or join a cluster; raises ConfigError if it does not answer."""
    import ray

    own: dict[str, Any] = (
        {"object_store_memory": _MEMORY, "include_dashboard": False} if address == LOCAL else {}
    )
    if address not in (LOCAL, "auto"):
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
                "--executor ray=auto: this machine belongs to no Ray cluster: name its address, "
                "ray=HOST:PORT, or write ray for a Ray on this machine"
            ) from None
        raise ConfigError(
            f"--executor ray={address}: {cause(error)}: if the cluster asks for a token, set "
            "RAY_AUTH_MODE=token here and give this machine the token (`ray get-auth-token`)"
        ) from error


def _check_listening(address: str) -> None:
    """Raise ConfigError if nothing listens at an address: Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigError(
            f"--executor ray={address}: is not an address: write ray (a Ray on this machine), "
            "ray=auto (the cluster that this machine belongs to), ray=HOST:PORT or "
            "ray=ray://HOST:PORT"
        )
    try:
        socket.create_connection((host, int(port)), _CONNECT).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--executor ray={address}: nobody answers ({cause(error)}): start the cluster with "
            "`ray start --head`, or name the address that it printed"
        ) from None


def _serve(session: Session, pipe: Any) -> None:
    pool = Pool(session)
    pipe.send(("up", pool.slots))
    left: Sequence[Left] = ()
    try:
        while True:
            if pipe.poll(_TICK):
                left = pipe.recv()  # EOFError: the command's process has ended
                if left is None:
                    return
            if left:
                pool.update(left)
            for message in pool.messages():
                pipe.send(("log", *message))
    except EOFError:
        return
    finally:
        pool.end()
