from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from maskpolicy.models.tokenizers import load_tokenizer, train_tokenizer
from maskpolicy.plots import look
from maskpolicy.plugins import registry
from maskpolicy.results.cell import Result
from maskpolicy.store.artifacts import Store

TEXT = "Godisa Hiddal was born in Mukby in 1850. She worked for Klunatek Company."
ROOT = Path(__file__).parents[2]
FITTED = """
from dataclasses import dataclass

from maskpolicy.plugins.registry import policy
from maskpolicy.types import as_spans


@policy("fitted-words", target="spans")
@dataclass(frozen=True)
class FittedWords:
    \"\"\"Hide the words that a fit has chosen.\"\"\"

    most: int = 9

    def annotate(self, passages, fitted=None):
        words = set((fitted / "words.txt").read_text().split()) if fitted else set()
        found = []
        for passage in passages:
            inside = [
                word
                for word in passage.words.tolist()
                if passage.text[passage.offsets[word[0], 0] : passage.offsets[word[1] - 1, 1]]
                in words
            ]
            found.append(as_spans(inside))
        return {"chosen": found}

    def select(self, passage, rng):
        return passage.columns["chosen"][: self.most]
"""


@pytest.fixture(autouse=True)
def quiet():
    """Without the handler that an earlier command of this process left."""
    logging.getLogger("maskpolicy").setLevel(logging.WARNING)
    yield
    logging.getLogger("maskpolicy").handlers.clear()


