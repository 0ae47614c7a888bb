"""Statistics of a corpus as stages: shards, workers, passes, and who reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import small

from maskpolicy.core.errors import ConfigError
from maskpolicy.data.corpus import annotation
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, topological
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins.statistics import Statistics

TEXTS = [f"{number}. {text}" for number, text in enumerate(small.TEXTS * 6)]
OWN = """
from collections import Counter
from dataclasses import dataclass

import numpy as np
from maskpolicy import policy


@policy("rarest", target="spans")
@dataclass(frozen=True)
class Rarest:
    \"\"\"Mask the rarest word, which a text of general words has less often.\"\"\"

    most: int = 1
    only_select = ("most",)

    def count(self, passages):
        return Counter(word for passage in passages for word in passage.texts(passage.words))

    def condense(self, statistics, contrast):
        return {key: number / (1 + contrast[key]) for key, number in statistics.items()}

    def select(self, passage, rng, statistics):
        rarest = np.argsort(statistics.numbers(passage.texts(passage.words)), kind="stable")
        return passage.words[np.sort(rarest[: self.most])]
"""
SHORT = {"steps": 2, "batch_size": 4, "precision": "fp32", "max_source": 64, "max_target": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with its tokenizer, a corpus, and a policy of the user's own."""
    folder = tmp_path_factory.mktemp("it")
    small.saved(folder / "bart")
    rows = (json.dumps({"text": text}) + "\n" for text in TEXTS)
    (folder / "text.jsonl").write_text("".join(rows))
    (folder / "general.txt").write_text("The town is a town.\n\nBoats go down the river.")
    (folder / "own.py").write_text(OWN)
    return folder


def plan(folder: Path, *policies: Any, mb: float = 0, store: str = "store", **more: Any):
    """Return the intermediate stage of the first row, and the store."""
    settings = {
        "corpus": {"files": [str(folder / "text.jsonl")], "words": 12, "shard_mb": mb},
        "plugins": [str(folder / "own.py")],
        "intermediate": SHORT,
        "fit": {"steps": 0},
    }
    made = small.without_tasks(folder, *policies, **settings | more)
    artifacts = Store(folder / store)
    graph = stages.build(made, artifacts.hash_file, artifacts.cut_file)
    return graph.pretrained[made.policies[0].label, 0], artifacts


def run(stage: Stage, store: Store, **more: Any) -> Path:
    outcomes = execute([stage], store, **more)
    assert [each.error for each in outcomes.values() if each.error] == []
    return store.path(stage.key)


def contents(path: Path) -> dict[str, bytes]:
    kept = (each for each in path.iterdir() if each.name != "MANIFEST.json")
    return {each.name: each.read_bytes() for each in kept}


RATES = {"name": "informask-rates", "label": "rates"}
PMI = {"name": "pmi", "label": "pmi", "min_count": 6, "entries": 8}


def test_shards_and_processes_change_no_byte(folder, monkeypatch):
    monkeypatch.setattr(annotation, "BATCH", 4)
    monkeypatch.setattr("maskpolicy.data.corpus.shards.BATCH", 4)
    found = []
    for name, mb, workers in (("one", 0, 1), ("many", 0.0008, 1), ("two", 0.002, 2)):
        trained, store = plan(folder, PMI, mb=mb, store=name)
        condensed = trained.inputs["annotate"].inputs["statistics"]
        counted = condensed.inputs["count"]
        shards = [each for each in counted.inputs.values() if each.kind == "count-shard"]
        assert len(shards) == len([s for s in counted.inputs if s.startswith("shard-")])
        assert bool(mb) == (len(shards) > 2)
        outcomes = execute([condensed], store, targets=[counted, condensed], workers=workers)
        assert [each.error for each in outcomes.values() if each.error] == []
        found.append((contents(store.path(counted.key)), contents(store.path(condensed.key))))
        assert not any(store.has(each.key) for each in shards)  # transient
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]["hashes.u64"]) > 0


def test_select_of_an_own_policy_gets_statistics_of_both_corpora(folder):
    general = {"files": [str(folder / "general.txt")], "words": 5}
    trained, store = plan(folder, "rarest", contrast_corpus=general)
    run(trained, store)
    statistics = Statistics.open(store.path(trained.inputs["statistics"].key))
    assert "annotate" not in trained.inputs
    words = " ".join(TEXTS).split().count("town")
    assert statistics["town"] == words / (1 + 2)
    assert statistics["mill"] == 12.0 and statistics["absent"] == 0
    other, _ = plan(folder, {"name": "rarest", "label": "it", "most": 2}, contrast_corpus=general)
    assert other.key != trained.key
    assert other.inputs["statistics"].key == trained.inputs["statistics"].key  # only_select
    shorter = {**general, "words": 3}
    changed, _ = plan(folder, "rarest", contrast_corpus=shorter)
    assert changed.inputs["statistics"].key != trained.inputs["statistics"].key
    assert changed.inputs["corpus"].key == trained.inputs["corpus"].key


def test_a_model_built_from_scratch_has_general_text():
    keys = {"model": "mini", "corpus": "world", "tasks": [], "policies": ["difference-masking"]}
    made = make_experiment({**keys, "baseline": "difference-masking"}, "it", "", (), needs=())
    trained = stages.build(made).pretrained["difference-masking", 0]
    condensed = trained.inputs["annotate"].inputs["fit"].inputs["statistics"]
    other = condensed.inputs["contrast"].inputs["corpus"]
    assert other.label == "general"
    (general,) = [each for each in topological([trained]) if each.kind == "general"]
    assert other.key == general.inputs["corpus"].key


def test_fields_that_count_reads_follow_no_schedule(folder):
    with pytest.raises(ConfigError, match=r"policies\[0\].ratio"):
        plan(folder, {**RATES, "ratio": {"start": 0.3, "end": 0.1}})
    plan(folder, {**PMI, "ratio": {"start": 0.3, "end": 0.1}})
