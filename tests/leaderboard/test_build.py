import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import folders
import pytest
from payloads import PAYLOADS

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.metrics import Total
from maskpolicy.core.types import Json
from maskpolicy.leaderboard import build, page, report
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.comparisons import nearest_baseline
from maskpolicy.leaderboard.results import run_folder
from maskpolicy.leaderboard.results.cell import Result, Run

GROUPS = {"triviaqa": "closed-book", "zsre": "knowledge-intensive", "wow": "knowledge-intensive"}


def result(policy: str, name: str, seed: int, score: float | None, **changes: Any) -> Result:
    """Return a result, that of a failure without a score; `changes` go to the cell's config."""
    config = {
        "policy": {"name": policy},
        "task": {"name": name, "data": "world", "context": False},
        "model": {"name": "mini"},
        "finetune": {"steps": 3},
    }
    if policy != "none":
        config |= {"intermediate": {"steps": 5}, "corpus": {}, "intermediate_seeds": 1}
    config |= changes
    work = None if policy == "none" else {"passages": 9, "passages_without_span": 1}
    about: Json = {"work": work, "origin": config["task"]["data"]}
    about |= (
        {"error": "it broke"} if score is None else {"metrics": Total("exact_match", score, 8, 1)}
    )
    return Result(policy, name, seed, GROUPS[name], config, {}, **about)


def results(name: str, **rows: tuple[float | None, ...]) -> list[Result]:
    """Return the results of rows on a task, for seeds from 0 on."""
    return [result(row, name, *each) for row, scores in rows.items() for each in enumerate(scores)]


def run(*results: Result, name: str = "a", baseline: str = "none") -> Run:
    policies = tuple(dict.fromkeys(r.policy for r in results))
    cells = tuple(replace(each, folder=Path(name)) for each in results)
    return Run(Path(name), cells, baseline, policies, tuple(GROUPS))


def built(*results: Result) -> Board:
    """Return the leaderboard of one run."""
    return build_leaderboard([run(*results)])


def test_the_json_is_of_version_1():
    cells = results("triviaqa", none=(0.25, 0.5), random=(0.5, 0.625))
    found = report.to_json(built(*cells))
    first = ["version", "baseline", "measured", "majority", "majority_rules", "rows"]
    assert list(found) == [*first, "ranks", "tied_with_best", "pairs", "notes"]
    assert (found["version"], found["baseline"]) == (1, "none")
    assert [list(row) for row in found["rows"]] == [["policy", "config", "scores", "baseline"]] * 2
    assert found["rows"][1]["policy"] == "random"
    assert found["rows"][1]["config"] == {"name": "random"}
    assert found["rows"][1]["scores"]["triviaqa"] == {
        "metric": "exact_match",
        "mean": 56.25,
        "std": 8.8388,
        "seeds": {"0": 50.0, "1": 62.5},
        "n": 8,
        "delta": 18.75,
        "comparison": {
            **dict.fromkeys(("difference", "low", "high", "p", "p_holm", "detectable")),
            "significant": False,
            "seeds": 2,
            "groups": None,
            "reason": "all seeds share one intermediate run: its noise is part of the difference; "
            "a test needs 3 seeds or more, with an intermediate run each",
        },
    }
    assert found["rows"][0]["scores"]["triviaqa"]["comparison"] is None
    assert any(note.startswith("intermediate_seeds is 1") for note in found["notes"])
    json.dumps(found, allow_nan=False)


def test_a_missing_cell_is_null_with_its_reason():
    cells = results("triviaqa", none=(None, 0.5), random=(None,))
    found = report.to_json(built(*cells, *results("zsre", none=(0.5,))))
    score = found["rows"][0]["scores"]["triviaqa"]
    assert (score["seeds"], score["mean"]) == ({"0": None, "1": 50.0}, 50.0)
    assert found["rows"][1]["scores"] == {"triviaqa": None, "zsre": None}
    note = "2 scores are missing: it broke (none, triviaqa, seed 0; random, triviaqa, seed 0)"
    assert note in found["notes"]


