"""Stages of sentence pairs, of tuned rows and of cloze questions."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import small
import text_to_text

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.models.training.specials import Specials
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph import nodes
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.stages import evaluation, tuned_rows
from maskpolicy.pipeline.stages.cloze_answers import _masked
from maskpolicy.pipeline.stages.params import ChooseParams, TakeParams
from maskpolicy.pipeline.store.artifacts import Store

YAML = """
model: {kind: encoder, name: mini, head: own}
corpus: world
data: data
policies: [none, random, {name: random, ratio: 0.4}]
tasks: [pairs]
seeds: [0, 1]
world: {people: 8, general_people: 6}
general: {steps: 2, warmup: 1, batch_size: 4}
intermediate: {steps: 4, warmup: 1, batch_size: 4}
checkpoint_steps: [2]
"""


@pytest.fixture
def build(tmp_path):
    """Return a function that builds the experiment's graph with changed keys."""
    path, data = tmp_path / "it.yaml", tmp_path / "data"
    path.write_text(YAML)
    data.mkdir()
    (data / "pairs.csv").write_text("good,bad\nAda was born.,Ada were born.\nIt is,It are\n")
    return lambda *changes: stages.build(load_experiment(path, changes))


def evaluations(graph):
    return {cell: stage.key for cell, stage in (graph.cells | graph.early).items()}


def test_nothing_is_fine_tuned_and_each_model_answers_once(build):
    graph = build()
    kinds = {stage.kind for stage in topological(list(graph.targets))}
    assert kinds.isdisjoint({"finetune", "train-examples", "majority", "audit"})
    found = evaluations(graph)
    assert len(found) == 2 * (3 + 2)
    assert len(set(found.values())) == 3 + 2  # both seeds share the intermediate run
    assert evaluations(build("finetune.steps=7", "finetune.lr=0.1")) == found
    other = evaluations(build("tasks=[{name: pairs, choose: within_word_l2r}]"))
    assert set(other.values()).isdisjoint(found.values())


@pytest.mark.parametrize(
    "model", ["{kind: encoder, name: mini, head: own}", "{kind: seq2seq, name: mini}"]
)
def test_either_kind_of_model_answers(build, tmp_path, model):
    graph, store = build(f"model={model}", "seeds=[0]"), Store(tmp_path / "store")
    outcomes = execute(graph.targets, store, targets=graph.targets)
    assert [outcome.error for outcome in outcomes.values() if outcome.error] == []
    for stage in graph.cells.values():
        folder = store.get(stage.key).path
        rows = (folder / "predictions.jsonl").read_text().splitlines()
        score = json.loads((folder / "result.json").read_text())["score"]
        right = [json.loads(row)["prediction"] == json.loads(row)["targets"][0] for row in rows]
        assert score == sum(right) / 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["model.head=auto"], "row none has with model.head: own"),
        (["policies=[none, {name: random, mask_exclusion: 1.0}]"], "exclusion=1.0 drops the one"),
        (["tasks=[{name: pairs, choose: enc_dec_mask}]"], "choose pll or within_word_l2r"),
        (["tasks=[{name: pairs, metrics: [matthews]}]"], "this task has pairs: name another"),
        (["data=world"], "the embedded world has no files of task 'pairs'"),
    ],
)
def test_what_cannot_be_scored_is_one_line(build, changes, said):
    with pytest.raises(ConfigError, match=rf"tasks.*: .*{said}|tasks.*{said}"):
        build(*changes)


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


def test_the_cell_of_the_chosen_candidate_is_copied(tmp_path):
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


TEXTS = ["Anna Kovar was born in <mask>.", "Boats go down the <mask> in 1901."]
VALUES = ["Rome", "river Oder"]


@pytest.mark.parametrize("name", ["bart", "t5", "mbart"])
def test_the_value_is_masked_by_one_mark(name):
    tokenizer = text_to_text.tokenizer(name)
    marks = Specials.of(tokenizer).marks
    sources, longest = _masked(TEXTS, VALUES, tokenizer, marks)
    whole = [text.replace("<mask>", value) for text, value in zip(TEXTS, VALUES, strict=True)]
    for source, text in zip(sources, whole, strict=True):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        (at,) = np.flatnonzero(source == marks.mask)
        rest = len(source) - at - 1
        assert source[:at].tolist() == ids[:at]
        assert source[at + 1 :].tolist() == ids[len(ids) - rest :]
        hidden = tokenizer.decode(ids[at : len(ids) - rest]).strip()
        assert hidden in VALUES
    assert longest == max(
        len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in whole
    )


def test_the_name_of_a_mask_is_ordinary_text():
    from maskpolicy.models.training.steps import tokenize

    tokenizer = small.tokenizer()
    assert tokenizer.mask_token_id not in tokenize(["born in <mask>."], tokenizer)[0]
