"""wiqa, quartz and ropes over rows in their official formats, the Hub's columns, the real files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maskpolicy.config.experiment import TaskBlock
from maskpolicy.config.parse import load_experiment
from maskpolicy.errors import ConfigError, DataError
from maskpolicy.formats import examples, sources
from maskpolicy.stages.assembly import build

CHOICES = [
    {"label": "A", "text": "more"},
    {"label": "B", "text": "less"},
    {"label": "C", "text": "no effect"},
]
WIQA: dict[str, Any] = {
    "question": {
        "stem": "suppose Earth&#x27;s rain stops, how will it affect rivers.",
        "para_steps": ["Rain falls", "", "It&#x27;s in the river.", " "],
        "answer_label": "no_effect",
        "answer_label_as_choice": "C",
        "choices": CHOICES,
    },
    "metadata": {
        "ques_id": "out_of_para:1:2:3",
        "graph_id": "2",
        "para_id": "1",
        "question_type": "OUTOFPARA_DISTRACTOR",
        "path_len": 0,
    },
}
QUARTZ: dict[str, Any] = {
    "answerKey": "B",
    "para_id": "QRSent-1",
    "id": "QRQA-1-flip",
    "question": {"stem": "A slower car has _____ energy.", "choices": CHOICES[:2]},
    "para": "Faster things have more energy.",
    "question_anno": None,
}
QA = {"id": "7", "question": "Which cup is sweeter? ", "answers": [{"text": " cup B "}]}
PARAGRAPH = {"background": "Sugar is sweet.\n", "situation": "B has sugar. ", "qas": [QA]}
JOINED = {"wiqa": WIQA, "quartz": QUARTZ}


def block(name, fields=None, **keys):
    return TaskBlock(name, name, fields or {}, **keys)


def write(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def one(name, folder, row, fields=None, **keys):
    write(folder / "test.jsonl", row)
    (example,) = examples.read_examples(block(name, fields, **keys), "test", folder)
    return example


def ropes(folder, *paragraphs, name="dev-v1.0.json", **keys):
    content = {"version": "1.0", "data": [{"title": "ropes", "paragraphs": list(paragraphs)}]}
    (folder / name).write_text(json.dumps(content))
    return examples.read_split(block("ropes", **keys), "test", folder)


def test_wiqa(tmp_path):
    example = one("wiqa", tmp_path, WIQA)
    assert example.source == (
        "suppose Earth's rain stops, how will it affect rivers.\n"
        "(A) more (B) less (C) no effect\nRain falls\nIt's in the river."
    )
    assert example.targets == ("no effect",)
    assert example.choices == ("more", "less", "no effect")
    assert example.context == "Rain falls\nIt's in the river."
    assert (example.id, example.group) == ("out_of_para:1:2:3", "1")
    assert example.slices == {"question type": "OUTOFPARA_DISTRACTOR", "hops": "0"}


def test_wiqa_takes_the_label_where_the_choices_letter_is_not_given(tmp_path):
    question = {key: v for key, v in WIQA["question"].items() if key != "answer_label_as_choice"}
    assert one("wiqa", tmp_path, {**WIQA, "question": question}).targets == ("no effect",)


def test_the_process_of_wiqa_is_told_by_its_paragraph_graph_or_steps(tmp_path):
    about = WIQA["metadata"]
    graph = {key: value for key, value in about.items() if key != "para_id"}
    neither = {key: value for key, value in graph.items() if key != "graph_id"}
    rows = [
        {**WIQA, "metadata": {**each, "ques_id": f"q{n}"}}
        for n, each in enumerate((about, graph, neither, neither))
    ]
    write(tmp_path / "test.jsonl", *rows)
    groups = [one.group for one in examples.read_examples(block("wiqa"), "test", tmp_path)]
    assert groups[:2] == ["1", "2"] and groups[2] == groups[3] not in ("", "q2")


@pytest.mark.parametrize("key", ["background", "situation"])
@pytest.mark.parametrize("value", [None, " "])
def test_a_paragraph_of_ropes_without_background_or_situation_is_refused(tmp_path, key, value):
    bad = {**PARAGRAPH, key: value, "qas": [{**QA, "id": "8"}]}
    place = r"dev-v1.0.json, data\[0\].paragraphs\[1\].qas\[0\]: "
    with pytest.raises(DataError, match=f"{place}key '{key}' is (missing|empty)"):
        ropes(tmp_path, PARAGRAPH, bad)
    found = ropes(tmp_path, PARAGRAPH, bad, on_error="skip")
    assert [one.id for one in found.examples] == ["7"] and found.malformed == 1


def test_a_file_of_squad_is_no_file_of_ropes(tmp_path):
    answer = {"text": "cup B", "answer_start": 0}
    paragraph = {"context": "cup B is sweet.", "qas": [{**QA, "answers": [answer]}]}
    with pytest.raises(DataError, match=r"qas\[0\]: key 'background' is missing"):
        ropes(tmp_path, paragraph)


def test_ropes_reports_f1_beside_exact_match():
    metric = sources.task(block("ropes")).metric
    assert (metric.title, list(metric.besides)) == ("exact match", ["f1"])


def test_wiqa_without_steps(tmp_path):
    plain = one("wiqa", tmp_path, WIQA, {"steps": False})
    assert plain.source.endswith("rivers.\n(A) more (B) less (C) no effect")
    assert one("wiqa", tmp_path, WIQA, {"steps": False}, context=True).source == (
        one("wiqa", tmp_path, WIQA).source
    )


def test_quartz(tmp_path):
    example = one("quartz", tmp_path, QUARTZ)
    assert example.source == (
        "A slower car has _____ energy.\n(A) more (B) less\nFaster things have more energy."
    )
    assert (example.targets, example.choices) == (("less",), ("more", "less"))
    assert (example.id, example.group) == ("QRQA-1-flip", "QRSent-1")


def test_quartz_without_its_paragraph(tmp_path):
    example = one("quartz", tmp_path, QUARTZ, {"paragraph": False})
    assert example.source == "A slower car has _____ energy.\n(A) more (B) less"
    assert example.context == "Faster things have more energy."


@pytest.mark.parametrize("fields", [{}, {"paragraph": False}])
def test_the_oracles_source_has_the_context_once(tmp_path, fields):
    source = one("quartz", tmp_path, QUARTZ, fields, context=True).source
    assert source == one("quartz", tmp_path, QUARTZ).source


@pytest.mark.parametrize("name", ["wiqa", "quartz"])
def test_official_dev_is_dev_and_official_test_is_test(tmp_path, name):
    for split in ("train", "dev", "test"):
        write(tmp_path / name / f"{split}.jsonl", JOINED[name])
        assert len(examples.read_examples(block(name), split, tmp_path)) == 1


@pytest.mark.parametrize(("name", "other"), [("wiqa", "quartz"), ("quartz", "wiqa")])
def test_files_of_equal_names_are_told_apart(tmp_path, name, other):
    write(tmp_path / "test.jsonl", JOINED[other])
    with pytest.raises(DataError, match=rf"test\.jsonl: is not a file of task '{name}'") as error:
        examples.read_examples(block(name), "test", tmp_path)
    assert "\n" not in str(error.value)
    write(tmp_path / name / "test.jsonl", JOINED[name])
    assert len(examples.read_examples(block(name), "test", tmp_path)) == 1


def test_a_first_line_that_is_no_json_is_named(tmp_path):
    (tmp_path / "test.jsonl").write_text("{\n")
    with pytest.raises(DataError, match=r"test\.jsonl, line 1: not JSON"):
        examples.read_examples(block("quartz"), "test", tmp_path)


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("wiqa", QUARTZ, r"key 'question\.para_steps' is missing: this is not a row of WIQA"),
        ("quartz", WIQA, "key 'id' is missing|key 'answerKey'"),
        (
            "quartz",
            {**QUARTZ, "answerKey": "C"},
            "key 'answerKey': 'C' is none of the choices A, B",
        ),
        (
            "quartz",
            {**QUARTZ, "question": {"stem": "x", "choices": CHOICES[:1] * 2}},
            "key 'choices' must hold two choices or more",
        ),
        (
            "wiqa",
            {**WIQA, "question": {**WIQA["question"], "answer_label_as_choice": "D"}},
            "key 'answer_label_as_choice': 'D' is none of the choices A, B, C",
        ),
    ],
)
def test_a_malformed_row_names_its_line_and_key(tmp_path, name, row, reason):
    if (name, row) == ("quartz", WIQA):
        row = {**WIQA, "answerKey": "A"}
    write(tmp_path / "test.jsonl", JOINED[name], row)
    with pytest.raises(DataError, match=rf"test\.jsonl, line 2: {reason}"):
        examples.read_examples(block(name), "test", tmp_path)


def test_rows_without_a_right_choice_are_counted(tmp_path):
    bare = {key: value for key, value in QUARTZ.items() if key != "answerKey"}
    write(tmp_path / "test.jsonl", QUARTZ, bare)
    assert examples.read_split(block("quartz"), "test", tmp_path).unlabelled == 1


def test_ropes(tmp_path):
    (example,) = ropes(tmp_path, PARAGRAPH).examples
    assert example.source == "Which cup is sweeter?\nB has sugar.\nSugar is sweet."
    assert example.context == "B has sugar.\nSugar is sweet."
    assert (example.id, example.targets) == ("7", ("cup B",))


def test_ropes_without_its_background(tmp_path):
    fields = {"background": False}
    (example,) = ropes(tmp_path, PARAGRAPH, fields=fields).examples
    assert example.source == "Which cup is sweeter?\nB has sugar."
    (oracle,) = ropes(tmp_path, PARAGRAPH, fields=fields, context=True).examples
    assert oracle.source == "Which cup is sweeter?\nB has sugar.\nSugar is sweet."


def test_ropes_groups_by_background_and_counts_questions_without_answers(tmp_path):
    bare = {"id": "8", "question": "Which?"}
    again = {**PARAGRAPH, "situation": "Another.", "qas": [bare, {**QA, "id": "9"}]}
    split = ropes(tmp_path, PARAGRAPH, again)
    assert [example.id for example in split.examples] == ["7", "9"]
    assert len({example.group for example in split.examples}) == 1
    assert split.unlabelled == 1


@pytest.mark.parametrize(
    ("paragraph", "place"),
    [
        ({**PARAGRAPH, "qas": [QA, {**QA, "question": 7}]}, r"qas\[1\]: key 'question' must be"),
        (
            {**PARAGRAPH, "qas": [{"question": "?", "answers": [{"text": "a"}]}]},
            r"qas\[0\]: key 'id'",
        ),
        ({"background": "x"}, r"qas\[0\]: must be a JSON object, not null"),
    ],
)
def test_a_malformed_question_of_ropes_is_placed(tmp_path, paragraph, place):
    pattern = rf"dev-v1\.0\.json, data\[0\]\.paragraphs\[1\]\.{place}"
    with pytest.raises(DataError, match=pattern):
        ropes(tmp_path, PARAGRAPH, paragraph)
    assert len(ropes(tmp_path, PARAGRAPH, paragraph, on_error="skip").examples) >= 1


def test_the_hubs_columns_give_the_same_examples(tmp_path):
    quartz, ropes_ = (sources.task(block(name)) for name in ("quartz", "ropes"))
    columns = {"label": ["A", "B"], "text": ["more", "less"]}
    hub = {**QUARTZ, "question": QUARTZ["question"]["stem"], "choices": columns}
    assert quartz.plugin.example(hub) == quartz.plugin.example(QUARTZ)
    row = {**PARAGRAPH, **QA, "answers": {"text": ["cup B"]}}
    assert ropes_.plugin.example(row).targets == ("cup B",)
    assert ropes_.plugin.example({**row, "answers": {"text": []}}) is None
    with pytest.raises(DataError, match=r"'wiqa' is read from files alone, not from the Hub: set"):
        sources.hub_config(sources.task(block("wiqa")))


def test_choose_is_a_field():
    with pytest.raises(ConfigError, match="nonsense"):
        examples.read_examples(block("ropes", {"nonsense": 1}), "test", None)
    assert sources.task(block("wiqa", {"choose": "likelihood"})).plugin.choose == "likelihood"


def test_choose_reaches_the_stages(tmp_path):
    path = tmp_path / "mine.yaml"
    tasks = "[ropes, wiqa, {name: wiqa, choose: likelihood, label: ranked}]"
    world = "world: {kinds: [people, birds, salts]}"
    path.write_text(f"model: mini\ncorpus: world\npolicies: [none]\ntasks: {tasks}\n{world}\n")
    cells = build(load_experiment(path)).cells
    chosen = {task: stage.params.choose for (_, task, _), stage in cells.items()}
    assert chosen == {"ropes": "generate", "wiqa": "generate", "ranked": "likelihood"}


@pytest.mark.parametrize("name", ["wiqa", "quartz"])
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_every_real_row_of_choices(real_data, name, split):
    lines = (real_data / name / f"{split}.jsonl").read_text().splitlines()
    for folder in (real_data, real_data / name):
        read = examples.read_examples(block(name), split, folder)
        assert len(read) == len(lines)
    for line, example in zip(lines, read, strict=True):
        row = json.loads(line)
        question = row["question"]
        label = row.get("answerKey") or question["answer_label_as_choice"]
        texts = {choice["label"]: choice["text"] for choice in question["choices"]}
        assert example.targets == (texts[label],)
        assert example.source.startswith(question["stem"])


def test_every_real_question_of_ropes(real_data):
    read = {
        split: examples.read_examples(block("ropes"), split, real_data)
        for split in ("train", "dev", "test")
    }
    assert len(read["train"]) + len(read["dev"]) == 152
    assert len(read["test"]) == 86
    for name, splits in (("train", ("train", "dev")), ("dev", ("test",))):
        content = json.loads((real_data / "ropes" / f"{name}-v1.0.json").read_text())
        by_id = {example.id: example for split in splits for example in read[split]}
        for paragraph in content["data"][0]["paragraphs"]:
            for qa in paragraph["qas"]:
                answers = {answer["text"].strip() for answer in qa["answers"]}
                assert set(by_id[qa["id"]].targets) == answers
                assert paragraph["background"].strip() in by_id[qa["id"]].source


def test_real_ropes_test_questions_have_no_answers(real_data, tmp_path):
    content = (real_data / "ropes" / "test-1.0.json").read_text()
    (tmp_path / "dev-v1.0.json").write_text(content)
    with pytest.raises(DataError, match="without an answer, 0 malformed"):
        examples.read_examples(block("ropes"), "test", tmp_path)