def test_the_share_of_the_text_that_was_cut_has_a_note():
    counts = {"passage_tokens": 800, "cut_tokens": 96}
    rows = [
        replace(result(name, "zsre", 0, 0.5, intermediate_seeds=2), work=work)
        for name, work in (("random", counts), ("original", counts), ("mass", {"passages": 9}))
    ]
    (note,) = built(result("none", "zsre", 0, 0.1), *rows).notes
    assert note.startswith("12% of the text of random, original was cut: ")


def test_two_metrics_of_a_task_that_count_in_one_mean_are_noted():
    task = {"name": "wow", "data": "world", "context": False}
    one, two = {"metrics": ["f1"]}, {"metrics": ["contains"]}
    both = [result("none", "wow", 0, 0.5, task=task | one)]
    both.append(replace(result("none", "wow", 0, 0.7, task=task | two), task="wow's facts"))
    found = built(*both)
    assert found.groups == {"knowledge-intensive": ("wow", "wow's facts")}
    told = "wow and wow's facts are scores of the same answers, which count 2 times in this mean"
    assert f"mean of knowledge-intensive: {told}" in found.notes
    apart = [result("none", "wow", 0, 0.5), result("none", "zsre", 0, 0.5)]
    assert not any("this mean" in note for note in built(*apart).notes)


def test_a_task_with_its_context_is_in_no_average():
    oracle = {"name": "wow", "data": "world", "context": True}
    cells = [result("none", "zsre", 0, 0.25), result("none", "wow", 0, 0.9, task=oracle)]
    assert built(*cells).groups == {}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("lr", "fits"), [(1e-3, True), (1e-2, False)])
def test_whether_runs_fit_together_does_not_depend_on_their_order(order, lr, fits):
    def trained(label: str, lr: float, **more: Any) -> Result:
        return result(label, "zsre", 0, 0.5, intermediate={"steps": 5, "lr": lr}, **more)

    rates = {each: {"intermediate": {"lr": each}} for each in (1e-4, 1e-3)}
    rows = [trained(f"random lr={each}", each, trainings=own) for each, own in rates.items()]
    base = result("none", "zsre", 0, 0.25)
    runs = [run(base, *rows, name="swept"), run(base, trained("span", lr), name="plain")][::order]
    if fits:
        assert {row.label for row in build_leaderboard(runs).rows} >= {"none", "span"}
    else:
        with pytest.raises(ConfigError, match=r"span \(.*intermediate.lr"):
            build_leaderboard(runs)


def test_what_many_rows_differ_in_is_one_note():
    labels = ("none", "random", "original")
    one = run(*(result(label, "zsre", 0, 0.5) for label in labels))
    longer = {"intermediate": {"steps": 6}, "finetune": {"steps": 7}}
    two = run(*(result(label, "zsre", 0, 0.5, **longer) for label in labels), name="b")
    notes = build_leaderboard([one, two], mixed=True).notes
    (note,) = [note for note in notes if note.startswith("mixed: ")]
    assert note.count("intermediate.steps: 5 -> 6") == note.count("finetune.steps") == 1
    assert note.count("(b), and 2 more)") == 2


def parts(**seeds: dict[int, float]) -> list[Result]:
    return [
        result(name.replace("_", "-"), "zsre", seed, score, intermediate_seed=seed)
        for name, scores in seeds.items()
        for seed, score in scores.items()
    ]


