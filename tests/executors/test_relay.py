"""Workers of this machine tell their progress to the process that started them."""

from __future__ import annotations

from multiprocessing import Pipe

from tiny import node

from maskpolicy.executors.relay import Relayed, Sender, SentProgress
from maskpolicy.graph.execution import execute
from maskpolicy.graph.outcomes import Outcome, Silent
from maskpolicy.store.artifacts import Store


class Heard(Silent):
    """What is shown."""

    def __init__(self):
        self.lines = []

    def advance(self, done, total, note):
        self.lines.append(("own", done))

    def elsewhere(self, stage, done, total, note):
        self.lines.append((stage.label, done, total, note))

    def finish(self, stage, outcome):
        self.lines.append((stage.label, "failed" if outcome.error else "done"))


def relayed(*stages):
    """Return what relays the reports of workers, and what it shows."""
    heard, reports = Heard(), Relayed(stages)
    reports.watch(heard)
    return reports, heard


def test_what_a_worker_computes_is_shown(tmp_path):
    receiver, pipe = Pipe(duplex=False)
    stage = node("a", steps=3)
    execute([stage], Store(tmp_path), SentProgress(Sender(pipe)))
    reports, heard = relayed(stage)
    while receiver.poll():
        reports.receive(*receiver.recv())
    assert heard.lines[0] == ("a", 0, 0, "")
    assert heard.lines[-2][:3] == ("a", 3, 3)
    assert heard.lines[-1] == ("a", "done")


def test_what_a_worker_finds_in_the_store_is_not_sent(tmp_path):
    execute([node("a")], Store(tmp_path))
    receiver, pipe = Pipe(duplex=False)
    execute([node("a")], Store(tmp_path), SentProgress(Sender(pipe)))
    assert not receiver.poll()


def test_a_worker_goes_on_if_nobody_listens(tmp_path):
    receiver, pipe = Pipe(duplex=False)
    receiver.close()
    (outcome,) = execute([node("a")], Store(tmp_path), SentProgress(Sender(pipe))).values()
    assert outcome.error is None


def test_notes_in_the_store_do_not_replace_newer_reports_of_a_worker():
    a, b = node("a", 1), node("b", 2)
    reports, heard = relayed(a, b)
    reports.receive("advance", a.key, 5, 9, "")
    reports.wait(a)
    reports.advance(2, 9, "")  # the note of the stage that is waited for
    reports.elsewhere(a, 2, 9, "")
    reports.elsewhere(b, 1, 9, "")  # of another command
    assert heard.lines == [("a", 5, 9, ""), ("b", 1, 9, "")]


def test_a_stage_that_is_taken_over_from_a_lost_worker_is_shown():
    a = node("a", 1)
    reports, heard = relayed(a)
    reports.receive("advance", a.key, 5, 9, "")
    reports.start(a)
    reports.receive("advance", a.key, 5, 9, "")  # late
    reports.advance(6, 9, "")
    assert heard.lines == [("a", 5, 9, ""), ("own", 6)]


def test_the_failure_of_a_worker_is_shown():
    a = node("a", 1)
    reports, heard = relayed(a)
    SentProgress(Direct(reports)).finish(a, Outcome(a, error="bad luck", here=True))
    assert heard.lines == [("a", "failed")]


def test_a_stage_of_another_plan_is_ignored():
    reports, heard = relayed()
    reports.receive("advance", "0" * 64, 1, 2, "")
    assert heard.lines == []


class Direct(Sender):
    """A pipe without a buffer."""

    def __init__(self, reports):
        self._reports = reports

    def send(self, *message):
        self._reports.receive(*message)
