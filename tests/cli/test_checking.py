"""`maskpolicy check`: all data is read and masked, nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskpolicy.store.artifacts import Store

TEXTS = (
    "Anna Kovar was born in 1901.",
    "The mill was built in 1934 and sold in 1950.",
    "Boats go down the river.",
    "Karl Berg left in 1936.",
)
QUESTIONS = (("When was Anna Kovar born?", "1901"), ("When was it built?", "1934!"))
QUESTIONS += (("When did Karl Berg come?", "1935"), ("Where do boats go?", "down the river"))
YAML = """
model: mini
corpus: {files: [it.txt]}
data: world
policies:
  - none
  - {name: regex, label: years, pattern: '\\d{4}', spans: all}
  - {name: random, ratio: 1.0, corruption: token}
tasks:
  - {name: table, label: dates, data: tables}
general: {steps: 1, warmup: 0}
intermediate: {steps: 6, warmup: 0, batch_size: 2}
finetune: {steps: 1, warmup: 0}
"""


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    """An experiment file with its corpus and the tables of a task."""
    monkeypatch.chdir(tmp_path)
    Path("it.txt").write_text("\n\n".join(TEXTS))
    Path("tables").mkdir()
    rows = "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in QUESTIONS)
    for split in ("train", "dev", "test"):
        Path("tables", f"{split}.jsonl").write_text(rows)
    Path("it.yaml").write_text(YAML)
    return Path("it.yaml")


def kinds(store: Path) -> set[str]:
    return {each["record"]["kind"] for each in Store(store).records()}


def test_what_is_read_and_masked_is_counted(call, file):
    code, out, err = call("check", file, "--store", "store", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["tasks"] == [
        {
            "task": "dates",
            "examples": {"train": 3, "dev": 1, "test": 4},
            "notes": ["dates: 3 of 4 (75%) test questions also stand in train"],
        }
    ]
    years, every = found["rows"]
    assert (years["row"], years["passages"], years["sampled"]) == ("years", 4, 4)
    assert years["epochs"] == 6 * 2 / 4
    assert years["spans_per_passage"] == 1.0  # of 1, 2, 0 and 1
    assert years["without_span"] == 0.25
    assert years["answer_places"] == {"dates": 3}
    assert years["answers_masked"] == {"dates": 2}  # 1901, 1934, and not "down the river"
    assert every["masked_tokens"] == 1.0
    assert every["answers_masked"] == years["answers_masked"]  # "down the river" is three spans
    assert every["tokens_per_passage"] == years["tokens_per_passage"] > 4
    assert 0 < years["masked_tokens"] < 0.8
    assert found["later"] == []


def test_nothing_is_trained_and_run_finds_what_was_computed(call, file):
    assert call("check", file, "--store", "store")[0] == 0
    before = kinds(Path("store"))
    assert {"corpus", "annotate", "tokenizer", "train-examples", "audit"} <= before
    assert not before & {"general", "intermediate", "finetune", "evaluate", "fit"}
    assert not Path("runs").exists()
    code, _, err = call("run", file, "--store", "store", "-v")
    assert code == 0
    for stage in ("corpus intermediate", "annotate years", "test-examples dates"):
        assert f"{stage}: started" not in err
    assert "intermediate years, run 0: started" in err


def test_the_tables_show_the_same_figures(call, file):
    code, out, _ = call("check", file, "--store", "store", "--only", "years")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert ["dates", "3", "1", "4"] in lines
    assert next(line for line in lines if line[:2] == ["years", "4"])[-3:] == [
        "1.00",
        "25.0%",
        "3.0",
    ]
    assert ["years", "66.7%", "of", "3"] in lines
    assert not any(line[:1] == ["random"] for line in lines)
    assert "dates: 3 of 4 (75%) test questions also stand in train" in out


def test_rows_that_need_a_training_are_named(call, file):
    rows = "policies=[{name: supervised, train_on: [zsre]}, self-evolution, mass]"
    world = ("corpus=world", "tasks=[zsre]", "world={people: 8, general_people: 6}")
    words = ("check", file, rows, *world, "baseline=mass", "--store", "store", "--json")
    code, out, err = call(*words)
    assert code == 0, err
    found = json.loads(out)
    assert found["later"] == ["supervised train_on=zsre", "self-evolution"]
    assert [row["row"] for row in found["rows"]] == ["mass"]


def test_policies_that_read_statistics_or_draw_others_are_masked(call, file):
    Path("it.txt").write_text("\n\n".join(TEXTS * 10))
    pmi = "{name: pmi, min_count: 2, entries: 9}"
    rows = f"policies=[none, {pmi}, {{name: mixture, members: [mass, {pmi}]}}]"
    code, out, err = call("check", file, rows, "--store", "store", "--json")
    assert code == 0, err
    found = json.loads(out)["rows"]
    assert len(found) == 2
    assert all(row["masked_tokens"] > 0 for row in found)


def test_rows_are_named_once_and_tuned_ones_later(call, file):
    rows = [
        "{name: regex, label: years, pattern: '\\d{4}'}",
        "{name: regex, label: slowly, pattern: '\\d{4}', finetune: {lr: 1.0e-5}}",
        "{name: span, label: tuned, tune: {ratio: [0.1, 0.2]}}",
    ]
    keys = ("seeds=[0, 1]", "intermediate_seeds=2", "checkpoint_steps=[2, 3]")
    words = ("check", file, f"policies=[none, {', '.join(rows)}]", *keys, "--store", "store")
    code, out, err = call(*words, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert [row["row"] for row in found["rows"]] == ["years", "slowly"]
    assert [row["epochs"] for row in found["rows"]] == [3.0, 3.0]
    assert found["later"] == ["tuned"]


def test_a_row_that_run_would_refuse_is_named(call, file):
    key = "policies=[none, {name: random, ratio: 1.0, corruption: token, mask_exclusion: 1.0}]"
    code, out, err = call("check", file, key, "--store", "store")
    assert code == 2
    assert "100.0%" in out
    assert "masks every token, so with mask_exclusion" in err.splitlines()[-1]
    code, out, err = call("check", file, "policies=[none, {name: random, ratio: 0}]", "-q")
    assert code == 2
    assert err.splitlines()[-1] == "error: random ratio=0.0: masks nothing"


def test_several_processes_of_a_training_do_not_mask(call, file):
    keys = ("resources={intermediate: {processes: 2}}", "--store", "store", "-v")
    assert call("check", file, *keys)[0] == 0
    (kept,) = {each.get("processes", 1) for each in locals_of(Path("store"), "masked-sample")}
    assert kept == 1


def locals_of(store: Path, kind: str) -> list[dict]:
    records = [each["record"] for each in Store(store).records()]
    return [each["local"] for each in records if each["kind"] == kind]


def test_rows_without_an_answer_are_counted(call, file):
    with Path("tables", "test.jsonl").open("a") as lines:
        lines.write('{"question": "Who?", "answer": ""}\n')
    for _ in range(2):  # computed, then found
        out = call("check", file, "--store", "store")[1]
        assert "dates: 1 unlabelled rows of test are left out" in out


def test_a_wrong_column_is_one_line(call, file):
    task = "tasks=[{name: table, data: tables, answers: solution}]"
    code, _, err = call("check", file, task, "--store", "store")
    assert code == 2
    (line,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert "solution" in line


def test_a_policy_that_draws_outside_its_generator_is_met(call, file):
    Path("mine.py").write_text(
        "from dataclasses import dataclass\nimport random\n\n"
        "from maskpolicy import policy\n\n\n"
        '@policy("chance")\n'
        "@dataclass(frozen=True)\n"
        "class Chance:\n"
        '    """Mask any word."""\n\n'
        "    def select(self, passage, rng):\n"
        "        first = random.randrange(len(passage.words))\n"
        "        return passage.words[first : first + 1]\n"
    )
    Path("it.txt").write_text("\n\n".join(TEXTS * 8))
    words = ("check", file, "policies=[none, chance]", "--plugin", "mine.py", "--store", "store")
    code, _, err = call(*words)
    assert code == 2
    assert "masks other tokens when it is called again" in err.splitlines()[-1]


def test_a_policy_that_fails_in_a_late_passage_is_met(call, file, tmp_path):
    Path("mine.py").write_text(
        "from dataclasses import dataclass\n\n"
        "from maskpolicy import policy\n\n\n"
        '@policy("berg")\n'
        "@dataclass(frozen=True)\n"
        "class Berg:\n"
        '    """Fail where Karl Berg is."""\n\n'
        "    def select(self, passage, rng):\n"
        '        assert "Berg" not in passage.text, "no Berg"\n'
        "        return passage.words[:1]\n"
    )
    words = ("check", file, "policies=[none, berg]", "--plugin", "mine.py", "--store", "store")
    code, _, err = call(*words)
    assert code != 0
    assert "berg" in err and "no Berg" in err
