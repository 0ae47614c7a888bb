"""A real run that loses power or is killed loses nothing: trials that test_soak.py leaves out."""

import random
import shutil

import pytest
from faults import forks
from faults.kills import SHORT, Kills, Wrong

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kills(tmp_path_factory):
    forks.load()
    return Kills(tmp_path_factory.mktemp("kills") / "it", SHORT)


@pytest.mark.parametrize("flushes", [True, False])
def test_a_run_that_lost_power_ends_with_the_same_bytes(kills, flushes):
    assert kills.powerless(0, random.Random(1), flushes=flushes)["kills"] == 1


def test_two_hosts_without_shared_locks_that_are_killed_lose_nothing(kills):
    # a kill may come when a run has finished: then once more
    trials = (kills.shared(number, random.Random(number), hosts=True) for number in range(3, 6))
    assert any(trial["kills"] for trial in trials)


def test_signals_are_sent_in_turn_and_a_stop_is_no_kill(kills):
    kills.measure("--jobs", "1")
    sent = kills.signalled(2, random.Random(31), "turns", ("--jobs", "1"), {})
    assert sent["kills"] == sent["SIGKILL driver"] > 0 < sent["SIGSTOP driver"]


def test_other_bytes_are_noticed(kills):
    place = shutil.copytree(kills.folder / "reference", kills.folder / "other")
    (place / "out" / "leaderboard.md").write_text("other")
    with pytest.raises(Wrong, match=r"other bytes: \['out/leaderboard.md'"):
        kills._compare("other")