def test_differences_are_paired_over_the_seeds_of_both_rows():
    """A baseline that is better with other seeds must not turn a gain into a loss."""
    first = run(*parts(none={0: 0.1, 1: 0.2, 2: 0.1}, random={0: 0.4, 1: 0.5, 2: 0.4}))
    second = run(*parts(none={3: 0.9, 4: 0.9}, original={3: 0.95, 4: 0.93}), name="b")
    found = build_leaderboard([first, second])
    scores = {row.label: score for row in found.rows if (score := row.scores["zsre"])}
    assert {label: score.delta for label, score in scores.items()} == {
        "none": 0.0,
        "random": pytest.approx(30),
        "original": pytest.approx(4),
    }
    tests = [scores[label].comparison for label in ("random", "original")]
    assert [test.seeds for test in tests if test] == [3, 2]
    assert [score.is_complete for score in scores.values()] == [True, False, False]
    assert found.best() == {"zsre": set()}  # only one row has all seeds
    told = "of its baseline none: differences are means over the shared seeds"
    lacking = (f"random lacks seeds 3, 4 {told}", f"original lacks seeds 0, 1, 2 {told}")
    assert found.notes[:2] == lacking
    for form in (report.to_markdown(found), page.render(found), report.to_latex(found)):
        assert "+30.0" in form and "+4.0" in form
    assert "43.3 ± 5.8 (+30.0) *" in report.to_markdown(found)


def test_seeds_that_the_baseline_has_not_are_in_no_difference():
    cells = parts(none={0: 0.1, 1: 0.2}, random={0: 0.4, 1: 0.5, 2: 0.0}, original={0: 0.3, 1: 0.5})
    found = built(*cells)
    score = found.rows[1].scores["zsre"]
    assert (score.delta, score.is_complete) == (pytest.approx(30), True)
    assert found.best() == {"zsre": {"random"}}  # over seeds 0 and 1, which all rows have
    note = "random has seed 2, which its baseline none lacks: differences leave them out"
    assert note in found.notes


def test_rows_without_a_common_seed_have_no_difference():
    runs = [run(*parts(none={0: 0.1})), run(*parts(random={1: 0.4}), name="b")]
    score = build_leaderboard(runs).rows[1].scores["zsre"]
    assert (score.delta, score.mean) == (None, pytest.approx(40))


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        ({}, {"score": 0.75}, "has two scores"),
        (
            {"intermediate_seed": 0},
            {"intermediate_seed": 3},
            "seed 0, comes from intermediate run 0 and from run 3",
        ),
    ],
)
def test_a_cell_with_two_results_is_an_error(one, other, says):
    cells = [result("random", "zsre", 0, **{"score": 0.5, **each}) for each in (one, other)]
    runs = [run(cell, name=name, baseline="random") for cell, name in zip(cells, "ab", strict=True)]
    with pytest.raises(ConfigError, match=says):
        build_leaderboard(runs)


def named(label: str, seed: int, **fields: Any) -> Result:
    """Return a cell of the policy random in a row of that name."""
    policy = {"name": "random", "ratio": 0.15, **fields}
    made = result("random", "zsre", seed, 0.5, intermediate_seed=seed)
    return replace(made, policy=label, config={**made.config, "policy": policy})


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("random", "random ratio=0.3"), "random ratio=0.3"),
        (("random ratio=0.3", "mine"), "mine"),
        (("mine", "random"), "mine"),
        (("random MAE-LM", "random"), "random MAE-LM"),
        (("mine", "yours"), "mine"),
    ],
)
def test_rows_are_joined_by_their_configuration_and_a_given_name_wins(names, shown):
    runs = [
        run(named(label, seed, ratio=0.3), name=f"run {seed}", baseline=label)
        for seed, label in enumerate(names)
    ]
    found = build_leaderboard(runs)
    assert [row.label for row in found.rows] == [shown]
    assert set(found.rows[0].cells) == {("zsre", 0), ("zsre", 1)}
    other = names.index(next(name for name in names if name != shown))
    assert f"{shown}: called {names[other]} in run {other}" in found.notes
    for label in names:
        assert build_leaderboard(runs, baseline=label).baseline == shown


def test_two_policies_of_one_given_name_are_an_error():
    one, other = named("mine", 0, ratio=0.3), named("mine", 1, ratio=0.5)
    runs = [run(one, baseline="mine"), run(other, name="b")]
    with pytest.raises(ConfigError, match=r"call two rows 'mine', with policy.ratio: 0.3 -> 0.5"):
        build_leaderboard(runs)
    mixed = build_leaderboard(runs, mixed=True)
    assert [row.label for row in mixed.rows] == ["mine (a)", "mine (b)"]


