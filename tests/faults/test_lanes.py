"""How the trials of a campaign are shared among processes."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import clusters
from faults import forks
from faults.campaign import Kind
from faults.kills import Wrong
from faults.lanes import Lanes


def kind(name, trial, **more):
    return Kind(name, "kills", trial, **more)


def lanes(*kinds, wanted=6, minutes=5.0):
    made = Lanes([(each, wanted) for each in kinds], 2, seed=0)
    before = forks.children([os.getpid()])
    made.run(time.monotonic() + 60 * minutes)
    assert forks.children([os.getpid()]) == before  # all have ended
    return made


def test_each_kind_is_tried_as_often_as_wanted_with_numbers_and_draws_of_its_own(tmp_path):
    def note(name):
        def trial(number, rng):
            (tmp_path / f"{name} {number} {rng.random()}").touch()
            return Counter(trials=1, kills=2)

        return trial

    for _ in range(2):  # the same numbers and draws again
        found = lanes(kind("a", note("a")), kind("b", note("b"), counts="trials"))
    assert found.missing() == [] and found.wrong == []
    assert found.found[0]["kills"] in (6, 8)  # one more may be under way when there are enough
    assert found.found[1]["trials"] == 6
    names = sorted(path.name.split()[:2] for path in tmp_path.iterdir())
    draws = {path.name.split()[2] for path in tmp_path.iterdir()}
    assert names[-6:] == [["b", str(number)] for number in range(6)]
    assert len(draws) == len(names)


def test_a_wrong_trial_is_told_and_the_others_are_made():
    def trial(number, rng):
        if number == 1:
            raise Wrong("other bytes")
        if number == 2:
            raise ValueError("what?")
        return Counter(trials=1, kills=1)

    found = lanes(kind("it", trial))
    assert found.found[0] == Counter(trials=6, kills=6, wrong=2)
    assert sorted(found.wrong)[0].splitlines()[0] in ("it 1: other bytes", "it 2:")
    assert any("ValueError: what?" in line for line in found.wrong)


def test_a_trial_that_ends_its_process_is_wrong_and_named():
    def trial(number, rng):
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return Counter(trials=1, kills=1)

    found = lanes(kind("it", trial))
    assert found.found[0] == Counter(trials=6, kills=6, wrong=1)
    assert found.wrong == ["it 1: its process ended with -9"]


def test_a_trial_that_takes_too_long_is_wrong(monkeypatch):
    monkeypatch.setattr("faults.lanes._LONGEST", 5.0)

    def trial(number, rng):
        if number == 1:
            signal.pause()
        return Counter(trials=1, kills=1)

    found = lanes(kind("it", trial))
    assert found.wrong == ["it 1: did not end within 5 s"]
    assert found.missing() == []


def test_what_is_under_way_at_the_end_is_stopped_and_counts_neither_way(tmp_path):
    def waits():
        (tmp_path / str(os.getpid())).touch()
        signal.pause()

    def trial(number, rng):
        forks.wait(forks.start(waits, tmp_path / "said"))
        return Counter(trials=1, kills=1)

    found = lanes(kind("it", trial), minutes=0.05)
    assert (found.found, found.wrong) == ([Counter()], [])
    assert found.missing() == ["it: 0 of 6"]
    for path in tmp_path.glob("[0-9]*"):
        stat = Path("/proc", path.name, "stat")
        clusters.until(lambda stat=stat: not stat.exists() or ") Z " in stat.read_text())
