from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from maskpolicy.graph.execution import execute
from maskpolicy.graph.nodes import Stage, stage
from maskpolicy.graph.outcomes import Outcome
from maskpolicy.graph.stage_run import StageRun
from maskpolicy.runs import progress
from maskpolicy.runs.progress import ProgressBars, StageSummary
from maskpolicy.store.artifacts import Store
from maskpolicy.types import Json


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


def told(tmp_path: Path, *stages: Stage, **options: bool) -> list[str]:
    """Return the lines of one run."""
    text = io.StringIO()
    with ProgressBars(Console(file=text, width=120), len(stages), **options) as bars:
        execute(stages, Store(tmp_path), bars)
    return [line for line in text.getvalue().splitlines() if line.startswith(("✓", "✗"))]


def test_a_file_gets_no_empty_line_before_what_follows(tmp_path):
    text = io.StringIO()
    with ProgressBars(Console(file=text, width=120), 1) as bars:
        execute([one("good")], Store(tmp_path), bars)
    assert len(text.getvalue().splitlines()) == 1


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
        with ProgressBars(Console(file=text, width=120), len(stages)) as bars:
            execute(stages, Store(tmp_path), bars)
    assert text.getvalue().count("✓ progress-step good") == 1
    assert text.getvalue().count("✗ progress-step bad: ValueError: no such luck") == 2
