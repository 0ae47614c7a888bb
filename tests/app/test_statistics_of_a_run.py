"""Policies that read statistics of the corpus, in run, show, analyze and pretrain."""

import json
from pathlib import Path

import folders
import pytest
import small
from pages import DOCS, blocks

from maskpolicy.pipeline.store.artifacts import Store

TEXT = "Anna Kovar was born in Rome. Lindau is a town on the Oder."
YAML = """
model: {folder}/bart
corpus: {{files: [{folder}/it.txt], words: 12}}
contrast_corpus: {{files: [{folder}/general.txt], words: 12}}
data: world
policies:
  - none
  - {{name: pmi, min_count: 3, entries: 20}}
  - {{name: rare-word, ratio: 0.2}}
  - {{name: mixture, label: both, members: [rare-word, difference-masking]}}
tasks: [zsre]
plugins: [{folder}/rare.py]
world: {{people: 12, general_people: 6}}
fit: {{steps: 0}}
intermediate: {{steps: 2, batch_size: 4, precision: fp32}}
finetune: {{steps: 1, precision: fp32}}
"""
[RARE] = [b.text for b in blocks(DOCS / "development" / "extending.md") if b.file == "rare.py"]
# another name than on the page, whose own test may have registered that in this process
RARE = RARE.replace('"rare"', '"rare-word"')


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A small model, two corpora, an own policy, and the run of all, with its store."""
    folder = tmp_path_factory.mktemp("made")
    small.saved(folder / "bart")
    texts = [f"{text} Number {number}." for number in range(4) for text in small.TEXTS]
    (folder / "it.txt").write_text("\n\n".join(texts))
    (folder / "general.txt").write_text("Boats go down the river.\n\nIt rained in the town.")
    (folder / "rare.py").write_text(RARE)
    return folders.run_experiment(folder, YAML.format(folder=folder))


def test_a_run_gives_the_statistics_of_its_corpus(done, folder):
    finished = folder / "run"
    home = ("--store", folder / "store", "--plugin", folder / "rare.py")

    def shown(name, *more):
        out, _ = done("show", name, "--run", finished, "--text", TEXT, "--json", *home, *more)
        return [part for _, _, part in json.loads(out)["spans"]]

    assert shown("pmi", "policy.ratio=1.0")
    rare = shown("rare-word", "policy.ratio=0.2")  # 15 words; these occur in no text
    assert len(rare) == 3 and set(rare) <= set(TEXT.replace(".", " .").split())
    assert shown("both", "--seed", 1)
    configs = [json.loads(path.read_text())["config"] for path in finished.glob("results/*.json")]
    assert sum("contrast_corpus" in config for config in configs) == 1  # of the row that reads it
    out, _ = done("analyze", "coverage", finished, *home)
    assert "rare" in out and "pmi" in out and "both" in out


def test_pretrain_counts_first_and_takes_general_text(done, folder, tmp_path):
    words = ("pretrain", "--model", folder / "bart", "--corpus", folder / "it.txt")
    words += ("intermediate.steps=1", "intermediate.batch_size=2", "--store", tmp_path / "store")
    pmi = ("--policy", "pmi", "policy.min_count=3", "--out", tmp_path / "pmi")
    other = ("--policy", "difference-masking", "--out", tmp_path / "other")
    for more in (pmi, (*other, f"contrast_corpus={{files: [{folder}/general.txt]}}")):
        done(*words, *more)
    assert all((tmp_path / name / "model.safetensors").is_file() for name in ("pmi", "other"))
    kinds = [each["record"]["kind"] for each in Store(tmp_path / "store").records()]
    assert kinds.count("count") > 2 and kinds.count("corpus") == 2  # the general text is another
