"""Progress bars on a terminal, lines elsewhere, times left, and the times of a run's parts."""

import io
import os
import re
import subprocess
import sys
import threading

import pytest
from rich.console import Console
from tiny import Failure, TinyLocal, node, training

from maskpolicy.app import progress
from maskpolicy.app.progress import Detail, Display, Forecast, RunProgress
from maskpolicy.core.types import Json
from maskpolicy.pipeline.graph.costs import Costs
from maskpolicy.pipeline.graph.events import Event
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, topological
from maskpolicy.pipeline.store.artifacts import Store

PATIENCE = 60  # seconds until a line that never comes fails the test
QUARTER = (0.25, "1 of 4 stages")


class Text(io.StringIO):
    """A file that tells when a text has been written to it."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self._wanted, self.written = wanted, threading.Event()

    def write(self, text: str) -> int:
        done = super().write(text)
        if self._wanted in self.getvalue():
            self.written.set()
        return done


def test_a_log_file_shows_life_although_nothing_is_reported(monkeypatch):
    monkeypatch.setattr(progress, "_INTERVAL", 0.01)
    text = Text("… general: 3 of 12 (25%), loss 2.0\n… run: 1 of 4 stages\n")
    with Display(Console(file=text, width=80), "run", QUARTER, "normal") as shown:
        shown.begin("k", "general")
        shown.report("k", 3, 12, "loss 2.0")
        assert text.written.wait(PATIENCE)
    assert text.getvalue().startswith("… general: started\n")


@pytest.mark.parametrize(("detail", "has_bars"), [("normal", True), ("quiet", False)])
def test_a_terminal_gets_bars(detail: Detail, has_bars):
    text = Text("12 (25%)")
    console = Console(file=text, width=100, force_terminal=True, force_interactive=True)
    with Display(console, "run", QUARTER, detail) as shown:
        shown.begin("k", "general")
        shown.report("k", 3, 12, "loss 2.0")
        if has_bars:
            assert text.written.wait(PATIENCE)
        shown.say("✓ other", "normal")
        shown.end("k")
        shown.end("k")
        shown.report("k", 4, 12, "too late")
    for part in ("3 of 12 (25%), loss 2.0", "1 of 4 stages", "✓ other"):
        assert (part in text.getvalue()) is has_bars
    assert "too late" not in text.getvalue()


def test_the_time_left_of_a_run_is_that_of_its_open_stages():
    """Of a chain of two stages and a stage beside it."""
    a, c = node("a", 1), node("c", 3)
    order, costs = [a, node("b", 2, {"a": a}), c], Costs()
    for seconds in (10.0, 30.0):
        costs.learn("tiny-walk", a.keyed, seconds)
    ahead = Forecast(order, {one.key for one in order}, costs, 1)
    assert ahead({}) == (0.0, "0 of 3 stages, about 60 s left")
    ahead.finish(a, 20.0, computed=True)
    assert ahead({}) == (pytest.approx(1 / 3), "1 of 3 stages, about 40 s left")


@pytest.mark.parametrize(
    ("computed", "seconds", "left"), [(True, (10.0, 0.1), (20, 20)), (False, (3.0, 40.0), (30, 50))]
)
def test_a_byproduct_takes_no_time_unless_the_training_that_leaves_it_fails(
    computed, seconds, left
):
    users, costs = training(), Costs()
    early, long = (each.inputs["x"] for each in users)
    costs.learn("tiny-walk", long.keyed, 10.0)
    order = topological(users)
    ahead = Forecast(order, {one.key for one in order}, costs, 1)
    assert ahead.left({}) == (30.0, set())
    ahead.finish(long, seconds[0], computed)
    assert ahead.left({}) == (left[0], set())
    ahead.finish(early, seconds[1], computed=True)
    assert ahead.left({}) == (left[1], set())


def lines_of(store: Store, *stages: Stage, **more: Json) -> list[str]:
    """Return all that a run writes to a file, with the seconds left out."""
    text = io.StringIO()
    with RunProgress(Console(file=text, width=120), stages, store, **more) as shown:
        execute(stages, store, shown)
    return [re.sub(r"  [0-9.]+ s$", "", line) for line in text.getvalue().split("\n")[:-1]]


def test_a_file_gets_a_line_at_the_start_and_the_end_of_a_stage_and_no_empty_one(tmp_path):
    store, a = Store(tmp_path), node("a")
    assert lines_of(store, a) == ["… tiny-walk a: started", "✓ tiny-walk a"]
    assert lines_of(store, a) == []
    assert lines_of(store, a, detail="verbose") == ["= tiny-walk a: is in the store"]


def test_a_quiet_run_prints_failures_and_each_cause_once(tmp_path):
    a, why = node("a"), Failure("no such luck")
    bad, other = (
        Stage("tiny-fail", n, why, x, TinyLocal()) for n, x in (("bad", {"x": a}), ("other", {}))
    )
    stages = (a, bad, other)
    for _ in range(2):
        assert lines_of(Store(tmp_path), *stages, detail="quiet") == [
            "✗ tiny-fail bad: ValueError: no such luck",
            "✗ tiny-fail other: as tiny-fail bad",
        ]
    assert lines_of(Store(tmp_path), *stages, detail="quiet", failures=False) == []


def test_a_stage_of_another_command_is_not_called_started(tmp_path):
    text, a = io.StringIO(), node("a")
    with RunProgress(Console(file=text, width=120), [a], Store(tmp_path)) as shown:
        shown(Event("waits", a, note="another command computes it"))
    assert text.getvalue() == "… tiny-walk a: another command computes it\n"


def test_a_command_goes_on_without_its_progress_if_nobody_reads_it():
    program = (
        "from maskpolicy.app.printed import console\n"
        "screen = console(err=True)\n"
        "for _ in range(9):\n    screen.print('step')\n"
        "print('done')"
    )
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=write, text=True, check=False)
    os.close(write)
    assert (ended.returncode, ended.stdout) == (0, "done\n")
