"""An entry to BabyLM is scored by its pipeline's rules as the run scored it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import babylm
import pytest

from maskpolicy.app.commands import app
from maskpolicy.leaderboard.results.cell import read_run

YAML = """
model: {kind: encoder, name: mini, head: own}
corpus: {files: ['train_10M/*.train'], words: 10}
data: evaluation_data/fast_eval
policies: [random]
tasks: [blimp, blimp-supplement, ewok]
baseline: random
general: {steps: 0}
intermediate: {epochs: 1, warmup: 1, batch_size: 4}
finetune: {steps: 2, warmup: 1, batch_size: 4}
checkpoint_words: [50]
"""
FULL = (
    *("data=evaluation_data/full_eval", "tasks=[blimp, boolq, mnli]", "checkpoint_words=[]"),
    *("--out", "full"),
)
ROW = ("--row", "random", "--store", "store", "--name", "my-babylm")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with data of BabyLM and the runs fast and full."""
    folder = babylm.slice_into(tmp_path_factory.mktemp("babylm"))
    (folder / "it.yaml").write_text(YAML)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (("--out", "fast"), FULL):
            assert not app(["run", "it.yaml", "--store", "store", *words], standalone_mode=False)
    return folder


@pytest.fixture
def entry(home, call, monkeypatch):
    """Return the JSON of an entry, and the folder of the pipeline's results."""
    monkeypatch.chdir(home)
    code, out, err = call("submission", "fast", "full", *ROW)
    assert code == 0, err
    path = home / "results/my-babylm/all_full_preds_and_fast_scores_mlm.json"
    assert f"written to {path.relative_to(home)}" in out
    missing = "blimp_supplement, ewok, entity_tracking, wug_adj, wug_past, comps, reading, aoa"
    assert f"not in it: {missing}" in err
    return json.loads(path.read_text()), path.parent


def rows(path: Path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def right(predictions, path, key):
    """Return the share of predictions that the pipeline counts, as calculate_results_from_pred.

    Pairs of two equal sentences, which the run leaves out, are right, and not in the share.
    """
    pairs = [*zip(predictions["predictions"], rows(path), strict=True)]
    hits = [one["pred"] == data[key] for one, data in pairs]
    equal = [data.get("sentence_bad") == babylm.EQUAL for _, data in pairs]
    assert all(hit for hit, same in zip(hits, equal, strict=True) if same)
    return fmean(hit for hit, same in zip(hits, equal, strict=True) if not same)


def scores(folder):
    return {one.task: one.metrics.score for one in read_run(folder).results}


def test_the_last_model_is_scored_as_in_the_run(entry, home):
    found, place = entry
    data, known = home / "evaluation_data/full_eval", scores(home / "full")
    blimp = found["blimp"]
    assert blimp == json.loads(
        (place / "main/zero_shot/mlm/blimp/blimp_filtered/predictions.json").read_text()
    )
    shares = [
        right(blimp[name], data / f"blimp_filtered/{name}.jsonl", "sentence_good")
        for name in babylm.PARADIGMS
    ]
    assert fmean(shares) == pytest.approx(known["blimp"])
    for task in ("boolq", "mnli"):
        own = json.loads((place / f"main/finetune/{task}/predictions.json").read_text())
        assert own == {task: found["glue"][task]}
        assert own[task]["predictions"][1]["id"] == f"{task}_1"
        share = right(own[task], data / f"glue_filtered/{task}.valid.jsonl", "label")
        assert share == pytest.approx(known[task])


def test_checkpoints_are_scored_on_the_fast_sets(entry, home):
    found, place = entry
    revisions = sorted(path.name for path in place.iterdir() if path.name.startswith("chck_"))
    assert revisions[0] == "chck_0.00005M" and len(revisions) == 2
    fast = found["fast_eval_results"]
    assert fast.keys() == {"blimp", "blimp_supplement", "ewok"}
    run, last = read_run(home / "fast"), scores(home / "fast")
    early = {one.task: one.metrics.score for one in run.early}
    means = [fmean(scored.values()) for scored in fast["blimp_supplement"]]
    assert means == pytest.approx([early["blimp-supplement"], last["blimp-supplement"]])
    means = [fmean(scored.values()) for scored in fast["blimp"]]  # one of five pairs is equal
    assert means == pytest.approx([0.8 * early["blimp"] + 0.2, 0.8 * last["blimp"] + 0.2])
    path = place / revisions[0] / "zero_shot/mlm/ewok/ewok_fast/predictions.json"
    share = right(
        json.loads(path.read_text())["spatial-relations"],
        home / "evaluation_data/fast_eval/ewok_fast/spatial-relations.jsonl",
        "Target1",
    )
    assert share == pytest.approx(early["ewok"]) == fast["ewok"][0]["spatial-relations"]


def test_what_is_no_entry_is_one_line(refused, home, monkeypatch):
    monkeypatch.chdir(home)
    words = ("--store", "store", "--name", "my-babylm")
    assert "did you mean" in refused("submission", "full", "--row", "rondom", *words)
    assert "--name a/b: name a folder" in refused("submission", "full", *ROW[:4], "--name", "a/b")


@pytest.mark.parametrize("name", ["masking", "small"])
def test_the_shipped_experiments_are_planned(call, home, monkeypatch, name):
    monkeypatch.chdir(home)
    keys = ("intermediate.batch_size=4", *(["checkpoint_words=[50]"] if name == "small" else []))
    code, out, err = call("plan", f"babylm/{name}", *keys, "--store", "planned")
    assert code == 0, err
    assert "seeds find" in out and "to do" in out