def test_names_that_were_made_tell_two_policies_apart():
    """Earlier versions called a row by its policy alone; so it is with keys that a file shares."""
    runs = [
        run(named("random", 0, ratio=0.3, target="full"), baseline="random"),
        run(named("random", 0, target="spans"), name="b"),
    ]
    labels = [row.label for row in build_leaderboard(runs).rows]
    assert labels == ["random ratio=0.3 target=full", "random ratio=0.15 target=spans"]
    # rows of one run stay apart whatever their settings
    cells = [named("one", 0), named("two", 0)]
    found = build_leaderboard([run(*cells, baseline="one"), run(*cells, name="b")])
    assert [row.label for row in found.rows] == ["one", "two"]


def test_a_score_replaces_a_failure_of_the_same_cell():
    runs = [run(result("none", "zsre", 0, None)), run(result("none", "zsre", 0, 0.5), name="b")]
    assert build_leaderboard(runs).notes == ()


def test_markdown_shows_mean_deviation_and_difference():
    cells = results("zsre", none=(0.25, 0.25), random=(0.5, 0.25), **{"a|b": (None,)})
    text = report.to_markdown(built(*cells), work=True)
    assert text.startswith("| policy | zsre (world): exact match, n = 8 |")
    assert "Percent: mean ± standard deviation over seeds (difference to none)." in text
    assert "| random | 37.5 ± 17.7 (+12.5) | 9 | 1 | – | – |" in text
    assert "| a\\|b | – |" in text
    assert "* a|b, zsre, seed 0: it broke" in text


@pytest.mark.parametrize("label", PAYLOADS)
def test_a_label_is_text_in_every_form(label):
    found = built(*(result(name, "zsre", 0, 0.25) for name in ("none", label)))
    (_, row) = csv.DictReader(io.StringIO(report.to_csv(found)))
    assert row["policy"] == (f"'{label}" if label[0] in "=+-@" else label)
    text = report.to_markdown(found)
    assert "](http" not in text and "](java" not in text and "<img" not in text
    body = report.to_latex(found).partition("\\midrule")[2]
    commands = set(re.findall(r"\\([A-Za-z]+|.)", body))
    assert not commands & {"input", "immediate", "write"}
    assert "{7" not in report.to_latex(found).replace("\\{", "")


@pytest.mark.parametrize("label", ["[2pt] x", "*", " [", "*[1]"])
def test_a_label_is_no_argument_of_the_end_of_a_row(label):
    cells = [result(name, "zsre", 0, 0.25) for name in ("none", label)]
    latex = report.to_latex(built(*cells))
    assert not re.search(r"(\\\\|rule)\s*[\[*]", latex)
    assert label.strip().replace(label.strip()[0], f"{{{label.strip()[0]}}}", 1) in latex


def test_json_and_csv_have_all_scores_and_the_averages_of_groups_of_tasks():
    scores, title = {"none": (0.0,), "random": (0.25,)}, "mean of knowledge-intensive"
    cells = results("zsre", **scores, span=(1.0,)) + results("wow", **scores, span=(None,))
    found = built(*cells)
    averages = {row["policy"]: row["averages"][title] for row in report.to_json(found)["rows"]}
    assert averages["none"] == {"mean": 0.0, "delta": None, "comparison": None}
    assert (averages["random"]["mean"], averages["random"]["delta"]) == (25.0, 25.0)
    rows = list(csv.DictReader(io.StringIO(report.to_csv(found))))
    assert [(row["policy"], row["task"], row["mean"], row["seed 0"]) for row in rows] == [
        *(("none", task, "0.0", "0.0") for task in ("zsre", "wow")),
        ("none", title, "0.0", ""),
        *(("random", task, "25.0", "25.0") for task in ("zsre", "wow")),
        ("random", title, "25.0", ""),
        ("span", "zsre", "100.0", "100.0"),
        ("span", "wow", "", ""),
        ("span", title, "", ""),
    ]
    assert {row["significant"] for row in rows} == {""}  # nothing was tested


