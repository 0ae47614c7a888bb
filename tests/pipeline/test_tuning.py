from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from maskpolicy.core.errors import DataError
from maskpolicy.pipeline.graph import nodes
from maskpolicy.pipeline.stages import evaluation, tuned_rows
from maskpolicy.pipeline.stages.params import ChooseParams, TakeParams


def scored(folder, scores):
    """Write scores on dev by candidate, task and seed, as the stage "evaluate" does."""
    inputs = {}
    for c, tasks in enumerate(scores):
        for t, seeds in enumerate(tasks):
            for s, score in enumerate(seeds):
                name = tuned_rows.score_name(c, t, s)
                inputs[name] = folder / name
                inputs[name].mkdir()
                (inputs[name] / evaluation.RESULT).write_text(json.dumps({"score": score}))
    return inputs


@pytest.mark.parametrize(
    ("scores", "best", "means"),
    [
        ([[[0.1, 0.3]], [[0.2, 0.3]]], 1, [0.2, 0.25]),
        ([[[0.5], [0.5]], [[0.9], [0.0]], [[0.2], [0.4]]], 0, [0.5, 0.45, 0.3]),
        ([[[0.1]], [[0.3]], [[0.3]]], 1, [0.1, 0.3, 0.3]),  # the first of equal ones
    ],
)
def test_the_best_mean_over_tasks_and_seeds_is_chosen(tmp_path, scores, best, means):
    inputs = scored(tmp_path, scores)
    params = ChooseParams(candidates=len(scores), tasks=len(scores[0]), seeds=len(scores[0][0]))
    tuned_rows.choose(params, inputs, tmp_path, SimpleNamespace())
    found = json.loads((tmp_path / nodes.FILE).read_text())
    assert (found["candidate"], found["input"]) == (best, f"{nodes.OPTION}{best:03d}")
    assert found["scores"] == pytest.approx(means)
    assert len(found["by_task"][0]) == len(scores[0])


def test_the_cell_of_the_chosen_candidate_is_taken(tmp_path):
    inputs = {name: tmp_path / name for name in ("choice", "option-000", "option-001")}
    for name, folder in inputs.items():
        folder.mkdir()
        for file in (evaluation.RESULT, evaluation.PREDICTIONS):
            (folder / file).write_text(name)
        (folder / "MANIFEST.json").write_text("of the store")
    (inputs["choice"] / nodes.FILE).write_text(json.dumps({"input": "option-001"}))
    (tmp_path / "out").mkdir()
    tuned_rows.take(TakeParams(), inputs, tmp_path / "out", SimpleNamespace())
    found = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert found == dict.fromkeys((evaluation.RESULT, evaluation.PREDICTIONS), "option-001")


def test_a_split_without_examples_has_no_score(tmp_path):
    (tmp_path / "dev.jsonl").touch()
    with pytest.raises(DataError, match="no examples in dev"):
        evaluation.labelled(tmp_path, "dev")
