from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from maskpolicy.app import progress
from maskpolicy.app.display import Detail
from maskpolicy.app.meters import forecast
from maskpolicy.app.progress import RunProgress, StageSummary
from maskpolicy.core.types import Json
from maskpolicy.pipeline.graph.events import Event, Outcome
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, stage
from maskpolicy.pipeline.graph.stage_run import StageRun
from maskpolicy.pipeline.store.artifacts import Store


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


def of_kind(kind: str, **changes: Json) -> Outcome:
    made = one(kind)
    object.__setattr__(made, "kind", kind)
    return Outcome(made, **changes)


def test_parts_tell_what_was_computed_from_what_was_found():
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


def test_the_parts_of_a_run_add_up_to_its_seconds():
    outcomes = [of_kind("general", seconds=10.0), of_kind("evaluate", seconds=3.0)]
    assert sum(part.seconds for part in progress.parts(outcomes, wall=15.0)) == 15.0


def told(tmp_path: Path, *stages: Stage, failures: bool = True) -> list[str]:
    """Return the lines of one run."""
    text = io.StringIO()
    store = Store(tmp_path)
    with RunProgress(
        Console(file=text, width=120), forecast(stages, store), failures=failures
    ) as shown:
        execute(stages, store, shown)
    return [line for line in text.getvalue().splitlines() if line.startswith(("✓", "✗"))]


def lines_of(store: Store, *stages: Stage, detail: Detail = "normal") -> list[str]:
    """Return all that a run writes to a file, with the seconds left out."""
    text = io.StringIO()
    with RunProgress(Console(file=text), forecast(stages, store), detail=detail) as shown:
        execute(stages, store, shown)
    return [re.sub(r"  [0-9.]+ s$", "", line) for line in text.getvalue().split("\n")[:-1]]


def test_a_file_gets_a_line_at_the_start_and_the_end_of_a_stage_and_no_empty_one(tmp_path):
    store = Store(tmp_path)
    assert lines_of(store, one("a")) == ["… progress-step a: started", "✓ progress-step a"]
    assert lines_of(store, one("a")) == []
    assert lines_of(store, one("a"), detail="verbose") == ["= progress-step a: is in the store"]


def test_a_quiet_run_tells_only_failures(tmp_path):
    found = lines_of(Store(tmp_path), one("a"), one("b", fails=True), detail="quiet")
    assert found == ["✗ progress-step b: ValueError: no such luck"]


def test_a_stage_that_another_command_computes_is_told_as_one_of_this_run(tmp_path):
    text, stage = io.StringIO(), one("a")
    ahead = forecast([stage], Store(tmp_path))
    done = Outcome(stage, tmp_path, seconds=2.0)
    with RunProgress(Console(file=text), ahead) as shown:
        shown(Event("waits", stage, note="another command computes it"))
        shown(Event("advanced", stage, 1, 2, "half"))
        shown(Event("finished", stage, outcome=done))
    assert text.getvalue().splitlines() == [
        "… progress-step a: started",
        "✓ progress-step a  2.0 s",
    ]
    assert ahead.done == 1


def test_a_cause_that_stages_share_is_told_once(tmp_path):
    bad, other = one("bad", fails=True), one("other", fails=True, number=1)
    assert told(tmp_path, bad, other) == [
        "✗ progress-step bad: ValueError: no such luck",
        "✗ progress-step other: as progress-step bad",
    ]


def test_failures_that_the_caller_tells_are_no_lines(tmp_path):
    lines = told(tmp_path, one("good"), one("bad", fails=True), failures=False)
    assert [line[:20] for line in lines] == ["✓ progress-step good"]


def test_each_stage_that_was_computed_or_failed_is_a_line(tmp_path):
    text = io.StringIO()
    stages = [one("good"), one("bad", fails=True)]
    for _ in range(2):
        store = Store(tmp_path)
        with RunProgress(Console(file=text, width=120), forecast(stages, store)) as shown:
            execute(stages, store, shown)
    assert text.getvalue().count("✓ progress-step good") == 1
    assert text.getvalue().count("✗ progress-step bad: ValueError: no such luck") == 2