def test_folders_whose_general_models_differ_have_one_note():
    cells: dict[str, list[Result]] = {"a": [], "b": []}
    for seed in range(6):
        name = "ab"[seed // 3]
        made = {"stages": {"general mini": str(seed % 3)}, "weights": name}
        cells[name].append(replace(result("none", "zsre", seed, 0.5), **made))
    runs = [run(*of, name=name) for name, of in cells.items()]
    notes = [note for note in build_leaderboard(runs).notes if "the same general model" in note]
    assert [note.split(" computed")[0] for note in notes] == ["a, b"]


SCORE = Total("exact_match", 0.5, 10)


def test_rows_without_counts_and_trainings_in_which_memory_ran_out_are_named():
    trained = {"intermediate": {"steps": 3}}
    how = {"finetune none zsre seed 0": {"micro_tokens": 512, "step": 7}}
    results = (
        Result("none", "zsre", 0, "g", {}, {}, SCORE, shrunk=how),
        Result("random", "zsre", 0, "g", trained, {}, SCORE),
        Result("random", "zsre", 1, "g", trained, {}, SCORE),
        Result("span", "zsre", 0, "g", trained, {}, SCORE, work={"masked": 3}),
        Result("regex", "zsre", 0, "g", trained, {}, error="it failed"),
    )
    counts, memory = sorted(build._run_notes([Run(Path("runs/a"), results, "none")]))[::-1]
    note = "no counts of masked tokens for random: work.json is missing or damaged in the store"
    assert counts == note
    assert memory.startswith("memory ran out, and trainings went on with smaller micro_tokens")
    assert memory.endswith("finetune none zsre seed 0 with 512 from step 7")


def test_a_metric_that_finds_no_short_answer_is_named():
    task = {"name": "wow", "data": "world", "metrics": ["f1", "contains"]}
    both = Total("f1", 0.5, 10, parts={"contains": 0.0})

    def notes(world, score=both, block=task):
        config = {"task": block, "world": world}
        results = [Result("none", "wow", seed, "g", config, {}, score) for seed in (0, 1)]
        return build._run_notes([Run(Path("runs/a"), tuple(results), "none")])

    (note,) = notes({"people": 60})
    assert note.startswith("wow: contains looks for a short answer")
    assert note.endswith("gives 0: set world.wow_values: true")
    assert notes({"people": 60}, Total("contains", 0.0, 10)) == [note]
    assert not notes({"wow_values": True})
    assert not notes({}, SCORE) and not notes({}, block=task | {"name": "zsre"})
    assert not notes({}, block=task | {"data": "hub"})


def row(
    label: str, policy: str, lr: float | None = None, **settings: Any
) -> tuple[list[str], Json]:
    """Return a row of a policy, with a learning rate of its own if it has one."""
    own = {} if lr is None else {"trainings": {"finetune": {"lr": lr}}}
    config = {"policy": {"name": policy, **settings}, "finetune": {"lr": lr or 0.1}, **own}
    return [label], config


LOW, HIGH = row("none finetune.lr=0.1", "none", 0.1), row("none finetune.lr=0.2", "none", 0.2)
SPANS = row("span target=spans", "span", target="spans")
MORE = row("none finetune.lr=0.1 finetune.steps=5", "none", 0.1)
MORE[1]["trainings"]["finetune"]["steps"] = MORE[1]["finetune"]["steps"] = 5


@pytest.mark.parametrize(
    ("name", "rows", "config", "place"),
    [
        ("none", [LOW, row("none", "random")], LOW[1], 1),  # a label goes before a policy
        ("none", [LOW, HIGH], row("a", "random", 0.2)[1], 1),  # the row that shares its settings
        ("none", [HIGH, LOW], row("random", "random")[1], 1),  # or that states those of the file
        ("none", [MORE, LOW], LOW[1], 1),  # and has no further ones
        ("MLM", [row(f"MLM lr={lr}", "random", lr) for lr in (0.1, 0.2)], HIGH[1], 1),
        ("random", [row(f"a {t}", "random", target=t) for t in ("full", "spans")], SPANS[1], 1),
        ("random", [row(f"a {r}", "random", ratio=r) for r in (0.1, 0.2)], SPANS[1], None),
    ],
)
def test_a_row_is_compared_with_the_baseline_that_is_most_like_it(name, rows, config, place):
    assert nearest_baseline(name, rows, config) == place


def test_rows_made_with_other_versions_are_noted(tmp_path):
    packages = ("torch", "transformers", "tokenizers", "numpy")
    home = folders.write(tmp_path / "one", {"none": 0.2, "random": 0.6}, seeds=1)
    record = json.loads((home / "run.json").read_text())
    here = folders.VERSIONS | dict.fromkeys(packages, "2.13.0")
    record["versions"] = here
    other = dict.fromkeys(packages, "2.12.0") | {"python": "3.12.1"}
    made = {"versions": here | other, "commit": None}
    for stage in record["stages"]:
        if stage["label"].startswith("intermediate random"):
            stage["made_with"] = made
    assert not [each for each in folders.board(home).notes if "versions of" in each]
    (home / "run.json").write_text(json.dumps(record))
    notes = [each for each in folders.board(home).notes if "versions of" in each]
    said = "2.13.0 (none); 2.12.0 and 2.13.0 (random)"
    assert notes == [
        f"rows were made with different versions of {name}: {said}" for name in packages
    ]
    for broken in ("[", '{"stages": [1, {"made_with": 2}, {"key": [], "versions": 3}]}'):
        (home / "run.json").write_text(broken)
        assert run_folder.versions_of(home) == {}


WITH_CONTEXT = {"task": {"name": "zsre", "data": "world", "context": True}}


@pytest.mark.parametrize(
    "cells",
    [
        [("wow", 0, {"general": {}}), ("zsre", 0, WITH_CONTEXT | {"general": {}})],
        [("zsre", seed, {"general": {}, "general_seed": 0}) for seed in (0, 1)],
    ],
)
def test_a_row_of_a_mixed_board_stays_whole_where_only_some_of_its_cells_differ(cells):
    one = [("zsre", seed, {"general": {}, "general_seed": seed}) for seed in (0, 1)]
    runs = [
        run(
            *(result("none", task, seed, 0.5, **changes) for task, seed, changes in own),
            *(result("random", task, seed, 0.75, **changes) for task, seed, changes in own),
            name=name,
        )
        for name, own in (("a", one), ("b", cells))
    ]
    rows = {row.label: row for row in build_leaderboard(runs, mixed=True).rows}
    assert rows["random (b)"].against == "none (b)"
    assert {label: len(row.cells) for label, row in rows.items()} == dict.fromkeys(rows, 2)


def test_a_row_of_a_mixed_board_is_the_baseline_by_its_name_there():
    runs = [
        run(
            *(result(row, "zsre", 0, score, intermediate={"steps": steps}) for row, score in rows),
            name=name,
        )
        for name, steps, rows in (
            ("a", 5, [("none", 0.1), ("random", 0.5)]),
            ("b", 9, [("none", 0.1), ("random", 0.75)]),
        )
    ]
    board = build_leaderboard(runs, baseline="random (b)", mixed=True)
    assert board.compared_with == "random (b)"
    assert {row.label: row.scores["zsre"].delta for row in board.rows}["random (a)"] == -25
    with pytest.raises(ConfigError, match=r"choose from .*, random \(b\); set one with --baseline"):
        build_leaderboard(runs, baseline="x", mixed=True)


def test_the_rows_of_one_intermediate_run_are_named_beside_others():
    rows = {row: [result(row, "zsre", seed, 0.5) for seed in range(3)] for row in ("random", "pmi")}
    for seed, cell in enumerate(rows["pmi"]):
        cell.config.update(intermediate_seeds=3, intermediate_seed=seed)
    notes = built(result("none", "zsre", 0, 0.1), *rows["random"], *rows["pmi"]).notes
    said = "intermediate_seeds is 1 for random: such a row has one intermediate run, so the"
    assert any(note.startswith(said) and "is part of its differences" in note for note in notes)
