"""Stages of sentence pairs, of tuned rows and of cloze questions."""

from __future__ import annotations

import json

import numpy as np
import pytest
import text_to_text

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.models.training.specials import Specials
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.stages.cloze_answers import _masked
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
