"""Fixtures of several test modules."""

import logging
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import forked
import pytest
import s3
import typer
from hypothesis import settings
from small import FILE

from maskpolicy.app.commands import app
from maskpolicy.experiment.definition import Experiment
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline.graph import processes
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import isolation, registry

os.environ.setdefault("MASKPOLICY_JOBS", "1")  # more processes would not speed up small runs
settings.register_profile("shared", deadline=None)  # a busy machine fails no test
settings.load_profile("shared")


@pytest.fixture(scope="session", autouse=True)
def no_flushes() -> Iterator[None]:
    """Let a flush take no time: no folder of a test has to survive a loss of power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def plugin_files_of_a_module() -> Iterator[None]:
    """Forget the plugin files that a module's tests load: others may define the same names."""
    before = set(isolation._HOMES)
    yield
    for name in set(isolation._HOMES) - before:
        home = isolation._HOMES[name]
        registry.forget(home.code)
        isolation.forget(home)


@contextmanager
def same_log() -> Iterator[None]:
    """Restore the library's log: `-q` of a command would hide lines from later tests."""
    logger = logging.getLogger("maskpolicy")
    level, propagates, handlers = logger.level, logger.propagate, [*logger.handlers]
    yield
    logger.setLevel(level)
    logger.propagate, logger.handlers[:] = propagates, handlers


@pytest.fixture(scope="module", autouse=True)
def log_of_a_module() -> Iterator[None]:
    """Restore the log after the commands of fixtures of a module."""
    with same_log():
        yield


@pytest.fixture(autouse=True)
def log_of_a_test() -> Iterator[None]:
    """Restore the log after the commands of a test."""
    with same_log():
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real samples in the official formats, or skip."""
    folder = os.environ.get("MASKPOLICY_REAL_DATA")
    if not folder:
        pytest.skip("MASKPOLICY_REAL_DATA names no folder of real samples")
    return Path(folder)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A new store."""
    return Store(tmp_path / "store")


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Experiment]:
    """Return a function from overrides to the experiment of a file with texts beside it."""

    def load(*overrides: str) -> Experiment:
        (tmp_path / "mine.yaml").write_text(FILE)
        for name in ("a.txt", "wiki.txt"):
            (tmp_path / name).write_text("One text.\n")
        (tmp_path / "a.jsonl").write_text('{"text": "Ada wrote notes.", "marks": [[0, 3]]}\n')
        return load_experiment(tmp_path / "mine.yaml", overrides)

    return load


@cache
def command_line() -> Any:
    """Return the command line, which Typer would build anew for each command."""
    return typer.main.get_command(app)


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run one command in this process; returns exit code, stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        code = command_line()([str(word) for word in words], standalone_mode=False) or 0
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture
def done(call: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[str, str]]:
    """Run a command that must succeed; returns its stdout and stderr."""

    def done(*words: object) -> tuple[str, str]:
        code, out, err = call(*words)
        assert code == 0, err
        return out, err

    return done


@pytest.fixture
def refused(call: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Run a command that must fail by the user's fault; returns its one line."""

    def refused(*words: object) -> str:
        code, _, err = call(*words)
        assert code == 2
        assert len(err.splitlines()) == 1
        assert err.startswith("error: ")
        assert len(err) <= 540
        return err

    return refused


@pytest.fixture
def in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that compute stages import nothing anew."""
    monkeypatch.setattr(processes, "get_context", lambda method: forked.context())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3.Bucket]:
    """Return a server of S3's protocol whose address is in the environment."""
    with s3.serve() as bucket:
        for name, value in bucket.environment().items():
            monkeypatch.setenv(name, value)
        yield bucket


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Return a function that mounts a small tmpfs, or mounts it again with other options."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
        done = subprocess.run(command, capture_output=True)
        if done.returncode:
            pytest.skip("mounting a small file system needs root")
        mounted.append(disk)
        return disk

    yield mount
    if mounted:
        subprocess.run(["umount", disk], check=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have slow tests, so that all processes end at about one time.

    Tests that start a Ray cluster come last: they take gigabytes and many processes.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (bool(item.get_closest_marker("cluster")), item.path not in slow))


# where the variable is set, as .ci/run does, a test with the fixture must not be skipped
NEEDED = {
    "real_data": "MASKPOLICY_REAL_DATA",
    "browser": "MASKPOLICY_BROWSER",
    "published": "MASKPOLICY_PUBLISHED",
    "evals": "MASKPOLICY_EVALS",
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail, instead of skipping, a test whose samples, packages or browser .ci/run has."""
    report = yield
    wanted = [NEEDED[name] for name in getattr(item, "fixturenames", ()) if name in NEEDED]
    unmet = [variable for variable in wanted if os.environ.get(variable)]
    if report.skipped and unmet:
        report.outcome = "failed"
        report.longrepr = f"skipped, although {unmet[0]} is set: {report.longrepr}"
    return report
