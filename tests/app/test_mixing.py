"""A run whose rows read different texts, from the corpus to the board and its analyses."""

import json
import re
from pathlib import Path

import pytest
import small

from maskpolicy.analyses import masked_sample
from maskpolicy.analyses.masked_sample import Sampling
from maskpolicy.data.corpus import mixing
from maskpolicy.data.corpus.passages import INDEX_FILE, Passages
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.pipeline.store.artifacts import Store

pytestmark = pytest.mark.slow
MIX = {"general": 0.2, "situations": 0.1}
REHEARSAL = {"name": "original", "label": "rehearsal", "corpus": {"mix": MIX}}
PART = {"files": ["wiki.txt"], "share": 0.3}
ROWS = small.experiment(
    policies=[
        *("none", "original", REHEARSAL),
        {"name": "salient-span", "label": "wiki", "corpus": {"mix": {"wiki": PART}}},
        {"name": "pmi", "min_count": 2, "label": "pmi", "corpus": {"files": ["wiki.txt"]}},
    ],
    world={"people": 8, "general_people": 12, "entries": 6, "situations": 0.3},
)
WIKI = "The mill of Lindau burnt in 1934. It was built again by Karl Berg in 1936.\n\n" * 5


@pytest.fixture(scope="module")
def home(run_tiny) -> Path:
    """A folder with a run: tiny.yaml, out/ and store/."""
    return run_tiny(ROWS, {"wiki.txt": WIKI})


def analysed(done, home, name, *keys):
    words = ("analyze", name, home / "out", *keys, "--store", home / "store", "--json")
    return json.loads(done(*words)[0])


def test_each_row_is_sampled_from_the_text_that_it_trained_on(home):
    store, run = Store(home / "store"), read_run(home / "out")
    samples, notes, missing = masked_sample.samples([run], Sampling(passages=500), store)
    assert (notes, missing) == ([], False)
    texts = {}
    for each in samples:
        ids = [each.passages[place].id for place in each.places.tolist()]
        names = [one.split("/")[0] if "/" in one else "" for one in ids]
        texts[each.row.label] = {name: names.count(name) / len(names) for name in {*names}}
    for label, shares in {
        "original": {"": 1.0},
        "rehearsal": {"": 0.7, "general": 0.2, "situations": 0.1},
        "wiki": {"": 0.7, "wiki": 0.3},
    }.items():
        assert texts[label] == pytest.approx(shares, abs=0.02)
    pmi = next(one for one in samples if one.row.params.policy == "pmi")
    assert len(pmi.passages) == 5


def test_analyses_take_each_row_with_its_own_text(done, home):
    pairs = {(row["policy"], row["other"]) for row in analysed(done, home, "overlap")["rows"]}
    assert not any({"rehearsal", "wiki"} & {*pair} for pair in pairs if len({*pair}) > 1)
    rows = analysed(done, home, "coverage")["rows"]
    assert {"original", "rehearsal", "wiki"} <= {row["policy"] for row in rows}
    losses = {
        row["policy"]: row for row in analysed(done, home, "forgetting", "passages=16")["rows"]
    }
    assert losses["original"]["before"] == losses["rehearsal"]["before"]
    assert losses["original"]["after"] != losses["rehearsal"]["after"]
    assert analysed(done, home, "frequency")["rows"]
    said = analysed(done, home, "rank", "passages=8")["notes"]
    assert "rows read different corpora, and each is measured on its own" in said[0]


def test_the_board_its_page_and_a_card_name_each_rows_text(done, home, tmp_path):
    board = (home / "out" / "leaderboard.md").read_text()
    size = r"[\d,]+ passages, [\d,]+ tokens, [\d,]+ words"
    assert re.search(rf"20% from general, 10% from situations, {size} \(rehearsal\)", board)
    assert re.search(rf"30% from wiki, {size} \(wiki\)", board)
    page = (home / "out" / "leaderboard.html").read_text()
    assert "corpus.mix" in page and len(re.findall(size, page)) >= 3
    words = ("export", home / "out", "rehearsal", "--store", home / "store")
    done(*words, "--out", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "| passages from general | 20% |" in card


def test_a_mix_that_was_interrupted_has_the_same_bytes(home, tmp_path, monkeypatch, call, done):
    places = mixing._places

    def broken(*given):
        yield from list(places(*given))[:2]
        raise OSError("the disk is gone")

    rows = json.dumps(["none", REHEARSAL])
    words = ("check", home / "tiny.yaml", f"policies={rows}", "--store", "store")
    with monkeypatch.context() as patch:
        patch.setattr(mixing, "_places", broken)
        assert call(*words)[0] != 0
    done(*words)
    (row,) = (one for one in read_run(home / "out").results if one.policy == "rehearsal")
    first, second = (Store(place / "store").path(row.corpus_key) for place in (home, tmp_path))
    files = [*first.glob("*.safetensors"), first / INDEX_FILE]
    assert len(files) == 4
    for path in files:
        assert path.read_bytes() == (second / path.name).read_bytes()
    assert len(Passages.open(first)) == len(Passages.open(second))
