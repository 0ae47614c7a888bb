from __future__ import annotations

from dataclasses import replace
from typing import Any

from maskpolicy.leaderboard import description, tuning_notes
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.results.cell import Result
from maskpolicy.types import Json
from tests.leaderboard.test_build import result, run

RATES = [0.1, 0.2, 0.3]


def tuned(policy: str, chosen: int, rates: list[float] = RATES, **changes: Any) -> Result:
    """Return the cell of a row that chose among learning rates."""
    made = result(policy, "zsre", 0, 0.5)
    tuning: Json = {
        "by": "row",
        "tried": [{"intermediate.lr": rate} for rate in rates],
        "scores": [0.25 if index == chosen else 0.125 for index in range(len(rates))],
        "chosen": chosen,
        "label": f"{policy} intermediate.lr={rates[chosen]}",
        "tasks": ["zsre"],
        "seeds": [0],
        "cost": {
            "intermediate": {"trainings": 3, "steps": 15, "source_tokens": 900},
            "finetune": {"trainings": 3, "steps": 9},
            "evaluate": {"evaluations": 3},
        },
        **changes,
    }
    budget = {**made.config["intermediate"], "lr": rates[chosen]}
    tune = {"intermediate.lr": rates, "on": "dev"}
    return replace(
        made, config={**made.config, "intermediate": budget, "tune": tune}, tuning=tuning
    )


def notes(*results: Result) -> list[str]:
    board = build_leaderboard([run(result("none", "zsre", 0, 0.5), *results)])
    return [note for note in board.notes if "tuned" in note or "tried" in note]


def test_a_choice_is_told_with_the_score_of_each_value():
    assert tuning_notes.choice(tuned("random", 1)) == (
        "intermediate.lr=0.2 (mean scores: 0.1: 12.5; 0.2: 25.0; 0.3: 12.5)"
    )
    by_task = tuned("random", 0, by="task", scores=[0.5, 0.5, 0.25])
    assert tuning_notes.choice(by_task) == (
        "intermediate.lr=0.1 for zsre (mean scores: 0.1: 50.0; 0.2: 50.0; 0.3: 25.0, the first of "
        "2 that are best)"
    )
    assert tuning_notes.choice(result("random", "zsre", 0, 0.5)) == ""


def test_the_cost_is_that_of_all_candidates():
    assert tuning_notes.cost(tuned("random", 1)) == (
        "3 intermediate trainings of 15 steps in all, 900 tokens and 3 fine-tunings of 9 steps in "
        "all and 3 evaluations on dev"
    )
    assert tuning_notes.cost(result("random", "zsre", 0, 0.5)) == ""


def test_rows_that_were_tuned_alike_need_no_note():
    assert notes(tuned("random", 1), tuned("span", 1)) == []


def test_rows_that_were_not_tuned_alike_are_told():
    fewer, none = tuned("span", 0, [0.1, 0.2]), result("mass", "zsre", 0, 0.5)
    assert notes(tuned("random", 1), fewer, none) == [
        "rows were not tuned alike, which is part of their differences (random: intermediate.lr of "
        "3 values; span: intermediate.lr of 2 values; mass: nothing)"
    ]


def test_a_row_without_the_stage_is_tuned_alike_by_the_same_values_of_fine_tuning():
    tune = {"finetune.lr": [0.1, 0.2], "on": "dev"}
    both = tuned("random", 1)
    both = replace(both, config={**both.config, "tune": {**both.config["tune"], **tune}})
    (note,) = notes(both)
    assert "none: nothing" in note
    base = result("none", "zsre", 0, 0.5)
    base = replace(base, config={**base.config, "tune": tune})
    board = build_leaderboard([run(base, both)])
    assert not [note for note in board.notes if "alike" in note]


def test_a_best_value_at_an_end_of_the_list_is_told():
    (note,) = notes(tuned("random", 2), tuned("span", 1))
    assert note.startswith("intermediate.lr=0.3, chosen for random, is at an end of the values")


def test_what_the_board_was_measured_on_has_choice_and_cost():
    board = build_leaderboard([run(result("none", "zsre", 0, 0.5), tuned("random", 1))])
    facts = description.facts(board)
    assert facts[tuning_notes.CHOICE].startswith("intermediate.lr=0.2")
    assert facts[tuning_notes.COST].startswith("3 intermediate trainings")
    plain = build_leaderboard([run(result("none", "zsre", 0, 0.5))])
    assert not {tuning_notes.CHOICE, tuning_notes.COST} & description.facts(plain).keys()
