"""A worker logs what it computes, and not too often."""

from __future__ import annotations

import logging
import os

import pytest
from tiny import node

from maskpolicy.executors import console
from maskpolicy.executors.console import WorkerLog, host_format
from maskpolicy.graph.outcomes import Outcome


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that a test moves."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(console.time, "monotonic", lambda: Clock.now)
    return Clock


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="maskpolicy.executors.console")
    logging.getLogger("maskpolicy").propagate = True
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_stage_is_told_at_its_start_end_and_every_thirty_seconds(clock, lines):
    log, stage = WorkerLog(), node("a")
    log.start(stage)
    for clock.now in range(100):
        log.advance(clock.now, 200, "loss 2.0")
    log.finish(stage, Outcome(stage, seconds=12.34, here=True))
    assert lines() == [
        "tiny-walk a: started",
        *(f"tiny-walk a: {done} of 200, loss 2.0" for done in (30, 60, 90)),
        "tiny-walk a: done, 12.3 s",
    ]


def test_a_failure_is_told_and_what_others_did_is_not(clock, lines):
    log, stage = WorkerLog(), node("a")
    log.finish(stage, Outcome(stage, error="bad luck", here=True))
    log.finish(stage, Outcome(stage, error="bad luck"))
    log.finish(stage, Outcome(stage, hit=True))
    assert lines() == ["tiny-walk a: failed: bad luck"]


def test_waiting_is_told_once_until_the_next_stage_of_its_own(clock, lines):
    log = WorkerLog()
    log.wait(node("a"))
    log.wait(node("b"))
    clock.now = 40.0
    log.advance(5, 0, "")
    log.start(node("c"))
    log.wait(node("d"))
    assert lines() == [
        "waiting for other workers, which compute tiny-walk a",
        "waiting for tiny-walk b: 5",
        "tiny-walk c: started",
        "waiting for other workers, which compute tiny-walk d",
    ]


def test_each_line_can_have_the_host_and_the_process():
    record = logging.LogRecord("it", logging.INFO, "", 0, "%d of %d", (1, 2), None)
    line = logging.Formatter(host_format()).format(record)
    assert line == f"{os.uname().nodename} {os.getpid()}: 1 of 2"
    assert record.getMessage() == "1 of 2"  # other handlers get the record as it was
