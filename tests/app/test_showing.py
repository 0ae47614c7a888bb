"""maskpolicy show and gallery: what policies mask in a text."""

import json
import os
import re
import shutil
from pathlib import Path

import encoders
import pytest
import spacy_rules

from maskpolicy.analyses.plots import look
from maskpolicy.app import preview
from maskpolicy.core.errors import ConfigError
from maskpolicy.leaderboard.results.cell import Result
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.scratch import train_tokenizer
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import discovery, registry

TEXT = "Godisa Hiddal was born in Mukby in 1850. She worked for Klunatek Company."
ROOT = Path(__file__).parents[2]
FITTED = """
from dataclasses import dataclass
from maskpolicy import as_spans, policy

@policy("fitted-words", target="spans")
@dataclass(frozen=True)
class FittedWords:
    '''Hide the words that a fit has chosen.'''
    most: int = 9

    def annotate(self, passages, fitted=None):
        words = set((fitted / "words.txt").read_text().split()) if fitted else set()
        found = []
        for each in passages:
            pairs = zip(each.words, each.texts(each.words))
            found.append(as_spans([word for word, text in pairs if text in words]))
        return {"chosen": found}

    def select(self, passage, rng):
        return passage.columns["chosen"][: self.most]
"""


@pytest.fixture(scope="session")
def bart(tmp_path_factory) -> Path:
    """A folder with a tokenizer of its own."""
    folder = tmp_path_factory.mktemp("bart")
    train_tokenizer([TEXT] * 9, 400).save_pretrained(folder)
    config = '{"model_type": "bart", "is_encoder_decoder": true}'
    (folder / "config.json").write_text(config)
    return folder


@pytest.fixture
def shown(done, bart):
    """Show a policy on TEXT; returns the JSON."""

    def shown(*words: object) -> dict:
        return json.loads(done("show", *words, "--text", TEXT, "--model", bart, "--json")[0])

    return shown


def test_an_encoder_has_a_mask_for_each_token(call, bart, tmp_path):
    folder = shutil.copytree(bart, tmp_path / "encoder")
    (folder / "config.json").write_text('{"model_type": "roberta"}')
    words = ("show", "salient-span", "--text", TEXT, "--model", folder)
    found = json.loads(call(*words, "--json")[1])
    target = load_tokenizer(str(folder)).tokenize(found["target"])
    assert found["source"].count("<mask>") == len(target) > len(found["spans"])
    assert "target: full is not for model.kind encoder" in call(*words, "target=full")[2]


@pytest.mark.parametrize("policy", ["random", "salient-span"])
def test_spans_are_characters_of_the_text(shown, policy):
    found = shown(policy)
    assert found["spans"]
    assert all(TEXT[start:end] == part for start, end, part in found["spans"])
    assert found["source"].count("<mask>") == len(found["spans"])
    parts = [part for _, _, part in found["spans"]]
    assert [part.strip() for part in found["target"].split("<mask>")] == parts


def test_fields_objective_and_seed_can_be_set(shown):
    assert shown("salient-span", "policy.spans=3", "target=full")["target"] == TEXT
    assert len(shown("salient-span", "policy.spans=3")["spans"]) == 3
    assert shown("original")["target"] == TEXT
    assert shown("original", "policy.target=spans")["target"] != TEXT
    whole = shown("random", "policy.ratio=1.0", "corruption=token")
    assert set(whole["source"].split("<mask>")) == {""}
    assert shown("random") == shown("random") != shown("random", "--seed", 1)


def test_a_schedule_is_shown_at_the_progress_that_is_asked_for(shown):
    key = "policy.ratio={start: 0.0, end: 1.0}"
    counts = [len(shown("random", key, "--progress", done)["spans"]) for done in (0, 0.2)]
    assert counts[0] == 0 < counts[1]
    assert shown("random", key, "--progress", 0.5) == shown("random", "policy.ratio=0.5")


def test_without_a_model_minis_tokenizer_is_made_once_and_kept(done, store):
    words = ("show", "salient-span", "--text", TEXT, "--store", store)
    out, _ = done(*words)
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert lines["text"] == TEXT
    assert lines["masked"] in lines["target"]
    assert "<mask>" in lines["source"]
    kept = sorted((store / "artifacts").iterdir())
    assert done(*words)[0] == out
    assert sorted((store / "artifacts").iterdir()) == kept