@pytest.fixture(scope="session")
def bart(tmp_path_factory) -> Path:
    """A folder with a tokenizer of its own."""
    folder = tmp_path_factory.mktemp("bart")
    train_tokenizer([TEXT] * 9, 400).save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "bart"}')
    return folder


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Path:
    """A store that keeps mini's tokenizer once it is made."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def shown(call, bart):
    """Show a policy on TEXT; returns the JSON."""

    def shown(*words: object) -> dict:
        code, out, _ = call("show", *words, "--text", TEXT, "--model", bart, "--json")
        assert code == 0
        return json.loads(out)

    return shown


def test_spans_are_characters_of_the_text(shown):
    for policy in ("random", "salient-span"):
        found = shown(policy)
        assert found["spans"]
        assert all(TEXT[start:end] == part for start, end, part in found["spans"])
        assert found["source"].count("<mask>") == len(found["spans"])
        assert [part.strip() for part in found["target"].split("<mask>")] == [
            part for _, _, part in found["spans"]
        ]


def test_fields_and_keys_of_how_can_be_set(shown):
    assert shown("salient-span", "policy.spans=3", "target=full")["target"] == TEXT
    assert len(shown("salient-span", "policy.spans=3")["spans"]) == 3
    assert shown("original")["target"] == TEXT
    assert shown("original", "policy.target=spans")["target"] != TEXT
    whole = shown("random", "policy.ratio=1.0", "corruption=token")
    assert set(whole["source"].split("<mask>")) == {""}


def test_another_seed_hides_something_else(shown):
    assert shown("random") == shown("random")
    assert shown("random") != shown("random", "--seed", 1)


def test_without_a_model_minis_tokenizer_is_made_once_and_kept(call, store):
    words = ("show", "salient-span", "--text", TEXT, "--store", store)
    code, out, _ = call(*words)
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert lines["text"] == TEXT
    assert lines["masked"] in lines["target"]
    assert "<mask>" in lines["source"]
    kept = sorted((store / "artifacts").iterdir())
    assert call(*words)[1] == out
    assert sorted((store / "artifacts").iterdir()) == kept


def test_a_store_that_cannot_be_written_is_read(call, small_disk):
    place = Path(small_disk("size=16m"))
    words = ("show", "random", "--text", TEXT, "--seed", 3, "--json", "--store", place)
    first = call(*words)
    small_disk("remount,ro,size=16m")
    code, out, said = call(*words)
    assert (code, out) == first[:2]
    assert "cannot be written: what is computed is not kept" in said


def test_a_field_that_a_policy_refuses_is_named(refused, bart):
    line = refused("show", "regex", "policy.pattern=(", "--text", TEXT, "--model", bart)
    assert line.startswith("error: policy.pattern: '(' is not valid: missing )")


def test_a_text_in_which_nothing_is_hidden(call, bart):
    words = ("show", "salient-span", "--text", "the it and of", "--model", bart)
    assert json.loads(call(*words, "--json")[1]) == {
        "spans": [],
        "source": "the it and of",
        "target": "",
    }
    assert "masked  nothing" in call(*words)[1]


@pytest.fixture(scope="session")
def finished(tmp_path_factory, bart) -> tuple[Path, Path]:
    """A run with a fitted policy, and its store."""
    folder = tmp_path_factory.mktemp("finished")
    plugin = folder / "fitted.py"
    plugin.write_text(FITTED)
    artifacts = Store(folder / "store")
    with artifacts.write("a" * 64, {}) as out:
        load_tokenizer(str(bart)).save_pretrained(out)
    with artifacts.write("b" * 64, {}) as out:
        (out / "words.txt").write_text("Mukby\n1850\n")
    run = folder / "run"
    (run / "results").mkdir(parents=True)
    for label, most, stages in (("all", 9, {"fit all, run 0": "b" * 64}), ("blind", 5, {})):
        block = {"name": "fitted-words", "most": most, "target": "full"}
        keys = {"tokenizer mini": "a" * 64, **stages}
        result = Result(label, "zsre", 0, "group", {"policy": block}, keys, error="not run")
        path = run / "results" / f"{label}--zsre--0.json"
        path.write_text(json.dumps({"version": 1, **result.to_json()}))
    about = {"plugins": [str(plugin)], "policies": [{"label": "all"}, {"label": "blind"}]}
    (run / "experiment.json").write_text(json.dumps({**about, "tasks": [{"label": "zsre"}]}))
    return run, artifacts.root


def test_a_run_gives_its_row_tokenizer_and_fitted_policy(call, finished):
    run, store = finished
    plugin = run.parent / "fitted.py"
    words = ("--run", run, "--store", store, "--plugin", plugin, "--text", TEXT, "--json")
    found = json.loads(call("show", "all", *words)[1])
    assert [part for _, _, part in found["spans"]] == ["Mukby", "1850"]
    assert found["target"] == TEXT
    changed = json.loads(call("show", "all", "policy.most=1", "target=spans", *words)[1])
    assert changed["target"] == "Mukby"
    assert json.loads(call("show", "blind", *words)[1])["spans"] == []


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("fitted-words", "has the rows all, blind: name one of these"),
        ("blidn", "did you mean 'blind'?"),
    ],
)
def test_a_row_that_a_run_does_not_have_is_refused(refused, finished, policy, says):
    assert says in refused("show", policy, "--run", finished[0], "--text", TEXT)


def test_a_run_whose_store_is_elsewhere_says_so(refused, finished, tmp_path):
    line = refused("show", "all", "--run", finished[0], "--store", tmp_path / "x", "--text", TEXT)
    assert "name the store of that run with --store" in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["radnom"], "did you mean 'random'?"),
        (["random", "policy.rato=1"], "policy.rato: unknown key 'rato': did you mean 'ratio'?"),
        (["random", "ratio=0.2"], "ratio: is a field of the policy random: write policy.ratio=.."),
        (["random", "policy.ratio=x"], "policy.ratio: must be a number"),
        (["random", "policy.target=ful"], "did you mean 'full'?"),
        (["random", "tagret=full"], "did you mean 'target'?"),
        (["random", "policy=x"], "name the policy itself"),
        (["random", "policy.name=x"], "name the policy itself"),
        (["random", "--model", "mimi"], "did you mean 'mini'?"),
        (["random", "--plugin", "no.py"], "no.py: no such file"),
        (["random", "--run", "nowhere"], "no results/*.json"),
        (["random", "--progress", 1], "--progress: must be below 1, not 1"),
        (
            ["random", "policy.ratio={start: 0.1, end: 2}"],
            "policy.ratio.end: must be >= 0 and <= 1, not 2",
        ),
    ],
)
def test_a_mistake_is_one_line(refused, monkeypatch, tmp_path, words, says):
    monkeypatch.chdir(tmp_path)
    assert says in refused("show", *words, "--text", TEXT)


@pytest.mark.parametrize(("text", "says"), [(" \n", "has no words"), ("a\udc80", "surrogate")])
def test_a_text_that_cannot_be_shown_is_refused(refused, bart, text, says):
    assert says in refused("show", "random", "--text", text, "--model", bart)


def test_a_schedule_is_shown_at_the_progress_that_is_asked_for(shown):
    key = "policy.ratio={start: 0.0, end: 1.0}"
    counts = [len(shown("random", key, "--progress", done)["spans"]) for done in (0, 0.2, 0.5)]
    assert counts[0] == 0 < counts[1]
    assert shown("random", key, "--progress", 0.5) == shown("random", "policy.ratio=0.5")


def test_a_mixture_is_shown_with_the_objective_of_the_member_that_is_drawn(shown):
    members = "policy.members=[{name: mass, ratio: 1.0}, {name: random, ratio: 1.0, target: full}]"
    one = shown("mixture", members, "policy.weights=[1, 0]")
    other = shown("mixture", members, "policy.weights=[0, 1]")
    assert one["target"] == other["target"] == TEXT
    counts = [len(each["spans"]) for each in (one, other)]
    assert counts[0] == 1 < counts[1]


@pytest.mark.slow
def test_the_gallery_of_the_docs_is_what_the_command_prints_today(call, store):
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    more = [row for row in rows if " " in row]
    assert f'"{more[0]}"' in (ROOT / "Makefile").read_text(encoding="utf-8")
    code, out, _ = call("gallery", *more, "--store", store)
    assert code == 0
    assert out == page, "run `make gallery`"


@pytest.mark.slow
def test_a_gallery_has_the_policies_of_plugins_and_says_what_is_not_there(call, bart, tmp_path):
    (tmp_path / "fitted.py").write_text(FITTED.replace("fitted-words", "fitted-too"))
    plugin = ("--plugin", tmp_path / "fitted.py", "--model", bart, "--text", TEXT)
    code, out, err = call("gallery", "regex policy.pattern=Godisa", *plugin)
    assert code == 0, err
    assert "| `fitted-too` | `" in out
    assert "| `regex policy.pattern=Godisa` | `<mask> Hiddal was" in out
    assert "`column` needs `column`; " in out and "`supervised` learns from a model" in out
    listed = {*re.findall(r"`([a-z0-9-]+)` (?:\||needs|learns)", out)}
    known = [registry.entry("policy", name) for name in registry.names("policy")]
    own = {each.name for each in known if registry.is_builtin(each.plugin)}
    assert listed == {*own, "fitted-too"}


@pytest.mark.slow
def test_a_gallery_of_some_rows_is_drawn(call, bart, tmp_path):
    file, words = tmp_path / "new" / "rows.svg", ("--model", bart, "--text", TEXT, "--alone")
    rows = ("random", "regex policy.pattern=Godisa")
    code, out, err = call("gallery", *rows, *words, "--picture", file)
    assert code == 0, err
    shown = re.findall(r"^\| `([^`]+)` \|", out, re.MULTILINE)
    assert tuple(shown) == rows
    drawn = file.read_text(encoding="utf-8")
    colors = [look.color(place) for place in range(3)]
    assert [f"stroke: {color}" in drawn for color in colors] == [True, True, False]


def test_a_gallery_names_an_unknown_row_and_nothing_else(refused, tmp_path):
    said = refused("gallery", "nope", "--store", tmp_path / "store")
    assert "unknown policy 'nope'" in said
    assert not (tmp_path / "store").exists()


def test_a_picture_of_another_format_is_refused(refused):
    said = refused("gallery", "--picture", "rows.gif")
    assert "--picture: rows.gif: end the name in .svg or .png" in said


def test_policies_and_seeds_stand_side_by_side(call, bart, tmp_path):
    page = tmp_path / "new" / "it.html"
    rows = ("random", "regex policy.pattern=Mukby", "target=full", "--seeds", 2)
    words = ("show", *rows, "--text", f"{TEXT} <b>", "--model", bart, "--html", page)
    code, out, err = call(*words, "--json")
    assert code == 0 and f"written to {page}" in err
    found = json.loads(out)
    named = ("random", "regex policy.pattern=Mukby")
    assert [(each["policy"], each["seed"]) for each in found] == [
        (row, seed) for row in named for seed in (0, 1)
    ]
    assert all(each["target"] == each["text"] == f"{TEXT} <b>" for each in found)
    assert found[0]["spans"] != found[1]["spans"]
    assert [part for _, _, part in found[2]["spans"]] == ["Mukby"]
    html = page.read_text(encoding="utf-8")
    assert "<b>" not in html and html.count("<mark>Mukby</mark>") == 2
    assert html.count("<h2>") == 1 and html.count("the full text") == 4
    assert "regex policy.pattern=Mukby, seed 1\ntext    " in call(*words)[1]


def test_the_texts_of_a_file_are_shown(call, refused, bart, tmp_path):
    texts, rows = tmp_path / "it.txt", tmp_path / "it.jsonl"
    texts.write_text("".join(f"Mukby {number}.\n\n" for number in range(30)))
    words = ("regex", "policy.pattern=Mukby", "--model", bart, "--json")
    found = json.loads(call("show", *words, "--file", texts)[1])
    assert [each["text"] for each in found] == [f"Mukby {number}." for number in range(20)]
    rows.write_text('{"text": "Mukby."}\n{"text": 3}\n')
    assert "it.jsonl, line 2: key 'text' must be text" in refused("show", *words, "--file", rows)
    rows.write_text("")
    assert "it.jsonl: has no text" in refused("show", *words, "--file", rows)
    assert "by --text TEXT, or texts by --file FILE" in refused("show", *words)
    assert "--file FILE" in refused("show", *words, "--file", texts, "--text", "Mukby")


def test_none_hides_nothing(refused, bart):
    assert "masks nothing" in refused("show", "none", "--text", TEXT, "--model", bart)


GLOBAL = """
from dataclasses import dataclass

import numpy as np

from maskpolicy import policy


@policy("careless", target="spans")
@dataclass(frozen=True)
class Careless:
    '''Mask words that numpy's global generator draws.'''

    def select(self, passage, rng):
        return passage.words[np.random.permutation(len(passage.words))[:1]]
"""


def test_a_draw_from_a_global_generator_is_refused(refused, bart, tmp_path):
    plugin = tmp_path / "careless.py"
    plugin.write_text(GLOBAL)
    text = " ".join(f"word{number}" for number in range(200))  # the same one twice is unlikely
    line = refused("show", "careless", "--plugin", plugin, "--text", text, "--model", bart)
    assert "policy careless: `select` masks other tokens when it is called again" in line
