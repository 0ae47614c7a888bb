from __future__ import annotations

from pathlib import Path
from typing import Any

from maskpolicy.leaderboard.baselines import baseline_of, candidates, nearest
from maskpolicy.results.cell import Run
from maskpolicy.types import Json
from tests.leaderboard.test_build import result


def row(
    label: str, policy: str, lr: float | None = None, **settings: Any
) -> tuple[list[str], Json]:
    """Return a row of a policy, with a learning rate of its own if it has one."""
    own = {} if lr is None else {"trainings": {"finetune": {"lr": lr}}}
    config = {"policy": {"name": policy, **settings}, "finetune": {"lr": lr or 0.1}, **own}
    return [label], config


LOW, HIGH = row("none finetune.lr=0.1", "none", 0.1), row("none finetune.lr=0.2", "none", 0.2)


def test_a_label_goes_before_a_policy_of_that_name():
    rows = [LOW, row("none", "random")]
    assert candidates("none", rows) == [1]
    assert nearest("none", rows, LOW[1]) == 1


def test_a_row_is_compared_with_the_baseline_that_shares_its_settings():
    rows = [LOW, HIGH, row("a", "random", 0.1), row("b", "random", 0.2)]
    assert [nearest("none", rows, config) for _, config in rows] == [0, 1, 0, 1]


def test_a_row_with_a_setting_of_the_file_is_like_the_row_that_states_it():
    assert nearest("none", [HIGH, LOW], row("random", "random")[1]) == 1


def test_a_baseline_with_further_settings_of_its_own_is_less_like():
    more = row("none finetune.lr=0.1 finetune.steps=5", "none", 0.1)
    more[1]["trainings"]["finetune"]["steps"] = more[1]["finetune"]["steps"] = 5
    assert nearest("none", [more, LOW], LOW[1]) == 1


def test_rows_of_a_baseline_may_differ_in_their_objective_but_not_in_the_policy():
    full, spans = (row(f"random target={t}", "random", target=t) for t in ("full", "spans"))
    other = row("span target=spans", "span", target="spans")
    assert nearest("random", [full, spans, other], other[1]) == 1
    few, many = (row(f"random ratio={r}", "random", ratio=r) for r in (0.1, 0.2))
    assert candidates("random", [few, many]) == []
    assert nearest("random", [few, many], few[1]) is None


def test_labels_that_begin_with_the_name_are_its_rows():
    rows = [row("MLM finetune.lr=0.1", "random", 0.1), row("MLM finetune.lr=0.2", "random", 0.2)]
    assert nearest("MLM", rows, HIGH[1]) == 1


def test_the_baseline_of_a_row_of_a_run():
    cells = [
        result("none", "zsre", 0, 0.5),
        result("random", "zsre", 0, 0.5),
    ]
    run = Run(Path("a"), tuple(cells), "none", ("none", "random"), ("zsre",))
    assert [baseline_of(run, label) for label in ("none", "random", "absent")] == ["none"] * 3