@pytest.fixture(scope="session")
def finished(tmp_path_factory, bart) -> Path:
    """A folder with a run of a fitted policy, its store, and its plugin."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "fitted.py").write_text(FITTED)
    artifacts = Store(folder / "store")
    with artifacts.write("a" * 64, {}) as out:
        load_tokenizer(str(bart)).save_pretrained(out)
    with artifacts.write("b" * 64, {}) as out:
        (out / "words.txt").write_text("Mukby\n1850\n")
    with artifacts.write("c" * 64, {"params": {}, "facts": {"room": 6}}):
        pass
    results = folder / "run" / "results"
    results.mkdir(parents=True)
    for label, most, stages in (
        ("all", 9, {"fit all, run 0": "b" * 64}),
        ("blind", 5, {"intermediate blind, run 0": "c" * 64}),
    ):
        block = {"name": "fitted-words", "most": most, "target": "full"}
        keys = {"tokenizer mini": "a" * 64, **stages}
        config = {"policy": block, "task": {"name": "zsre"}}
        result = Result(label, "zsre", 0, "group", config, keys, error="not run")
        path = results / f"{label}--zsre--0.json"
        path.write_text(json.dumps({"version": 1, **result.to_json()}))
    about = {"plugins": [str(folder / "fitted.py")], "tasks": [{"label": "zsre"}]}
    about["policies"] = [{"label": "all"}, {"label": "blind"}]
    (folder / "run" / "experiment.json").write_text(json.dumps(about))
    return folder


def test_a_run_gives_its_row_tokenizer_and_fitted_policy(call, refused, finished, tmp_path):
    words = ("--run", finished / "run", "--plugin", finished / "fitted.py", "--text", TEXT)
    words = (*words, "--json", "--store", finished / "store")
    found = json.loads(call("show", "all", *words)[1])
    assert [part for _, _, part in found["spans"]] == ["Mukby", "1850"]
    assert found["target"] == TEXT
    changed = json.loads(call("show", "all", "policy.most=1", "target=spans", *words)[1])
    assert changed["target"] == "Mukby"
    assert json.loads(call("show", "blind", *words)[1])["spans"] == []
    says = "has the rows all, blind: name one of these"
    assert says in refused("show", "fitted-words", *words)
    assert "did you mean 'blind'?" in refused("show", "blidn", *words)
    line = refused("show", "all", *words, "--store", tmp_path / "x")
    assert "name the store of that run with --store" in line


def test_a_member_that_was_edited_since_its_run_is_told(finished, tmp_path, caplog):
    discovery.load_file(finished / "fitted.py")
    store, members = Store(tmp_path), {"fitted-words": {"fitted.py": "0" * 64}}
    with store.write("d" * 64, {"params": {"code": {}, "member_code": members}}):
        pass
    row = preview.PolicyOfRun({"name": "mixture"}, tmp_path, "drawn", {}, "d" * 64)
    preview.warn_of_edits(row, store)
    assert caplog.messages[0].startswith("drawn: fitted.py changed since the run")


def test_a_learned_row_is_shown_from_a_store_that_cannot_be_written(done, finished, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    words = ("--plugin", finished / "fitted.py", "--text", TEXT, "--store", finished / "store")
    out, said = done("show", "all", "--run", finished / "run", *words)
    assert "Mukby | 1850" in out
    assert "cannot be written" in said


def test_a_text_is_cut_where_the_training_of_its_row_cut_passages(done, finished, bart):
    words = ("--plugin", finished / "fitted.py", "--text", TEXT, "--store", finished / "store")
    words = ("show", "blind", "--run", finished / "run", *words, "--json")
    cut, whole = (json.loads(done(*words, *more)[0]) for more in ((), ("--model", bart)))
    assert len(load_tokenizer(str(bart)).tokenize(cut["source"])) == 6
    assert whole["source"] == TEXT


def test_a_field_of_a_run_that_is_too_long_for_a_path_is_none():
    preview.refuse_paths({"pattern": "x" * 300}, ())
    Path("own").mkdir()
    with pytest.raises(ConfigError, match="paths of a run are not followed"):
        preview.refuse_paths({"pattern": "./own"}, ())


def test_the_texts_of_a_file_are_shown(call, refused, bart, tmp_path):
    texts, rows = tmp_path / "it.txt", tmp_path / "it.jsonl"
    texts.write_text("".join(f"Mukby {number}.\n\n" for number in range(30)))
    words = ("show", "regex", "policy.pattern=Mukby", "--model", bart, "--json")
    found = json.loads(call(*words, "--file", texts)[1])
    assert [each["text"] for each in found] == [f"Mukby {number}." for number in range(20)]
    rows.write_text('{"text": "Mukby."}\n{"text": 3}\n')
    assert "it.jsonl, line 2: key 'text' must be text" in refused(*words, "--file", rows)
    rows.write_text("")
    assert "it.jsonl: has no text" in refused(*words, "--file", rows)


def test_policies_and_seeds_stand_side_by_side(call, bart, tmp_path):
    page = tmp_path / "new" / "it.html"
    rows = ("random", "regex policy.pattern=Mukby")
    words = ("show", *rows, "target=full", "--seeds", 2, "--text", f"{TEXT} <b>", "--model", bart)
    code, out, err = call(*words, "--html", page, "--json")
    assert code == 0 and f"written to {page}" in err
    found = json.loads(out)
    pairs = [(row, seed) for row in rows for seed in (0, 1)]
    assert [(each["policy"], each["seed"]) for each in found] == pairs
    assert all(each["target"] == each["text"] == f"{TEXT} <b>" for each in found)
    assert found[0]["spans"] != found[1]["spans"]
    assert [part for _, _, part in found[2]["spans"]] == ["Mukby"]
    html = page.read_text(encoding="utf-8")
    assert "<b>" not in html and html.count("<mark>Mukby</mark>") == 2
    assert html.count("<h2>") == 1 and html.count("the full text") == 4
    assert "regex policy.pattern=Mukby, seed 1\ntext    " in call(*words)[1]


def test_an_encoder_fills_the_masks_of_a_text_in_steps(call, tmp_path):
    folder = encoders.saved("bert", tmp_path / "bert")
    words = ("show", "whole-word", "policy.ratio=0.5", "--text", TEXT, "--model", folder)
    seeds = [("--seed", str(seed)) for seed in (0, 0, 1)]
    found = [call(*words, "--unmask", "3", *seed, "--json") for seed in seeds]
    assert [code for code, _, _ in found] == [0, 0, 0]
    first, again, other = (json.loads(out) for _, out, _ in found)
    assert first["unmasked"] == again["unmasked"] != other["unmasked"]
    assert "[MASK]" in first["source"] and "[MASK]" not in first["unmasked"]
    assert first["unmasked"].endswith(first["source"].rpartition("[MASK]")[2].strip())
    page = tmp_path / "it.html"
    call(*words, "--unmask", "3", *seeds[0], "--html", page)
    assert f"<td>{first['unmasked']}</td>" in page.read_text()
    assert '<th scope="col">unmasked</th>' in page.read_text()
    assert "unmasked" in call(*words, "--unmask", "1")[1].splitlines()[-1]
    assert "unmasked" not in call(*words)[1]


@pytest.mark.slow
def test_the_gallery_of_the_docs_is_what_the_command_prints_today(done, store):
    page = (ROOT / "docs" / "development" / "gallery.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    more = [row for row in rows if " " in row]
    assert f'"{more[0]}"' in (ROOT / "Makefile").read_text(encoding="utf-8")
    out, _ = done("gallery", *more, "--store", store)
    assert out == page, "run `make gallery`"


@pytest.mark.slow
def test_a_gallery_has_the_policies_of_plugins_and_says_what_it_leaves_out(done, store, tmp_path):
    (tmp_path / "fitted.py").write_text(FITTED.replace("fitted-words", "fitted-too"))
    plugin = ("--plugin", tmp_path / "fitted.py", "--store", store, "--text", TEXT)
    out, _ = done("gallery", "regex policy.pattern=Godisa", *plugin)
    assert "| `fitted-too` | `" in out
    assert "| `regex policy.pattern=Godisa` | `<mask> Hiddal was" in out
    assert "`column` needs `column`; " in out and "`supervised` learns from a model" in out
    entries = [registry.entry("policy", name) for name in registry.names("policy")]
    own = {each.name for each in entries if registry.is_builtin(each.plugin)}
    assert {*re.findall(r"`([a-z0-9-]+)` (?:\| `|needs|learns)", out)} == {*own, "fitted-too"}


@pytest.mark.slow
def test_a_gallery_has_policies_that_need_a_pipeline_or_a_graph(done, store, tmp_path):
    graph = tmp_path / "graph.tsv"
    graph.write_text("born\tmukby\n")
    tags = [({}, "X"), ({"TEXT": "born"}, "VERB"), ({"TEXT": "Company"}, "NOUN")]
    tagger = f"policy.pipeline={spacy_rules.pipeline(tmp_path / 'tags', tags=tags)}"
    rows = (
        *(f"pos {tagger} policy.ratio=1 policy.tags=[{tag}]" for tag in ("NOUN", "VERB")),
        f"pos-weighted {tagger} 'policy.ratio={{start: 1, end: 0}}'",
        f"concepts policy.graph={graph} policy.frequent=1 policy.stage=1 policy.ratio=0.1",
    )
    out, _ = done("gallery", *rows, "--alone", "--text", TEXT, "--store", store)
    nouns, verbs, weighted, concepts = re.findall(r"\| `([^`]*)` \|$", out, re.MULTILINE)
    assert (nouns, verbs) == ("Company", "born")
    assert weighted.replace("<mask>", "") == TEXT and weighted.count("<mask>") > 9
    assert concepts in ("born", "Mukby", "born<mask> Mukby")


@pytest.mark.slow
def test_a_gallery_of_some_rows_is_drawn(done, bart, tmp_path):
    file, words = tmp_path / "new" / "rows.svg", ("--model", bart, "--text", TEXT, "--alone")
    rows = ("random", "regex policy.pattern=Godisa")
    out, _ = done("gallery", *rows, *words, "--picture", file)
    assert tuple(re.findall(r"^\| `([^`]+)` \|", out, re.MULTILINE)) == rows
    drawn = file.read_text(encoding="utf-8")
    is_drawn = [f"stroke: {look.color(place)}" in drawn for place in range(3)]
    assert is_drawn == [True, True, False]
