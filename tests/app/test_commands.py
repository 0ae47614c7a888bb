"""The command line, and the commands without a run: list, world, examples, doctor."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from maskpolicy.app.commands import app
from maskpolicy.app.printed import console
from maskpolicy.core.errors import ConfigError

HEAVY = ("torch", "transformers", "spacy", "evaluate", "datasets", "accelerate")
SIZES = ("people=8", "general_people=4", "writers=4", "birds=4", "salts=4")


@pytest.fixture(scope="module")
def small_world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "world"
    assert not app(["world", "--out", str(folder), *SIZES], standalone_mode=False)
    return folder


def test_nothing_heavy_is_loaded_before_it_is_needed():
    code = """import sys
from maskpolicy.app.commands import app

for words in ["run", "--help"], ["list", "keys"]:
    app(words, standalone_mode=False)
print(*sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not set(HEAVY) & set(done.stdout.splitlines()[-1].split())


def test_an_error_is_raised_with_debug(call):
    with pytest.raises(ConfigError, match=r"no\.yaml: cannot be read"):
        call("run", "no.yaml", "--debug")


def listed(done, what):
    out, _ = done("list", what, "--json")
    return {entry["name"]: entry for entry in json.loads(out)}


def test_plugins_are_listed(done):
    policies = listed(done, "policies")
    assert {"none", "original", "random", "salient-span"} <= set(policies)
    share = "a number, a schedule or a distribution >= 0 and <= 1"
    assert policies["random"]["fields"]["ratio"] == {"type": share, "default": 0.15}
    assert policies["original"]["how"] == {"target": "full"}
    triviaqa = listed(done, "tasks")["triviaqa"]
    assert (triviaqa["group"], triviaqa["metric"]) == ("closed-book", "exact_match")
    analyses = listed(done, "analyses")
    assert analyses["coverage"]["summary"].startswith("How much each policy masked")
    assert json.loads(done("analyze", "--list", "--json")[0]) == [*analyses.values()]
    for what, name in (("policies", "random"), ("tasks", "zsre"), ("analyses", "coverage")):
        assert name in done("list", what)[0]


def test_models_are_listed_by_family(call):
    found = json.loads(call("list", "models", "--json")[1])
    assert found[0]["name"] == "mini"
    rows = {(row["name"], row["kind"]): row for row in found}
    assert rows["mini", "seq2seq"]["masks"] == "<mask>"
    assert rows["T5", "seq2seq"]["start"] == "<pad>"
    assert rows["T5", "seq2seq"]["exclusion"] == "unattended"
    assert rows["Pegasus", "seq2seq"]["masks"] == "<mask_1> for whole sentences, else <mask_2>"
    shown = call("list", "models")[1]
    for words in ("T5Gemma", "sentinels or mask token", "google-t5/t5-small"):
        assert words in shown


def test_the_world_is_written_and_its_figures_printed(done, small_world):
    for name in ("general.jsonl", "intermediate.jsonl", "tasks"):
        assert (small_world / name).exists()
    keys = [f"world.{size}" for size in SIZES]  # as in an experiment
    figures = json.loads(done("world", "--out", "same", *keys, "--json")[0])
    assert Path("same/world.json").read_bytes() == (small_world / "world.json").read_bytes()
    assert set(figures["tasks"]) == {
        *("triviaqa", "webquestions", "nq", "aidayago2", "zsre", "wow", "wiqa", "quartz", "ropes"),
        *("cola", "squad", "squad_v2"),
    }
    assert figures["corpora"]["intermediate"]["subjects"] > 8  # people, and the other kinds
    assert 0 < figures["salient-span"]["intermediate"]["asked_share"] < 1
    assert 0 <= figures["tasks"]["triviaqa"]["majority"] < 100
    assert figures["tasks"]["squad_v2"]["rule"] in ("no answer", "first words")


def test_examples_are_printed_as_json_lines(done, small_world):
    tasks = ("--data", small_world / "tasks")
    out, _ = done("examples", "zsre", *tasks, "--limit", 2)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [list(row) for row in rows] == [["id", "group", "source", "targets", "context"]] * 2
    assert "[SEP]" in rows[0]["source"]
    train, test = (
        done("examples", "triviaqa", *tasks, "--split", split, "documents=false")[0].splitlines()
        for split in ("train", "test")
    )
    assert train and test and not set(train) & set(test)
    assert json.loads(test[0])["context"] is None


def test_examples_warn_of_rows_that_are_left_out(call, tmp_path):
    rows = [{"question": "where is it", "answer": ["Ulm"]}, {"question": "unlabelled"}]
    path = tmp_path / "NQ-open.dev.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    code, out, err = call("examples", "nq", "--data", tmp_path)
    assert (code, len(out.splitlines())) == (0, 1)
    assert f"{path}: 1 rows without an answer left out" in err


def test_the_doctor_names_versions_hardware_and_the_store(done, tmp_path):
    (tmp_path / "store" / "artifacts").mkdir(parents=True)
    out, _ = done("doctor", "--store", tmp_path / "store", "--prune", "--older", "30")
    for word in ("versions", "torch", "hardware", "precision", "attention", "spaCy", "store"):
        assert word in out


def test_no_control_character_reaches_the_terminal(capsys):
    evil = "\x1b[31mred\x1b]8;;http://evil.example\x07\x9b1m"
    screen, table = console(), Table(evil)
    table.add_row(evil)
    for each in (evil, Text(evil), table):
        screen.print(each)
    said = capsys.readouterr().out
    assert said.count("[31mred") == 4
    assert said.replace("\n", "").isprintable()
    screen.print("é 中 \u200d\xa0a\tb\nc")
    assert capsys.readouterr().out.split("a")[0] == "é 中 \u200d\xa0"
