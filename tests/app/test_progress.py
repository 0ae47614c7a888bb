"""Progress bars on a terminal, lines elsewhere, times left, and the times of a run's parts."""

from __future__ import annotations

import io
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console
from tiny import node

from maskpolicy.app import progress
from maskpolicy.app.progress import Detail, Display, Forecast, RunProgress, StageSummary, duration
from maskpolicy.core.types import Json
from maskpolicy.pipeline.graph.costs import Costs
from maskpolicy.pipeline.graph.events import Event, Outcome
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, StageRun, stage
from maskpolicy.pipeline.store.artifacts import Store

PATIENCE = 60  # seconds until a line that never comes fails the test
QUARTER = (0.25, "1 of 4 stages")


@dataclass(frozen=True)
class Step:
    fails: bool = False
    number: int = 0


@stage("progress-step")
def step(params: Step, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    if params.fails:
        raise ValueError("no such luck")
    run.progress(1, 2, "half")
    (out / "done").write_text("")


def one(label: str, **params: Json) -> Stage:
    return Stage("progress-step", label, Step(**params))


class Text(io.StringIO):
    """A file that tells when a text has been written to it, and calls a function before that."""

    def __init__(self, wanted: str = "", first: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._wanted, self._first, self.written = wanted, first, threading.Event()

    def write(self, text: str) -> int:
        self._first()
        done = super().write(text)
        if self._wanted in self.getvalue():
            self.written.set()
        return done


def terminal(text: io.StringIO) -> Console:
    return Console(file=text, width=100, force_terminal=True, force_interactive=True)


# a display


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
    with Display(terminal(text), "run", QUARTER, detail) as shown:
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


def test_many_threads_report_at_once():
    def report(name: str) -> None:
        for number in range(50):
            shown.begin(name, name)
            shown.report(name, number, 50, "")
            shown.end(name)

    with Display(terminal(io.StringIO()), "run", QUARTER, "normal") as shown:
        threads = [threading.Thread(target=report, args=(str(i % 2),)) for i in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(PATIENCE)
            assert not each.is_alive()


def test_a_part_that_ends_while_its_bar_is_added_has_no_bar():
    def end() -> None:
        if ending.ident is None:
            ending.start()
            ending.join(0.2)

    text = Text()
    with Display(terminal(text), "run", QUARTER, "normal") as shown:
        ending = threading.Thread(target=shown.end, args=("k",))
        text._first = end
        shown.begin("k", "general")
        ending.join(PATIENCE)
        text.seek(0)
        text.truncate()
        shown.begin("other", "finetune")
        assert "finetune" in text.getvalue()
        assert "general" not in text.getvalue()


def test_a_notebook_without_widgets_gets_lines(monkeypatch):
    module = ModuleType("IPython.display")
    said: list[str] = []
    module.display = lambda given: said.append(given.text)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    console = Console(force_jupyter=True, stderr=True)
    with Display(console, "run", QUARTER, "normal") as shown:
        shown.begin("k", "general")
        shown.say("✓ general", "normal")
    assert "".join(said) == "… general: started\n✓ general\n"


# rates and times left


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ([], "12 s"),
        ([(64, 0, "passages"), (128, 0, "passages")], "128, 64/s, passages"),
        ([(10 * n, 400, "loss 2.0") for n in range(11)], "100 of 400 (25%), 10/s, 30 s left, l"),
        ([(300, 400, ""), (310, 400, "")], "310 of 400 (78%), 10/s, 9 s left"),  # is resumed
        ([(90, 99, ""), *((n, 50, "") for n in (10, 20, 30))], "30 of 50 (60%), 10/s, 2 s left"),
    ],
)
def test_a_part_tells_share_rate_time_left_and_note(reports, said):
    now = [0.0]
    shown = Display(Console(file=io.StringIO()), "run", QUARTER, "normal")
    shown._bars.get_time = lambda: now[0]
    shown.begin("k", "general")
    for number, report in enumerate(reports):
        now[0] = float(number)
        shown.report("k", *report)
    now[0] = 12.0
    assert progress.words(shown._parts["k"]).startswith(said)


def test_a_duration_has_one_unit():
    written = [duration(seconds) for seconds in (0.4, 89, 95, 5000, 5500)]
    assert written == ["0 s", "89 s", "2 min", "83 min", "1.5 h"]


def run_of(*seconds: float, workers: int = 1) -> tuple[Forecast, Stage]:
    """Return the forecast of a chain of two stages and a stage beside it, and the first stage."""
    a, c = node("a", 1), node("c", 3)
    order = [a, node("b", 2, {"a": a}), c]
    costs = Costs()
    for each in seconds:
        costs.learn("tiny-walk", a.keyed, each)
    return Forecast(order, {one.key for one in order}, costs, workers), a


def test_the_time_left_of_a_run_is_that_of_its_open_stages():
    ahead, a = run_of(10.0, 30.0)
    assert ahead({}) == (0.0, "0 of 3 stages, about 60 s left")
    ahead.finish(a, 20.0, computed=True)
    assert ahead({}) == (pytest.approx(1 / 3), "1 of 3 stages, about 40 s left")
    ahead, _ = run_of(20.0, workers=8)
    assert ahead.left({})[0] == 40  # a path is not shared among workers


def test_a_stage_under_way_counts_by_its_own_rate():
    ahead, a = run_of(20.0)
    for left, expected in ((50, 20 + 20 + 50), (None, 20 + 20 + 10)):
        part = SimpleNamespace(time_remaining=left, elapsed=10.0)
        assert ahead.left({a.key: part})[0] == expected


def test_without_known_costs_there_is_no_estimate():
    ahead, a = run_of()
    assert ahead({}) == (0.0, "0 of 3 stages")
    ahead.finish(a, 7.0, computed=True)  # what is measured now
    assert ahead({})[1] == "1 of 3 stages, about 14 s left"


# the events of a run


def lines_of(store: Store, *stages: Stage, **more: Json) -> list[str]:
    """Return all that a run writes to a file, with the seconds left out."""
    text = io.StringIO()
    with RunProgress(Console(file=text, width=120), stages, store, **more) as shown:
        execute(stages, store, shown)
    return [re.sub(r"  [0-9.]+ s$", "", line) for line in text.getvalue().split("\n")[:-1]]


def test_a_file_gets_a_line_at_the_start_and_the_end_of_a_stage_and_no_empty_one(tmp_path):
    store = Store(tmp_path)
    assert lines_of(store, one("a")) == ["… progress-step a: started", "✓ progress-step a"]
    assert lines_of(store, one("a")) == []
    assert lines_of(store, one("a"), detail="verbose") == ["= progress-step a: is in the store"]


def test_a_quiet_run_prints_failures_and_each_cause_once(tmp_path):
    stages = (one("a"), one("bad", fails=True), one("other", fails=True, number=1))
    for _ in range(2):
        assert lines_of(Store(tmp_path), *stages, detail="quiet") == [
            "✗ progress-step bad: ValueError: no such luck",
            "✗ progress-step other: as progress-step bad",
        ]
    assert lines_of(Store(tmp_path), *stages, detail="quiet", failures=False) == []


def test_a_stage_that_another_command_computes_is_shown_like_one_of_this_run(tmp_path):
    text, awaited = io.StringIO(), one("a")
    done = Outcome(awaited, tmp_path, seconds=2.0)
    with RunProgress(Console(file=text), [awaited], Store(tmp_path)) as shown:
        shown(Event("waits", awaited, note="another command computes it"))
        shown(Event("advanced", awaited, 1, 2, "half"))
        shown(Event("finished", awaited, outcome=done))
        assert shown._forecast({}) == (1.0, "1 of 1 stages")
    lines = text.getvalue().splitlines()
    assert lines == ["… progress-step a: started", "✓ progress-step a  2.0 s"]


# the times of its parts


def of_kind(kind: str, **changes: Json) -> Outcome:
    made = one(kind)
    object.__setattr__(made, "kind", kind)
    return Outcome(made, **changes)


def test_parts_count_computed_and_found_stages_and_add_up():
    outcomes = [
        of_kind("general", seconds=10.0),
        of_kind("finetune", seconds=4.0),
        of_kind("finetune", seconds=5.0, hit=True),
        of_kind("corpus", seconds=1.0),
    ]
    found = {part.name: part for part in progress.parts(outcomes, wall=20.0)}
    assert list(found) == ["general", "intermediate", "finetune", "evaluate", "all else"]
    assert found["general"] == StageSummary("general", 1, 10.0, 0)
    assert found["finetune"] == StageSummary("finetune", 1, 4.0, 1)
    assert found["all else"] == StageSummary("all else", 1, 6.0, 0)
    assert sum(part.seconds for part in found.values()) == 20.0
