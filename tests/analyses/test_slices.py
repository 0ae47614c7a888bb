"""Scores of a task by the slices of its examples."""

from __future__ import annotations

import json
import statistics

import folders
import pytest

SHARES = {"none": 0.3, "random": 0.7}


@pytest.fixture
def run(tmp_path):
    """Return a run whose examples have a field, a part of them a term, and a name of their own."""
    folder = folders.write(tmp_path / "run", SHARES, ("zsre", "triviaqa"), seeds=2)
    for path in (folder / "predictions").glob("*zsre*"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for number, row in enumerate(rows):
            row["slices"] = {"field": f"field {number % 2}", "name": str(number)}
            row["slices"] |= {"term": "island"} if number < 10 else {}
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def scores(run, policy, seed, wanted):
    path = run / "predictions" / f"{policy}--zsre--{seed}.jsonl"
    rows = enumerate(map(json.loads, path.read_text().splitlines()))
    return [100 * row["score"] for number, row in rows if wanted(number)]


def test_each_slice_has_a_mean_over_its_examples_and_seeds(call, run):
    code, out, err = call("analyze", "slices", run, "--store", run / "store", "--json")
    assert code == 0, err
    document = json.loads(out)
    found = {(row["slice"], row["value"], row["policy"]): row for row in document["rows"]}
    assert {key[:2] for key in found} == {
        *(("field", "field 0"), ("field", "field 1"), ("term", "island"))
    }
    wanted = {
        ("field", "field 1"): lambda number: number % 2,
        ("term", "island"): lambda number: number < 10,
    }
    for (name, value), holds in wanted.items():
        for policy in SHARES:
            means = [statistics.fmean(scores(run, policy, seed, holds)) for seed in (0, 1)]
            row = found[name, value, policy]
            assert row["score"] == pytest.approx(statistics.fmean(means))
            assert row["std"] == pytest.approx(statistics.stdev(means))
            assert (row["examples"], row["seeds"]) == (30 if name == "field" else 10, 2)
    titles = [plot["title"] for plot in document["plots"]]
    assert titles == ["zsre: score (%) by field", "zsre: score (%) by term"]
    call("analyze", "slices", run, "--store", run / "store")
    assert (run / "analyses" / "slices" / "slices.svg").is_file()


def test_a_metric_that_is_no_mean_over_examples_has_no_slices(refused, run):
    metrics = {"score": 0.1, "mean": 0.5, "parts": {}}
    folders.change(run, "*", metrics=metrics)
    said = refused("analyze", "slices", run, "--store", run / "store")
    assert "no task has slices and a metric that is a mean over examples" in said
