"""Every built-in task: a row that it cannot read is one line that names file, place and key."""

import json

import pytest
from official import read, split, write
from refusals import refused

from maskpolicy.core.errors import DataError
from tests.tasks.test_choices import JOINED, PARAGRAPH, QA, QUARTZ, WIQA
from tests.tasks.test_glue import HEADS, ROWS, qa
from tests.tasks.test_kilt import NAMES, ZSRE, mention
from tests.tasks.test_kilt import ROWS as KILT
from tests.tasks.test_questions import asked, question

LINE, UNDER_HEAD = "line 2: ", "line 3: "
TABLES = ("qqp", "rte", "stsb")
ROPES = r"data\[0\]\.paragraphs\[1\]\.qas\[0\]: "
SQUAD = '{"data": [{"paragraphs": [{"context": "Oder.", "qas": [%s]}]}]}'
FILES = {  # of a task: its file, what encloses the rows (lines: nothing, or a head), and a good row
    **{name: (f"{HEADS[name][0]}/dev.tsv", HEADS[name][1], ROWS[name][0]) for name in TABLES},
    **{name: (NAMES[name], "", KILT[name]) for name in NAMES},
    **{name: ("test.jsonl", "", row) for name, row in JOINED.items()},
    "triviaqa": ("web-dev.json", '{"Data": [%s]}', question(0)),
    "webquestions": ("webquestions.examples.test.json", "[%s]", asked(0, "Ulm")),
    "ropes": ("dev-v1.0.json", '{"data": [{"paragraphs": [%s]}]}', PARAGRAPH),
    "squad": ("dev-v1.1.json", SQUAD, qa("Oder", 0)),
}
BAD = [{"answer": "x", "provenance": "y"}]
TWICE = {"stem": "x", "choices": [{"label": "A", "text": "x"}] * 2}
STRANGE = {**WIQA["question"], "answer_label_as_choice": "D"}
NO_ID = {"question": "?", "answers": [{"text": "a"}]}
MENTIONS = ("In [START_ENT] Ulm", "[END_ENT] Ulm [START_ENT]", "[START_ENT] [END_ENT] Ulm")
ALIASES = {"Value": "Ulm", "Aliases": "Ulm"}
SCORE = ROWS["stsb"][0].replace("4.750", "%s")
LONE = [{"answer": "lone \ud800"}]
SEVEN = [{"answer": 7}]
FAULTS = [  # task, a malformed row, its place and what is said of it
    ("zsre", "{'id': 1}", LINE + "not JSON"),
    ("zsre", {**ZSRE, "id": None}, LINE + "key 'id' is missing"),
    ("zsre", {**ZSRE, "input": " [SEP] river"}, LINE + "key 'input' must read SUB"),
    ("zsre", {**ZSRE, "output": SEVEN}, LINE + "key 'output': every 'answer' must be text"),
    ("zsre", {**ZSRE, "output": LONE}, LINE + r".* lone surrogate \(U\+D800\) at character 5"),
    ("zsre", {**ZSRE, "input": "\ud800 [SEP] river"}, LINE + "the text .* lone surrogate"),
    ("wow", {**KILT["wow"], "output": BAD}, LINE + "key 'provenance'"),
    ("nq", {"question": "where?", "answer": "Ulm"}, LINE + "key 'answer' must be a list of texts"),
    ("wiqa", QUARTZ, LINE + r"key 'question\.para_steps' is missing: this is not a row"),
    ("wiqa", {**WIQA, "question": STRANGE}, LINE + "key '.*': 'D' is none of the choices A, B, C"),
    ("quartz", {**WIQA, "answerKey": "A"}, LINE + "key 'id' is missing|key 'answerKey'"),
    ("quartz", {**QUARTZ, "answerKey": "C"}, LINE + "key 'answerKey': 'C' is none of the choices"),
    ("quartz", {**QUARTZ, "question": TWICE}, LINE + "key 'choices' must hold two choices or more"),
    *(("aidayago2", mention(bad), LINE + "key 'input' must mark one mention") for bad in MENTIONS),
    *(
        (name, KILT[other], LINE + "key '(input|id)' must")
        for name in NAMES
        for other in NAMES
        if name != other
    ),
    ("triviaqa", question(1, Question=None), r"Data\[1\]: key 'Question' is missing"),
    ("triviaqa", question(1, Answer="Ulm"), r"Data\[1\]: key 'Answer' must be an object"),
    ("triviaqa", question(1, Answer=ALIASES), r"Data\[1\]: key 'Aliases' must be a list"),
    *(
        ("webquestions", {**asked(1), "targetValue": bad}, r"row\[1\]: key 'targetValue' must read")
        for bad in ("Ulm", '(list (description "Ulm")', "(list (name Ulm))", "(list")
    ),
    ("ropes", {**PARAGRAPH, "qas": [{**QA, "question": 7}]}, ROPES + "key 'question' must be"),
    ("ropes", {**PARAGRAPH, "qas": [NO_ID]}, ROPES + "key 'id'"),
    ("ropes", {"background": "x"}, ROPES + "must be a JSON object, not null"),
    ("ropes", {**PARAGRAPH, "background": None}, ROPES + "key 'background' is missing"),
    ("ropes", {**PARAGRAPH, "situation": " "}, ROPES + "key 'situation' is empty"),
    ("squad", qa("Oder", 1), r"data\[0\].*qas\[1\].*answer_start': the text at 1 is not 'Oder'"),
    ("qqp", "6\t1\t2\tWhy?", UNDER_HEAD + r"has 4 cells, not 6 \(id, qid1"),
    ("rte", "3\tI.\tI.\tmaybe", UNDER_HEAD + "key 'label': 'maybe' is none of the labels entail"),
    *(
        ("stsb", SCORE % bad, UNDER_HEAD + f"key 'score' must be .*, not '{bad}'")
        for bad in ("nan", "inf", "much")
    ),
]


@pytest.mark.parametrize(("task", "bad", "said"), FAULTS)
def test_a_malformed_row(tmp_path, task, bad, said):
    file, around, good = FILES[task]
    rows = [good, bad, good]
    if "%" in around:
        content = [around % ", ".join(map(json.dumps, rows))]
    else:
        content = [around, *rows] if around else rows
    path = write(tmp_path / file, *content)
    line = refused(read, task, tmp_path, error=DataError, match=f"{path}, {said}")
    assert f"(on_error: skip in the block of task {task!r} leaves" in line
    found = split(task, tmp_path, on_error="skip")
    assert (len(found.examples), found.malformed) == (2, 1)


@pytest.mark.parametrize("content", ["{", '{"data": []}', "[]"])
def test_a_file_of_another_shape(tmp_path, content):
    write(tmp_path / "web-dev.json", content)
    refused(read, "triviaqa", tmp_path, error=DataError, match=r"web-dev\.json: ")


@pytest.mark.parametrize(("name", "other"), [("wiqa", "quartz"), ("quartz", "wiqa")])
def test_files_of_equal_names_are_told_apart(tmp_path, name, other):
    write(tmp_path / "test.jsonl", JOINED[other])
    with pytest.raises(DataError, match=rf"test\.jsonl: is not a file of task '{name}'"):
        read(name, tmp_path)
    write(tmp_path / name / "test.jsonl", JOINED[name])
    assert len(read(name, tmp_path)) == 1
