"""A command that a signal ends keeps what it has reached, and says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

TEXT = """
model: mini
corpus: world
data: world
world: {people: 8, general_people: 4}
general: {steps: 100000, warmup: 1, batch_size: 2, precision: fp32}
policies: [none]
tasks: [zsre]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "jobs"),
    [(signal.SIGTERM, 2), (signal.SIGHUP, 1), (signal.SIGINT, 1)],
)
def test_a_signal_ends_a_run_with_a_checkpoint_and_a_line(tmp_path, number, jobs):
    (tmp_path / "it.yaml").write_text(TEXT)
    command = [sys.executable, "-m", "maskpolicy", "run", "it.yaml", "--jobs", f"{jobs}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("MASKPOLICY_STORE", None)
    running = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    store = tmp_path / ".maskpolicy" / "store"
    try:
        _wait(lambda: _trains(store), running)
        running.send_signal(number)
        _, said = running.communicate(timeout=120)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 128 + number
    assert said.decode().splitlines()[-1] == (
        "interrupted: the same command continues where it stopped"
    )
    (key,) = (path for path in (store / "checkpoints").iterdir())
    assert any(path.name.isdigit() for path in key.iterdir())
    assert not list((store / "locks").iterdir())


def _trains(store):
    """Return whether the events of a run tell of a step."""
    return any('"advanced"' in path.read_text() for path in store.glob("events/*.jsonl"))


def _wait(is_true, running):
    """Wait until a training has begun; far longer than it takes."""
    for _ in range(1200):
        assert running.poll() is None, running.stderr.read().decode()
        if is_true():
            return
        time.sleep(0.1)
    raise AssertionError("no training has begun")


def test_control_c_while_the_commands_are_imported_is_one_line(tmp_path):
    interrupt = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    (tmp_path / "typer.py").write_text(interrupt)  # imported in place of the library
    command = [sys.executable, "-c", "from maskpolicy.__main__ import main; main()"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path[1:]])}
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 130
    assert found.stderr == "interrupted: the same command continues where it stopped\n"
