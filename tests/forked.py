"""Processes forked from one that has imported PyTorch and Transformers, which takes seconds.

Interpreters that start anew, as those of clusters.py, have other hashes of texts: a test that
compares bytes needs one of them.
"""

import atexit
import multiprocessing
import os
import subprocess
import tempfile
from collections.abc import Mapping
from functools import partial
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from typing import Any

import pytest

from maskpolicy.models.model_kinds import IMPORTS
from maskpolicy.pipeline.graph import processes

VARIABLES = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}  # read when modules are imported


def context() -> ForkServerContext:
    """Return the context of such processes; their server starts once."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([*IMPORTS, "maskpolicy.app.commands"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        forkserver.ensure_running()
    return forks


def fork_jobs() -> None:
    """Let this forked process fork the processes that compute stages, too."""
    # as its documentation says, a server serves the processes that it has started, too
    forkserver._forkserver.ensure_running = lambda: None
    processes.get_context = lambda method: multiprocessing.get_context("forkserver")
    processes._begin = partial(_begin, dict(os.environ))


def _begin(environment: Mapping[str, str], *about: Any) -> None:
    """Begin a process as one with this environment, which forks its own processes."""
    os.environ.update(environment)
    begin = processes._begin
    fork_jobs()
    begin(*about)


class Script:
    """Python code in a forked process, with the methods of a Popen that tests use."""

    def __init__(self, code: str, **variables: str) -> None:
        """Start it; its output and its errors go to one file."""
        self._output = tempfile.NamedTemporaryFile("r", encoding="utf-8")  # noqa: SIM115
        about = (code, {**os.environ, **VARIABLES, **variables}, self._output.name)
        self._process = context().Process(target=_run, args=about)
        self._process.start()
        atexit.register(self._process.kill)  # Python would wait for its end

    @property
    def returncode(self) -> int | None:
        """The exit code, or -N after signal N, when it has ended."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the same."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for its end, and return what it printed."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return self._output.read(), None


def command(*words: object, before: str = "", **variables: str) -> Script:
    """Start a command of maskpolicy, after the code `before`."""
    argv = ["maskpolicy", *map(str, words)]
    code = (
        f"{before}\nimport sys\nsys.argv = {argv!r}\nfrom maskpolicy.__main__ import main\nmain()"
    )
    return Script(code, **variables)


command_with_forks = partial(command, before="import forked; forked.fork_jobs()")


def _run(code: str, environment: Mapping[str, str], output: str) -> None:
    """Execute code in this process, as `python -c` does."""
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    exec(code, {"__name__": "__main__"})
