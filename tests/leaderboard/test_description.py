"""Every form of a leaderboard says what it was measured on."""

import csv
import io
import json
from dataclasses import replace

import folders
import pytest
from rich.console import Console

from maskpolicy.app.printed import leaderboard as show
from maskpolicy.core.types import Json
from maskpolicy.leaderboard import description, page, report
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.results import collecting
from maskpolicy.leaderboard.results.cell import Result
from tests.leaderboard.page.test_page import Texts
from tests.leaderboard.test_build import result, run

POLICIES = {"none": 0.2, "random": 0.5}
WORLD = {"seed": 3, "people": 150, "kinds": ["people", "birds"], "skew": 0.7}


def forms(found: Board) -> dict[str, str]:
    """Return the text of each form as a reader sees it, on one line."""
    screen = io.StringIO()
    show(found, Console(file=screen, width=300))
    made = {
        "terminal": screen.getvalue(),
        "page": " ".join(Texts(page.render(found)).words),
        "markdown": report.to_markdown(found),
        "latex": report.to_latex(found),
    }
    return {form: " ".join(text.split()) for form, text in made.items()}


def test_tasks_without_fine_tuning_name_none_and_are_joined_whatever_its_budget_is(tmp_path):
    names = ("a", "b", "c")
    one, two, three = (folders.write(tmp_path / name, POLICIES, ("zsre",)) for name in names)
    for folder in (one, two):  # as of pairs, whose cells have no such stage
        for cell in folders.edited(folder / "results"):
            stages = cell["stages"].items()
            cell["stages"] = {name: key for name, key in stages if "finetune" not in name}
    folders.change(two, "*", config={"finetune": {"lr": 1e-5}})
    assert "fine-tuning" not in description.facts(folders.board(one))
    assert "fine-tuning" in description.facts(folders.board(three))
    assert [row.label for row in folders.board(one, two).rows] == list(POLICIES)


def test_every_form_says_model_budgets_seeds_and_that_the_data_are_invented(tmp_path):
    found = folders.board(
        folders.write(tmp_path / "a", POLICIES, ("triviaqa", "nq"), seeds=2, world=WORLD)
    )
    model = "mini, built from scratch on the embedded world"
    budgets = [f"1000 steps of 32 {unit}, learning rate 0.001" for unit in ("passages", "examples")]
    facts = ("seeds: 0, 1", "intermediate runs: 0, 1", "seed 3, kinds people+birds, skew 0.7")
    for form, text in forms(found).items():
        told = [fact.replace(": ", " " if form == "page" else ": ") for fact in facts]
        told += ["triviaqa (world)", "nq (world)", "invented data", model, *budgets]
        assert [each for each in told if each not in text] == []
        assert text.count("n = 60") == 2
        assert text.count(budgets[0]) == 2  # general, intermediate
    rows = list(csv.DictReader(io.StringIO(report.to_csv(found))))
    rows = [row for row in rows if "mean" not in row["task"]]
    assert {row["data"] for row in rows} == {"world: invented data"}
    assert {row["model"] for row in rows} == {model}
    assert [bool(row["intermediate"]) for row in rows] == [False, False, True, True]
    assert rows[0]["finetune"] == budgets[1]
    said = report.to_json(found)["measured"]
    about = {"title": "nq (world)", "sources": ["world"], "invented": True, "n": [60]}
    assert said["tasks"]["nq"] == about
    assert said["settings"]["intermediate runs"] == "0, 1"
    json.dumps(said, allow_nan=False)


@pytest.mark.parametrize("data", ["hub", "/home/me/files"])
def test_data_that_are_not_invented_are_not_called_so(tmp_path, data):
    real = {"model": {"name": "a/b"}, "corpus": {"files": ["/x/wiki.txt"]}, "data": data}
    found = folders.board(folders.write(tmp_path / "a", POLICIES, ("triviaqa",), **real))
    for text in forms(found).values():
        assert all(said in text for said in ("triviaqa", "n = 60", "a/b", "wiki.txt"))
        assert "(world)" not in text
        assert "invented" not in text


def test_a_mixed_board_says_which_rows_were_measured_on_what(tmp_path):
    one = folders.write(tmp_path / "one", {"none": 0.2}, ("nq",), n=60)
    longer = folders.BUDGET | {"steps": 4000}
    two = folders.write(tmp_path / "two", {"b": 0.2}, ("nq",), n=30, data="hub", finetune=longer)
    found = folders.board(one, two, mixed=True)
    for text in forms(found).values():
        assert "n = 30 or 60" in text
        assert "learning rate 0.001 (none); 4000 steps of 32 examples" in text
        assert "nq (world)" in text  # some of its questions are


