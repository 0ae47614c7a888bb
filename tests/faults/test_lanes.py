"""The trials of a campaign run in several processes, all kinds equally far."""

import os
import signal
import time
from collections import Counter

import clusters
import pytest
from faults import forks
from faults.campaign import Kind
from faults.kills import Wrong
from faults.lanes import Lanes


def kind(name, trial, **more):
    return Kind(name, "kills", trial, **more)


def lanes(*kinds, minutes=5.0):
    made = Lanes([(each, 6) for each in kinds], 2, seed=0)
    before = forks.children([os.getpid()])
    made.run(time.monotonic() + 60 * minutes)
    assert forks.children([os.getpid()]) == before  # all have ended
    return made


def test_each_kind_is_tried_as_often_as_wanted_with_numbers_and_draws_of_its_own(tmp_path):
    def note(name):
        def trial(number, rng):
            (tmp_path / f"{name} {number} {rng.random()}").touch()
            return Counter({"trials": 1, "kills": 2, f"of {number}": 1})

        return trial

    for _ in range(2):  # the same numbers and draws again
        more = kind("c", note("c"), each=["of 7"])  # not before its eighth trial
        found = lanes(kind("a", note("a")), kind("b", note("b"), counts="trials"), more)
    assert found.missing() == [] and found.wrong == []
    assert found.found[0]["kills"] in (6, 8)  # one more may be under way when there are enough
    assert found.found[1]["trials"] == 6
    assert found.found[2]["trials"] in (8, 9)
    names = sorted(path.name.split()[:2] for path in tmp_path.iterdir())
    draws = {path.name.split()[2] for path in tmp_path.iterdir()}
    assert [word for name, word in names if name == "b"] == [*map(str, range(6))]
    assert len(draws) == len(names)


def raise_wrong():
    raise Wrong("other bytes")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (raise_wrong, "it 1: other bytes"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "it 1: its process ended with -9"),
        (signal.pause, "it 1: did not end within 2 s"),
    ],
)
def test_a_wrong_trial_is_named_and_the_others_are_made(fault, says, monkeypatch):
    if fault is signal.pause:
        monkeypatch.setattr("faults.lanes._LONGEST", 2.0)

    def trial(number, rng):
        if number == 1:
            fault()
        return Counter(trials=1, kills=1)

    found = lanes(kind("it", trial))
    assert found.found[0] == Counter(trials=6, kills=6, wrong=1)
    assert found.missing() == []
    (line,) = found.wrong
    assert says in line


def test_running_trials_are_stopped_at_the_end_and_do_not_count(tmp_path):
    def waits():
        (tmp_path / str(os.getpid())).touch()
        signal.pause()

    def trial(number, rng):
        forks.wait(forks.start(waits, tmp_path / "said"))
        return Counter(trials=1, kills=1)

    found = lanes(kind("it", trial, each=["stops"]), minutes=0.02)
    assert (found.found, found.wrong) == ([Counter()], [])
    assert found.missing() == ["it: 0 of 6, no stops"]
    clusters.all_gone([int(path.name) for path in tmp_path.glob("[0-9]*")])
