"""wiqa, quartz and ropes over rows in their official formats, the Hub's columns, the real files."""

from typing import Any

import pytest
from official import block, groups, read, rows_of, split, write

from maskpolicy.core.errors import DataError
from maskpolicy.data.taskfiles import sources
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline.stages.assembly import build

CHOICES = [
    {"label": a, "text": b} for a, b in zip("ABC", ("more", "less", "no effect"), strict=True)
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


def one(name, folder, row, **keys):
    write(folder / "test.jsonl", row)
    (example,) = read(name, folder, **keys)
    return example


def ropes(folder, *paragraphs, **keys):
    write(folder / "dev-v1.0.json", {"data": [{"title": "ropes", "paragraphs": [*paragraphs]}]})
    return split("ropes", folder, **keys)


def test_wiqa(tmp_path):
    example = one("wiqa", tmp_path, WIQA)
    stem = "suppose Earth's rain stops, how will it affect rivers.\n(A) more (B) less (C) no effect"
    context = "Rain falls\nIt's in the river."
    assert (example.source, example.context) == (f"{stem}\n{context}", context)
    assert (example.targets, example.choices) == (("no effect",), ("more", "less", "no effect"))
    assert (example.id, example.group) == ("out_of_para:1:2:3", "1")
    assert example.slices == {"question type": "OUTOFPARA_DISTRACTOR", "hops": "0"}
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
    found = groups("wiqa", tmp_path)
    assert found[:2] == ["1", "2"] and found[2] == found[3] not in ("", "q2")


def test_quartz(tmp_path):
    example = one("quartz", tmp_path, QUARTZ)
    source = "A slower car has _____ energy.\n(A) more (B) less\nFaster things have more energy."
    assert example.source == source
    assert (example.targets, example.choices) == (("less",), ("more", "less"))
    assert (example.id, example.group) == ("QRQA-1-flip", "QRSent-1")
    bare = {key: value for key, value in QUARTZ.items() if key != "answerKey"}
    write(tmp_path / "test.jsonl", QUARTZ, bare)
    assert split("quartz", tmp_path).unlabelled == 1


def test_ropes(tmp_path):
    (example,) = ropes(tmp_path, PARAGRAPH).examples
    context = "B has sugar.\nSugar is sweet."
    assert example.source == f"Which cup is sweeter?\n{context}"
    assert (example.id, example.targets, example.context) == ("7", ("cup B",), context)
    bare = {"id": "8", "question": "Which?"}
    again = {**PARAGRAPH, "situation": "Another.", "qas": [bare, {**QA, "id": "9"}]}
    found = ropes(tmp_path, PARAGRAPH, again)
    assert [example.id for example in found.examples] == ["7", "9"] and found.unlabelled == 1
    assert len({example.group for example in found.examples}) == 1
    metric = sources.task(block("ropes")).metric
    assert (metric.title, list(metric.besides)) == ("exact match", ["f1"])


@pytest.mark.parametrize(
    ("name", "field", "end"),
    [
        ("wiqa", "steps", "rivers.\n(A) more (B) less (C) no effect"),
        ("quartz", "paragraph", "energy.\n(A) more (B) less"),
        ("ropes", "background", "sweeter?\nB has sugar."),
    ],
)
def test_without_its_text_only_the_oracles_source_has_the_context_once(tmp_path, name, field, end):
    def source(fields=None, **keys):
        if name == "ropes":
            return ropes(tmp_path, PARAGRAPH, fields=fields, **keys).examples[0].source
        return one(name, tmp_path, JOINED[name], fields=fields, **keys).source

    assert source({field: False}).endswith(end)
    whole = [source(), source(context=True), source({field: False}, context=True)]
    assert len({*whole}) == 1 and len(whole[0]) > len(source({field: False}))


def test_the_hubs_columns_give_the_same_examples():
    quartz, ropes_ = (sources.task(block(name)).plugin for name in ("quartz", "ropes"))
    columns = {"label": ["A", "B"], "text": ["more", "less"]}
    hub = {**QUARTZ, "question": QUARTZ["question"]["stem"], "choices": columns}
    assert quartz.example(hub) == quartz.example(QUARTZ)
    row = {**PARAGRAPH, **QA, "answers": {"text": ["cup B"]}}
    assert ropes_.example(row).targets == ("cup B",)
    assert ropes_.example({**row, "answers": {"text": []}}) is None
    with pytest.raises(DataError, match=r"'wiqa' is only read from files, not from the Hub: set"):
        sources.hub_config(sources.task(block("wiqa")))


def test_choose_is_a_field_that_reaches_the_stages(tmp_path):
    path = tmp_path / "mine.yaml"
    tasks = "[ropes, wiqa, {name: wiqa, choose: likelihood, label: ranked}]"
    world = "world: {kinds: [people, birds, salts]}"
    path.write_text(f"model: mini\ncorpus: world\npolicies: [none]\ntasks: {tasks}\n{world}\n")
    cells = build(load_experiment(path)).cells
    chosen = {task: stage.params.choose for (_, task, _), stage in cells.items()}
    assert chosen == {"ropes": "generate", "wiqa": "generate", "ranked": "likelihood"}


@pytest.mark.parametrize("name", ["wiqa", "quartz"])
@pytest.mark.parametrize("part", ["train", "dev", "test"])
def test_every_real_row_of_choices(real_data, name, part):
    rows, found = rows_of(real_data / name / f"{part}.jsonl"), read(name, real_data, part)
    assert read(name, real_data / name, part) == found
    for row, example in zip(rows, found, strict=True):
        question = row["question"]
        label = row.get("answerKey") or question["answer_label_as_choice"]
        texts = {choice["label"]: choice["text"] for choice in question["choices"]}
        assert example.targets == (texts[label],)
        assert example.source.startswith(question["stem"])


def test_every_real_question_of_ropes(real_data, tmp_path):
    found = {part: read("ropes", real_data, part) for part in ("train", "dev", "test")}
    assert len(found["train"]) + len(found["dev"]) == 152 and len(found["test"]) == 86
    for name, parts in (("train", ("train", "dev")), ("dev", ("test",))):
        (article,) = rows_of(real_data / "ropes" / f"{name}-v1.0.json")
        by_id = {example.id: example for part in parts for example in found[part]}
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                answers = {answer["text"].strip() for answer in qa["answers"]}
                assert set(by_id[qa["id"]].targets) == answers
                assert paragraph["background"].strip() in by_id[qa["id"]].source
    write(tmp_path / "dev-v1.0.json", (real_data / "ropes" / "test-1.0.json").read_text())
    with pytest.raises(DataError, match="without an answer, 0 malformed"):
        read("ropes", tmp_path)
