"""Policies that learn from labels, in experiments: stages, keys, both kinds of models, refusals."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import small
import yaml

from maskpolicy.app import own_text
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.ragged import load
from maskpolicy.data.world import make, write
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.store.artifacts import Store

POLICIES = ("selective-masking", "typhoon", "ke-mlm")
COLUMNS = {"selective-masking": "important", "typhoon": "chances", "ke-mlm": "telling"}
SHORT = {"batch_size": 4, "precision": "fp32"}
BUDGETS = {
    "fit": {"steps": 6, "eval_every": 3, **SHORT},
    "intermediate": {"steps": 2, **SHORT},
    "finetune": {"steps": 4, "lr": 1e-3, **SHORT},
}
GIVEN = {"selective-masking": {"texts": 12, "hidden": 8, "threshold": 0.5}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Both kinds of models, and a world of tasks."""
    folder = tmp_path_factory.mktemp("made")
    for name, model in (("encoder", small.roberta(initializer_range=0.3)), ("bart", small.bart())):
        model.save_pretrained(folder / name)
        small.tokenizer().save_pretrained(folder / name)
    write(make({"people": 12, "general_people": 6, "kinds": ["people"]}), folder / "world")
    return folder


@pytest.fixture
def experiment(made, tmp_path):
    """Return a function that loads an experiment with rows that learn on `train_on`."""

    def experiment(kind="encoder", train_on=("cola",), names=POLICIES, **keys):
        rows = [
            {"name": name, "label": name, "train_on": list(train_on), **GIVEN.get(name, {})}
            for name in names
        ]
        given = {
            "model": {
                "name": str(made / kind),
                "kind": "encoder" if kind == "encoder" else "seq2seq",
            },
            "corpus": {"name": "world", "words": 30},
            "data": str(made / "world" / "tasks"),
            "policies": ["none", *rows],
            "tasks": ["cola" if kind == "encoder" else "zsre"],
            "world": {"people": 12, "general_people": 6},
            **BUDGETS,
            **keys,
        }
        path = tmp_path / "it.yaml"
        path.write_text(yaml.safe_dump(given))
        return load_experiment(path)

    return experiment


def computed(experiment, folder, kinds=("intermediate",)):
    """Compute all stages of `kinds`; return them by label, and the store."""
    order, store = topological(stages.build(experiment).stages), Store(folder)
    wanted = [stage for stage in order if stage.kind in kinds]
    outcomes = execute(order, store, targets=wanted)
    assert [one.error for one in outcomes.values() if one.error] == []
    return {stage.label: stage for stage in wanted}, store


def content(store, stage):
    folder = store.path(stage.key)
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.name != "MANIFEST.json"
    }


@pytest.mark.parametrize("kind", ["encoder", "bart"])
def test_every_policy_runs_with_either_kind_of_model(experiment, tmp_path, kind):
    found, store = computed(experiment(kind), tmp_path / "store")
    for name in POLICIES:
        annotate = found[f"{name}, run 0"].inputs["annotate"]
        fit = annotate.inputs["fit"]
        assert ("classifier" in fit.inputs) == (name != "ke-mlm")
        report = json.loads(content(store, fit)["report.json"])
        assert report["dev"] is None
        assert report["contexts"]["cola"]["train"]["labels"].keys() == {"0", "1"}
        column = load(store.path(annotate.key) / "passages.safetensors")[COLUMNS[name]]
        assert column.lengths.sum() > 0
        work = json.loads(content(store, found[f"{name}, run 0"])["work.json"])
        assert work["hidden_tokens"] > 0


def test_labels_of_the_test_split_change_neither_key_nor_bytes(experiment, made, tmp_path):
    before, store = computed(experiment(), tmp_path / "store", ("fit",))
    judges = {fit.inputs["classifier"].key for fit in before.values() if "classifier" in fit.inputs}
    assert len(judges) == 1  # rows of one task share the classifier
    folder = shutil.copytree(made / "world" / "tasks", tmp_path / "tasks")
    test = folder / "CoLA" / "dev.tsv"  # serves as test
    test.write_text(test.read_text().replace("\t0\t*", "\t1\t"))
    after, other = computed(experiment(data=str(folder)), tmp_path / "other", ("fit",))
    for label, stage in before.items():
        assert after[label].key == stage.key
        assert content(other, after[label]) == content(store, stage)
    train = folder / "CoLA" / "train.tsv"
    train.write_text(train.read_text().replace("\t0\t*", "\t1\t", 1))
    changed = topological(stages.build(experiment(data=str(folder))).stages)
    keys = {stage.label: stage.key for stage in changed if stage.kind == "fit"}
    assert all(keys[label] != stage.key for label, stage in before.items())


def test_a_pair_of_texts_is_learnt_from(experiment, made, tmp_path):
    folder = shutil.copytree(made / "world" / "tasks", tmp_path / "tasks")
    (folder / "MRPC").mkdir()
    for split, count in (("train", 24), ("dev", 6)):
        ends = ["floats", "sank"] * (count // 2)
        rows = [
            f"{i % 2}\t1\t2\tBoat {split} {i} goes down.\tThe boat {split} {i} {end}."
            for i, end in enumerate(ends)
        ]
        head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        (folder / "MRPC" / f"{split}.tsv").write_text("\n".join([head, *rows, ""]))
    for kind in ("encoder", "bart"):
        loaded = experiment(kind, ("mrpc",), data=str(folder))
        found, store = computed(loaded, tmp_path / kind, ("fit",))
        words = json.loads(content(store, found["ke-mlm, run 0"])["words.json"])
        assert next(iter(words["mrpc"]["1"])) == "sank"
        chances = np.load(store.path(found["typhoon, run 0"].key) / "chances.npy")
        second = small.tokenizer()("boat sank.", add_special_tokens=False).input_ids
        assert (chances[second] > 0).all()
        assert (chances[small.tokenizer().all_special_ids] == 0).all()


def test_numbers_in_place_of_labels_are_one_line(experiment, made, tmp_path, monkeypatch):
    folder = shutil.copytree(made / "world" / "tasks", tmp_path / "tasks")
    (folder / "STS-B").mkdir()
    for split in ("train", "dev"):
        rows = "\n".join(f"Boat {split} {i}.\tA boat.\t{i / 2}" for i in range(8))
        (folder / "STS-B" / f"{split}.tsv").write_text(f"sentence1\tsentence2\tscore\n{rows}\n")
    loaded = experiment(names=["ke-mlm"], train_on=["stsb"], data=str(folder))
    order = topological(stages.build(loaded).stages)
    wanted = [stage for stage in order if stage.kind == "contexts"]
    outcomes = execute(order, Store(tmp_path / "store"), targets=wanted)
    (error,) = {one.error for one in outcomes.values() if one.error}
    assert "task 'stsb' has numbers, no labels: a policy cannot learn from it" in error


def test_pretrain_sets_the_budget_of_the_classifier():
    typhoon = {"name": "typhoon", "train_on": ["cola"]}
    given = {"data": "world", "finetune": {"steps": 5}, "model": {"kind": "encoder"}}
    assert own_text.experiment("mini", ["world"], typhoon, dict(given)).finetune.steps == 5
    with pytest.raises(ConfigError, match="finetune: cannot be set here"):
        own_text.experiment("mini", ["world"], {"name": "random"}, {"finetune": {"steps": 5}})
