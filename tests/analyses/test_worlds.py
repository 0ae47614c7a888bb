"""Tests of differences over worlds: one number for each world, and runs that do not belong."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import folders
import numpy as np
import pytest
from scipy import stats as reference

from benchmarks import simulation
from benchmarks.simulation import SIZES, Design, world_rates
from maskpolicy.analyses import Findings
from maskpolicy.analyses.builtin.differences import CONDITION, Worlds
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.metrics import Total
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.results import cell
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.leaderboard.results.collecting import cell_config
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.store.artifacts import Store

SHARES = {"none": 0.1, "random": 0.15, "salient-span": 0.7}


def write(
    folder: Path, seed: int, shares: Mapping[str, float] = SHARES, **changes: Any
) -> cell.Run:
    """Write the run of one world, with its own questions and answers."""
    about: dict[str, Any] = {"first": 10 * seed, "world": {"seed": seed}, **changes}
    return read_run(folders.write(folder / f"world {seed}", shares, **about))


def analysed(folder: Path, *runs: cell.Run) -> Findings:
    return Worlds().analyse(runs, Store(folder / "store"))


def test_each_world_counts_once_whatever_its_size(tmp_path):
    runs = [write(tmp_path, seed, n=60 + 3 * seed) for seed in range(3)]
    found = analysed(tmp_path, *runs)
    assert [(row["policy"], row["task"]) for row in found.rows] == [
        (row, task) for row in ("random", "salient-span") for task in ("triviaqa", "zsre")
    ]
    boards = [build_leaderboard([run]) for run in runs]
    values = [board.rows[2].scores["zsre"].delta for board in boards]  # of each alone
    expected = reference.ttest_1samp(values, 0)
    low, high = expected.confidence_interval(0.95)
    row = found.rows[-1]
    assert row["worlds"] == 3
    assert row["difference"] == pytest.approx(np.mean(values))
    assert (row["low"], row["high"]) == (pytest.approx(low), pytest.approx(high))
    ps = [each["p (Holm)"] for each in found.rows]
    assert expected.pvalue <= row["p (Holm)"] <= 4 * expected.pvalue + 1e-12
    assert min(ps) < stats.LEVEL
    assert found.notes == (CONDITION,)
    found = analysed(tmp_path, *runs[:2])
    assert found.notes == ("2 worlds: a test needs 3",)
    assert all("p (Holm)" not in row and "low" not in row for row in found.rows)
    assert found.rows[-1]["difference"] > 40
    with pytest.raises(ConfigError, match=r"both have world\.seed 0: give one run for each world"):
        analysed(tmp_path, runs[0], write(tmp_path / "other", 0))
    run = read_run(folders.write(tmp_path / "files", SHARES, data="a folder"))
    assert "no questions about the embedded world" in analysed(tmp_path, run).notes[0]


def test_worlds_of_other_settings_are_refused(tmp_path):
    one = write(tmp_path, 0)
    for changes, says in (
        ({"finetune": {**folders.BUDGET, "steps": 9}}, r"finetune\.steps: 1000 -> 9"),
        ({"world": {"seed": 1, "people": 7}}, r"world\.people: .* -> 7"),
    ):
        other = write(tmp_path / "other", 1, **changes)
        with pytest.raises(ConfigError, match=says):
            analysed(tmp_path, one, other)


def test_tuned_rows_may_choose_other_values_in_each_world(tmp_path):
    tune = {"finetune.lr": [0.1, 0.2, 0.3], "on": "dev"}
    budgets = [{**folders.BUDGET, "lr": lr} for lr in tune["finetune.lr"]]
    runs = [write(tmp_path, i, finetune=each, tune=tune) for i, each in enumerate(budgets)]
    assert len(analysed(tmp_path, *runs).rows) == 4


def test_a_difference_that_no_world_changes_is_not_tested(tmp_path):
    runs = [write(tmp_path, seed, {"none": 0.0, "random": 1.0}) for seed in range(3)]
    found = analysed(tmp_path, *runs)
    assert found.notes[0] == "random, triviaqa: the difference is the same in every world"
    assert all("p (Holm)" not in row for row in found.rows)


def test_experiments_that_differ_in_their_world_alone_are_put_together(load, tmp_path):
    """With the settings and keys of a real graph, whose examples differ between worlds."""

    def made(world: int, *overrides: str) -> cell.Run:
        own = (f"world.seed={world}", f"general.seed={world}")
        experiment = load("tasks=[zsre]", *own, *overrides)
        cells = []
        for (row, task, seed), stage in stages.build(experiment).cells.items():
            policy = next(each for each in experiment.policies if each.label == row)
            settings = cell_config(experiment, policy, experiment.tasks[0], seed)
            keys = {each.name: each.key for each in topological([stage])}
            share = (0.5 if row == "random" else 0.1) + world / 100 * (row == "random")
            metrics = Total("exact_match", share, 100 + world, 1)
            cells.append(cell.Result(row, task, seed, "", settings, keys, metrics))
        return cell.Run(tmp_path / str(world), tuple(cells), "none", ("none", "random"))

    (row,) = analysed(tmp_path, *(made(world) for world in range(3))).rows
    assert row["difference"] == pytest.approx(41)
    assert row["p (Holm)"] < stats.LEVEL
    with pytest.raises(ConfigError, match=r"corpus\.words: 100 -> 50"):
        analysed(tmp_path, made(0), made(1, "corpus.words=50"))
    longer = "policies=[none, {name: random, label: long, intermediate: {steps: %d}}, salient-span]"
    with pytest.raises(ConfigError, match=r"intermediate\.steps: 20 -> 40"):
        analysed(tmp_path, made(0, longer % 20), made(1, longer % 40))


def test_the_command_takes_a_folder_for_each_world_and_writes_to_none(done, refused, tmp_path):
    homes = [write(tmp_path, seed).folder for seed in range(3)]
    out, err = done("analyze", "worlds", *homes, "--json", "--store", tmp_path / "store")
    assert "several runs: --out DIR" in err and "written to" not in err
    assert [row["worlds"] for row in json.loads(out)["rows"]] == [3] * 4
    said = refused("analyze", "worlds", homes[0], "--store", tmp_path / "store")
    assert "1 world: a test needs 3" in said


def test_examples_and_seeds_nested_in_worlds_hold_the_level():
    """`python -m benchmarks.simulation worlds` simulates other numbers of worlds."""
    design = Design(3, 1, 1, sizes=SIZES["40 x 3"], noise=0.1)
    found = world_rates(design, 3, 0.05, 400)
    assert found["nested"][0] <= 0.08
    assert found["seeds"][0] > 2 * found["nested"][0]


def test_all_worlds_are_compared_with_the_baseline_of_the_first(tmp_path):
    runs = [write(tmp_path, seed) for seed in range(3)]
    other = [*runs[:2], replace(runs[2], baseline="random")]
    assert analysed(tmp_path, *other).rows == analysed(tmp_path, *runs).rows


def test_a_row_that_the_first_world_lacks_is_named(tmp_path):
    first = {name: share for name, share in SHARES.items() if name != "random"}
    found = analysed(tmp_path, *(write(tmp_path, n, SHARES if n else first) for n in range(3)))
    assert found.notes[0] == "random, triviaqa: has a difference in only 2 of 3 worlds"


def test_the_worlds_of_a_simulated_experiment_are_in_one_batch(monkeypatch):
    monkeypatch.setattr(simulation, "AT_ONCE", 1)
    assert world_rates(Design(2, 1, 1, (1,) * 9), 3, 0.0, 2)["nested"][1] == 0
