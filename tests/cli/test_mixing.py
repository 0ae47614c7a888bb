"""A run whose rows read texts of their own, from the corpus to the board and its analyses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskpolicy.cli import app
from maskpolicy.corpus import mixing
from maskpolicy.corpus.passages import INDEX_FILE, Passages
from maskpolicy.findings import masked_sample
from maskpolicy.findings.masked_sample import Sampling
from maskpolicy.results.cell import read_run
from maskpolicy.store.artifacts import Store

ROWS = """
model: mini
corpus: world
policies:
  - none
  - original
  - {name: original, label: rehearsal, corpus: {mix: {general: 0.2, situations: 0.1}}}
  - {name: salient-span, label: wiki, corpus: {mix: {wiki: {files: [wiki.txt], share: 0.3}}}}
  - {name: pmi, min_count: 2, label: pmi, corpus: {files: [wiki.txt]}}
tasks: [zsre]
world: {people: 8, general_people: 12, entries: 6, situations: 0.3}
general: {steps: 2, batch_size: 4, warmup: 1}
intermediate: {steps: 3, batch_size: 4, warmup: 1}
finetune: {steps: 2, batch_size: 4, warmup: 1}
"""
WIKI = "The mill of Lindau burnt in 1934. It was built again by Karl Berg in 1936.\n\n" * 5


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with a run: run/ and store/."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "it.yaml").write_text(ROWS)
    (folder / "wiki.txt").write_text(WIKI)
    words = ["run", folder / "it.yaml", "--out", folder / "run", "--store", folder / "store"]
    assert not app([str(word) for word in words], standalone_mode=False)
    return folder


def analysed(call, home, name, *keys):
    words = ("analyze", name, home / "run", *keys, "--store", home / "store", "--json")
    code, out, err = call(*words)
    assert code == 0, err
    return json.loads(out)


@pytest.mark.slow
def test_each_row_is_sampled_from_the_text_that_it_trained_on(home):
    store, run = Store(home / "store"), read_run(home / "run")
    found, notes, missing = masked_sample.samples([run], Sampling(passages=500), store)
    assert (notes, missing) == ([], False)
    texts = {}
    for each in found:
        ids = [each.passages[place].id for place in each.places.tolist()]
        names = [one.split("/")[0] if "/" in one else "" for one in ids]
        texts[each.row.label] = {name: names.count(name) / len(names) for name in sorted({*names})}
    assert texts["original"] == {"": 1.0}
    assert texts["rehearsal"] == pytest.approx(
        {"": 0.7, "general": 0.2, "situations": 0.1}, abs=0.02
    )
    assert texts["wiki"] == pytest.approx({"": 0.7, "wiki": 0.3}, abs=0.02)
    pmi = next(one for one in found if one.row.params.policy == "pmi")
    assert len(pmi.passages) == 5


@pytest.mark.slow
def test_analyses_take_each_row_with_its_own_text(call, home):
    pairs = {(row["policy"], row["other"]) for row in analysed(call, home, "overlap")["rows"]}
    assert not any({"rehearsal", "wiki"} & {*pair} for pair in pairs if len({*pair}) > 1)
    rows = analysed(call, home, "coverage")["rows"]
    assert {"original", "rehearsal", "wiki"} <= {row["policy"] for row in rows}
    known = {
        row["policy"]: row for row in analysed(call, home, "forgetting", "passages=16")["rows"]
    }
    assert known["original"]["before"] == known["rehearsal"]["before"]
    assert known["original"]["after"] != known["rehearsal"]["after"]
    assert analysed(call, home, "frequency")["rows"]
    said = analysed(call, home, "rank", "passages=8")["notes"]
    assert "rows read different corpora, and each is measured on its own" in said[0]


@pytest.mark.slow
def test_the_board_and_its_page_name_each_rows_text(home):
    board = (home / "run" / "leaderboard.md").read_text()
    assert "20% from general, 10% from situations (rehearsal)" in board
    assert "30% from wiki (wiki)" in board
    pages = list((home / "run").glob("*.html"))
    assert any("corpus.mix" in page.read_text() for page in pages)


@pytest.mark.slow
def test_runs_whose_rows_differ_in_text_are_joined(call, home, tmp_path):
    for name in ("it.yaml", "wiki.txt"):
        (tmp_path / name).write_text((home / name).read_text())
    rows = "policies=[none, original, {name: random, corpus: {mix: {general: 0.4}}}]"
    words = ("run", tmp_path / "it.yaml", rows, "--out", tmp_path / "b", "--store", home / "store")
    code, _, err = call(*words)
    assert code == 0, err
    code, out, err = call("leaderboard", home / "run", tmp_path / "b", "--json")
    assert code == 0, err
    labels = [row["policy"] for row in json.loads(out)["rows"]]
    assert {"none", "original", "rehearsal", "random corpus.mix.general=0.4"} <= {*labels}
    assert labels.count("original") == 1


@pytest.mark.slow
def test_a_mix_that_was_interrupted_has_the_same_bytes(home, tmp_path, monkeypatch, call):
    for name in ("it.yaml", "wiki.txt"):
        (tmp_path / name).write_text((home / name).read_text())
    places = mixing._places

    def broken(*given):
        yield from list(places(*given))[:2]
        raise OSError("the disk is gone")

    words = (
        "run",
        tmp_path / "it.yaml",
        "policies=[none, {name: original, label: rehearsal, "
        "corpus: {mix: {general: 0.2, situations: 0.1}}}]",
        "--out",
        tmp_path / "run",
        "--store",
        tmp_path / "store",
    )
    with monkeypatch.context() as patch:
        patch.setattr(mixing, "_places", broken)
        assert call(*words)[0] != 0
    assert call(*words)[0] == 0
    keys = [
        next(one for one in read_run(run).results if one.policy == "rehearsal").corpus_key
        for run in (home / "run", tmp_path / "run")
    ]
    assert keys[0] == keys[1]
    first, second = (Store(one / "store").path(keys[0]) for one in (home, tmp_path))
    files = [*first.glob("*.safetensors"), first / INDEX_FILE]
    assert len(files) == 4
    for path in files:
        assert path.read_bytes() == (second / path.name).read_bytes()
    assert len(Passages.open(first)) == len(Passages.open(second))
