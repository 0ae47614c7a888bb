"""maskpolicy check: it reads and masks all data, and trains nothing."""

import json
from pathlib import Path

import pytest
from small import policy_file

from maskpolicy.pipeline.store.artifacts import Store

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
world: {people: 8, general_people: 6}
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
CHANCE = policy_file(
    "chance",
    "import random",
    "first = random.randrange(len(passage.words))",
    "return passage.words[first : first + 1]",
)
BERG = policy_file(
    "berg", 'assert "Berg" not in passage.text, "no Berg"', "return passage.words[:1]"
)


@pytest.fixture(autouse=True)
def files(here, store):
    """An experiment, its corpus and the tables of a task, and the store of all tests."""
    Path("store").symlink_to(store)
    Path("it.txt").write_text("\n\n".join(TEXTS))
    Path("tables").mkdir()
    rows = "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in QUESTIONS)
    for split in ("train", "dev", "test"):
        Path("tables", f"{split}.jsonl").write_text(rows)
    Path("it.yaml").write_text(YAML)


@pytest.fixture
def new_store(files):
    """A store of the test's own."""
    Path("store").unlink()


@pytest.fixture(scope="module")
def plugin(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plugin") / "mine.py"
    path.write_text(CHANCE + BERG)
    return path


@pytest.fixture
def checked(done):
    """Check the experiment; returns the JSON."""

    def checked(*keys):
        return json.loads(done("check", "it.yaml", *keys, "--store", "store", "--json")[0])

    return checked


def records(*names):
    """Return the records of the store's artifacts, of some kinds or of all."""
    every = (each["record"] for each in Store(Path("store")).records())
    return [record for record in every if not names or record["kind"] in names]


def test_the_share_of_truncated_passages_is_counted(checked):
    Path("it.txt").write_text("\n\n".join((*TEXTS, "Boats go down the river, " * 9)))
    assert {row["truncated"] for row in checked("intermediate.max_source=40")["rows"]} == {0.2}
    assert {row["truncated"] for row in checked()["rows"]} == {0.0}


def test_what_is_read_and_masked_is_counted(call, checked):
    found = checked()
    notes = ["dates: 3 of 4 (75%) test questions are also in train"]
    examples = {"train": 3, "dev": 1, "test": 4}
    assert found["tasks"] == [{"task": "dates", "examples": examples, "notes": notes}]
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

    out = call("check", "it.yaml", "--store", "store", "--only", "years")[1]
    lines = [line.split() for line in out.splitlines()]
    assert ["dates", "3", "1", "4"] in lines
    [row] = [line for line in lines if line[:2] == ["years", "4"]]
    assert row[-3:] == ["1.00", "25.0%", "3.0"]
    assert ["years", "66.7%", "of", "3"] in lines
    assert not any(line[:1] == ["random"] for line in lines)
    assert notes[0] in out


def test_the_numbers_of_rows_of_a_table_do_not_say_which_question_it_is(checked):
    for split in ("train", "test"):
        rows = [{"nr": n, "question": f"{n} {split}?", "answer": "Ada"} for n in range(20)]
        Path("tables", f"{split}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    (found,) = checked("tasks.0.id=nr")["tasks"]
    assert found["examples"]["test"] == 20 and found["notes"] == []


def test_examples_of_passages_are_counted(checked):
    policies = "policies=[none, {name: salient-span, examples: each, without: %s}]"
    (every,) = checked(policies % "keep")["rows"]
    assert every["without_span"] > 0
    (some,) = checked(policies % "drop")["rows"]
    assert (some["sampled"], some["without_span"], some["spans_per_passage"]) == (4, 0.0, 1.0)
    spans = every["spans_per_passage"] / every["epochs"]  # proportional to those of an epoch
    assert some["epochs"] == pytest.approx(1 / spans)
    assert some["answers_masked"] == every["answers_masked"]


@pytest.mark.usefixtures("new_store")
def test_columns_are_computed_for_the_passages_of_the_sample(checked):
    Path("it.txt").write_text("\n\n".join(f"{text} It is {i}." for text in TEXTS for i in range(9)))
    random = "{name: random, ratio: {start: 0.9, end: 0.1}}"
    keys = (f"policies=[none, {{name: mixture, members: [salient-span, {random}]}}]", "--passages")
    sampled = checked(*keys, 5)
    [columns] = records("annotate")
    assert columns["logical"]["label"].endswith("member 1 (salient-span), 5 passages")
    assert sampled["rows"][0]["passages"] == 36
    checked(*keys, 36)  # those of the whole corpus, as a run computes them
    assert checked(*keys, 5) == sampled  # with the columns that are there now
    assert len(records("annotate")) == 2


def test_only_what_the_training_reads_is_masked(checked):
    years, every = checked("intermediate.max_source=7")["rows"]
    assert every["tokens_per_passage"] == 5
    assert every["masked_tokens"] == 1
    assert years["answers_masked"] == {"dates": 0}  # the years are the last words
    every = checked("intermediate.max_target=4", "policies.2.corruption=span")["rows"][1]
    assert every["spans_per_passage"] == 1 and every["masked_tokens"] < 0.5


@pytest.mark.usefixtures("new_store")
def test_nothing_is_trained_and_run_finds_what_was_computed(done, checked):
    checked("resources={intermediate: {processes: 2}}")
    before = {record["kind"] for record in records()}
    assert {"corpus", "annotate", "tokenizer", "train-examples", "audit"} <= before
    assert not before & {"general", "intermediate", "finetune", "evaluate", "fit"}
    assert {r["local"].get("processes", 1) for r in records("masked-sample")} == {1}
    assert not Path("runs").exists()
    plan = json.loads(done("plan", "it.yaml", "--store", "store", "--json")[0])
    states = {each["stage"]: each["state"] for each in plan["stages"]}
    for stage in ("corpus intermediate", "annotate years", "test-examples dates"):
        assert states[stage] == "done"
    assert states["intermediate years, run 0"] == "to do"


def test_rows_that_need_a_training_are_named(checked):
    rows = "policies=[{name: supervised, train_on: [zsre]}, self-evolution, mass]"
    found = checked(rows, "corpus=world", "tasks=[zsre]", "baseline=mass")
    assert found["later"] == ["supervised train_on=zsre", "self-evolution"]
    assert [row["row"] for row in found["rows"]] == ["mass"]


def test_rows_are_named_once_and_tuned_ones_later(checked):
    rows = (
        "{name: regex, label: years, pattern: '\\d{4}'}",
        "{name: regex, label: slowly, pattern: '\\d{4}', finetune: {lr: 1.0e-5}}",
        "{name: span, label: tuned, tune: {ratio: [0.1, 0.2]}}",
    )
    keys = ("seeds=[0, 1]", "intermediate_seeds=2", "checkpoint_steps=[2, 3]")
    found = checked(f"policies=[none, {', '.join(rows)}]", *keys)
    assert [(row["row"], row["epochs"]) for row in found["rows"]] == [("years", 3), ("slowly", 3)]
    assert found["later"] == ["tuned"]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (
            "policies=[none, {name: random, ratio: 1.0, corruption: token, mask_exclusion: 1.0}]",
            "masks every token, so with mask_exclusion",
        ),
        ("policies=[none, {name: random, ratio: 0}]", "error: random ratio=0.0: masks nothing"),
        ("tasks=[{name: table, data: tables, answers: solution}]", "solution"),
        (
            "policies=[none, {name: regex, label: fire, pattern: burnt}]",
            "error: fire: masks a token in so few passages",
        ),
        ("policies=[none, chance]", "masks other tokens when it is called again"),
        ("policies=[none, berg]", "no Berg"),
    ],
)
def test_what_would_stop_run_is_one_line(call, plugin, key, says):
    Path("it.txt").write_text("\n\n".join((*TEXTS * 8, "A boat was burnt.")))
    words = ("check", "it.yaml", key, "--plugin", plugin, "--store", "store", "-q")
    code, _, err = call(*words)
    assert code == 2
    assert says in err.splitlines()[-1]


def test_rows_without_an_answer_are_counted(call):
    with Path("tables", "test.jsonl").open("a") as lines:
        lines.write('{"question": "Who?", "answer": ""}\n')
    for _ in range(2):  # computed, then found
        out = call("check", "it.yaml", "--store", "store")[1]
        assert "dates: 1 unlabelled rows of test are left out" in out
