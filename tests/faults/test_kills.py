"""A real run that is killed at random loses nothing: a few trials of `make soak`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from faults import forks
from faults.kills import SHORT, Kills, Wrong

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kills(tmp_path_factory):
    forks.load()
    return Kills(tmp_path_factory.mktemp("kills") / "it", SHORT)


# seeds whose first kill comes in the first third of a run, whose number of changes depends on the
# machine: a slow one writes more checkpoints
@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 14])
def test_a_killed_run_ends_with_the_same_bytes(kills, number):
    assert kills.killed(number, random.Random(number))["kills"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("flushes", [True, False])
def test_a_run_that_lost_power_ends_with_the_same_bytes(kills, flushes):
    assert kills.powerless(0, random.Random(1), flushes=flushes)["kills"] == 1


@pytest.mark.slow
def test_workers_over_two_paths_that_are_killed_lose_nothing(kills):
    # a kill may come when the worker has finished: then once more
    assert any(kills.shared(number, random.Random(number))["kills"] for number in range(5, 12))


@pytest.mark.slow
@pytest.mark.cluster
def test_a_run_on_ray_whose_node_and_command_are_killed_ends_with_the_same_bytes(tmp_path):
    pytest.importorskip("ray", reason="the extra maskpolicy[ray] is not installed")
    code = """
import random
import sys
from pathlib import Path
from faults import forks
from faults.kills import SHORT, Kills

forks.load()
print(Kills(Path(sys.argv[1]), SHORT).on_ray(0, random.Random(28))["kills"])
"""
    # trials fork, which a process that other tests have connected to a cluster must not
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "it"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr


@pytest.mark.slow
def test_other_bytes_are_noticed(kills):
    kills.expected["out/leaderboard.md"] += b" "
    with pytest.raises(Wrong, match=r"other bytes: \['out/leaderboard.md'"):
        kills.killed(9, random.Random(9))
