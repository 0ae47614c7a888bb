"""Analyses of encoders over intermediate runs: each row has three."""

import statistics
from itertools import product

import pytest

from maskpolicy.analyses import over_runs
from maskpolicy.analyses.builtin.rank import Rank
from maskpolicy.analyses.representations import pretrained_models
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.pipeline.store.artifacts import Store

pytestmark = pytest.mark.slow
ROWS = ["MLM", "MAE-LM", "delta 1"]
EXPERIMENT = """
model: {kind: encoder, name: mini, layers: 1, decoder_layers: 1}
corpus: world
policies:
  - none
  - {name: random, label: MLM}
  - {name: random, label: MAE-LM, mask_exclusion: 1.0}
  - {name: random, label: delta 1, mask_exclusion: 0.0, shallow_decoder: true}
tasks: [cola]
seeds: [0, 1, 2]
intermediate_seeds: 3
general_seeds: 1
baseline: MLM
world: {people: 12, general_people: 6}
general: {steps: 0}
intermediate: {steps: 4, batch_size: 8, warmup: 1}
checkpoint_steps: [2]
finetune: {steps: 2, batch_size: 4, warmup: 1}
"""


def numbers(found: dict, policy: str, **wanted) -> dict[int, float]:
    """Return the value of each intermediate run of a row."""
    return {
        each["stage"]: each["value"]
        for each in found["values"]
        if {**wanted, "policy": policy}.items() <= each.items()
    }


def test_probes_of_each_model_are_means_over_runs_with_differences_paired_by_run(analyse, home):
    models = pretrained_models(read_run(home / "run"))
    stages = [(row, stage, steps) for row in ROWS for stage in range(3) for steps in (2, 4)]
    found = [(one.policy, one.stage, one.steps) for one in models]
    assert found == [("none", 0, 0), *stages]
    found = analyse("probe")
    assert {row["layer"] for row in found["rows"]} == {1}
    rows = {(row["policy"], row["steps"], row["probe"]): row for row in found["rows"]}
    probes = {probe for _, _, probe in rows}
    assert {"person", "relation"} <= probes
    for (policy, steps, probe), row in rows.items():
        mine = numbers(found, policy, steps=steps, probe=probe)
        assert row["runs"] == len(mine) == (1 if policy == "none" else 3)
        assert row["accuracy"] == pytest.approx(statistics.fmean(mine.values()))
        base = numbers(found, "MLM", steps=steps, probe=probe)
        if policy in ("none", "MLM") or steps < 4:
            assert row["difference"] is None
            continue
        pairs = over_runs.paired(mine, base)
        assert row["difference"] == pytest.approx(statistics.fmean(pairs))
        ends = (row["difference low"], row["difference high"])
        assert ends == (None, None) or ends == pytest.approx(over_runs.interval(pairs))
    (panel,) = found["plots"]
    assert panel["names"] == ["none", *ROWS]


def test_the_slope_over_delta_is_that_of_each_run(analyse):
    found = analyse("returned-masks", "probes=true")
    rows = {(row["task"], row["delta"]): row for row in found["rows"]}
    slopes = numbers(found, "random", task="probe person")
    row = rows["probe person", "slope"]
    assert (row["runs"], row["score"]) == (3, pytest.approx(statistics.fmean(slopes.values())))
    ends = rows["probe person", 1.0]["score"] - rows["probe person", 0.0]["score"]
    assert row["score"] == pytest.approx(ends)  # of two deltas that are 1 apart
    assert ("cola", "slope") in rows
    plain = analyse("returned-masks")
    assert {row["task"] for row in plain["rows"]} == {"cola"}


def test_ranks_are_means_over_runs(analyse, home):
    """test_ranks.py has the tests of rises and gaps, and the figures."""
    found = analyse("rank", "passages=15", "over_runs=true")
    plain = Rank(passages=15).analyse([read_run(home / "run")], Store(home / "store"))
    assert list(plain.values) == found["values"]
    rows = {
        (row["policy"], row["set"], row["layer"]): row
        for row in found["rows"]
        if (row["tau"], row["centred"]) == (0.99, False)
    }
    differ = set()
    for policy, layer, tokens in product(ROWS, (0, 1), ("mask", "real_without")):
        ranks = [
            row[tokens]
            for row in plain.rows
            if row["model"] in {f"{policy}, run {stage}" for stage in range(3)}
            and (row["tau"], row["centred"], row["layer"]) == (0.99, False, layer)
        ]
        row = rows[policy, tokens, layer]
        assert (row["runs"], row["mean"]) == (3, pytest.approx(statistics.fmean(ranks)))
        differ.add(len(set(ranks)) > 1)
    assert True in differ  # so that a mean is no value of a single run


def test_figure_3_pairs_rows_by_run_after_as_many_steps(analyse, home):
    found = analyse("figure3", "probes=true")
    rows = {(row["policy"], row["task"], row["steps"]): row for row in found["rows"]}
    tasks = {task for _, task, _ in rows}
    assert {"cola", "probe person"} <= tasks
    assert {(policy, steps) for policy, _, steps in rows} == {
        (policy, steps) for policy in ROWS for steps in (0, 2, 4)
    }
    for (policy, task, steps), row in rows.items():
        mine = numbers(found, policy, task=task, steps=steps)
        assert row["score"] == pytest.approx(statistics.fmean(mine.values()))
        if policy == "MLM" or not steps:
            assert row["difference"] is None
        else:
            base = numbers(found, "MLM", task=task, steps=steps)
            pairs = over_runs.paired(mine, base)
            assert len(pairs) == 3
            assert row["difference"] == pytest.approx(statistics.fmean(pairs))
    probed = numbers(analyse("probe"), "MAE-LM", probe="person", steps=2)
    assert numbers(found, "MAE-LM", task="probe person", steps=2) == probed
    scores = {one.seed: one.percent for one in read_run(home / "run").early if one.policy == "MLM"}
    assert numbers(found, "MLM", task="cola", steps=2) == scores
    panel = next(panel for panel in found["plots"] if panel["title"] == "probe person")
    assert [series["label"] for series in panel["series"]] == ROWS
    assert all(series["x"] == [0.0, 2.0, 4.0] for series in panel["series"])
    over = analyse("figure3", "over=tokens")
    assert all(series["x"][0] == 0.0 for panel in over["plots"] for series in panel["series"])


def test_shares_and_slopes_have_intervals_over_intermediate_runs(analyse):
    tags = analyse("pos", "every=true")
    frequency = analyse("frequency", "every=true", "least=1", "resamples=20")
    shares = {row["policy"]: row["share"] for row in tags["rows"] if row["tag"] == "NOUN"}
    slopes = {row["policy"]: row["slope"] for row in frequency["rows"]}
    for found, numbers, name in ((tags, shares, "share"), (frequency, slopes, "slope")):
        own = [numbers[f"MLM, run {run}"] for run in range(3)]
        rows = [row for row in found["rows"] if row["policy"] == "MLM, mean of 3 runs"]
        row = next(row for row in rows if row.get("tag") in (None, "NOUN"))
        assert row[name] == pytest.approx(statistics.fmean(own))
        assert (row["low"], row["high"]) == pytest.approx(over_runs.interval(own))
        assert len(set(own)) == 3
        assert len(found["plots"][0]["series"]) == 4  # the corpus and three rows