def test_the_shape_of_a_model_shared_masks_and_a_training_of_no_steps_are_named(tmp_path):
    model = {"name": "mini", "kind": "encoder", "layers": 6, "decoder_layers": 4}
    none = {**folders.BUDGET, "steps": 0}
    folders.write(tmp_path, {**POLICIES, "span": 0.4}, model=model, finetune=none)
    for name, target in (("random", "spans"), ("span", "full")):
        policy = {"corruption": "token", "target": target}
        folders.change(tmp_path, f"{name}--*.json", config={"policy": policy})
    found = description.facts(folders.board(tmp_path))
    assert found["model"] == "mini encoder (layers 6), built from scratch on the embedded world"
    assert found["masks of all rows"] == "corruption token"
    assert found["fine-tuning"] == "none (0 steps)"


def test_a_folder_that_the_world_was_written_to_is_the_world(tmp_path):
    (tmp_path / "made" / "tasks").mkdir(parents=True)
    assert collecting._origin(str(tmp_path / "made" / "tasks")) == "files"
    (tmp_path / "made" / "world.json").write_text("{}")
    assert collecting._origin(str(tmp_path / "made" / "tasks")) == "world"
    assert [collecting._origin(name) for name in ("world", "hub")] == ["world", "hub"]


RATES = [0.1, 0.2, 0.3]


def tuned(policy: str, chosen: int, rates: list[float] = RATES, seed: int = 0) -> Result:
    """Return the cell of a row that chose among learning rates."""
    made = result(policy, "zsre", seed, 0.5)
    tuning: Json = {
        "by": "row",
        "tried": [{"intermediate.lr": rate} for rate in rates],
        "scores": [0.25 if index == chosen else 0.125 for index in range(len(rates))],
        "chosen": chosen,
        "label": f"{policy} intermediate.lr={rates[chosen]}",
        "tasks": ["zsre"],
        "seeds": [seed],
        "cost": {
            "intermediate": {"trainings": 3, "steps": 15, "source_tokens": 900},
            "finetune": {"trainings": 3, "steps": 9},
            "evaluate": {"evaluations": 3},
        },
    }
    budget = {**made.config["intermediate"], "lr": rates[chosen]}
    tune = {"intermediate.lr": rates, "on": "dev"}
    return replace(
        made, config={**made.config, "intermediate": budget, "tune": tune}, tuning=tuning
    )


def notes(*results: Result) -> list[str]:
    board = build_leaderboard([run(result("none", "zsre", 0, 0.5), *results)])
    return [note for note in board.notes if "tuned" in note or "tried" in note]


def test_rows_that_were_not_tuned_alike_have_a_note():
    assert notes(tuned("random", 1), tuned("span", 1, RATES[::-1])) == []
    fewer, none = tuned("span", 0, [0.2, 0.1]), result("mass", "zsre", 0, 0.5)
    assert notes(tuned("random", 1), fewer, none) == [
        "rows were not tuned alike, which is part of their differences (random: intermediate.lr of "
        "[0.1, 0.2, 0.3]; span: intermediate.lr of [0.2, 0.1]; mass: nothing)"
    ]


def test_the_cost_of_each_choice_is_told_with_its_seeds():
    base = [result("none", "zsre", seed, 0.5) for seed in (0, 1)]
    runs = [run(base[seed], tuned("random", 1, seed=seed), name=f"{seed}") for seed in (0, 1)]
    cost = description.facts(build_leaderboard(runs))["cost of tuning"]
    assert cost.count("3 fine-tunings of 9 steps in all and 3 evaluations on dev for seed") == 2


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


def test_a_best_value_at_an_end_of_the_list_has_a_note():
    (note,) = notes(tuned("random", 2), tuned("span", 1))
    assert note.startswith("intermediate.lr=0.3, chosen for random, is at an end of the values")


def test_the_general_models_of_runs_on_several_machines_are_all_named():
    """The first machine has run 0 alone, whose general model is its only one."""
    runs = [
        run(
            *(
                result(row, "zsre", n, 0.5, general={}, general_seeds=n + 1, general_seed=n)
                for row in ("none", "random")
            ),
            name=f"m{n}",
        )
        for n in range(3)
    ]
    assert description.facts(build_leaderboard(runs))["general models"] == "0, 1, 2"
    assert "general models" not in description.facts(build_leaderboard(runs[:1]))


def test_the_steps_of_a_training_that_patience_may_end_are_told_as_the_most():
    config = {"finetune": {"steps": 9, "batch_size": 7, "patience": 1}}
    assert description.stage(config, "finetune") == "at most 9 steps of 7 examples"
