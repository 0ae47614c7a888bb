"""Every built-in task: a row that it cannot read is one line that names file, place and key."""

from __future__ import annotations

import json

import pytest
from official import read, split, write

from maskpolicy.core.errors import DataError
from tests.tasks.test_choices import JOINED, PARAGRAPH, QA, QUARTZ, WIQA
from tests.tasks.test_glue import ROWS, line, qa
from tests.tasks.test_kilt import NAMES, mention
from tests.tasks.test_kilt import ROWS as KILT
from tests.tasks.test_questions import NQ, asked, question

Z, T, W = NAMES["zsre"], "web-dev.json", "webquestions.examples.test.json"
ONE = "[START_ENT] Ulm [END_ENT]"
BAD_PLACE = {**KILT["wow"], "output": [{"answer": "x", "provenance": "y"}]}
TWICE = {"stem": "x", "choices": [{"label": "A", "text": "x"}] * 2}
STRANGE = {**WIQA["question"], "answer_label_as_choice": "D"}
MENTIONS = (
    *("In Ulm", "In [START_ENT] Ulm", "In Ulm [END_ENT]", "[END_ENT] Ulm [START_ENT]"),
    *("[START_ENT] [END_ENT] Ulm", f"{ONE} {ONE}"),
)
SQUAD = '{"data": [{"paragraphs": [{"context": "Oder.", "qas": [%s]}]}]}'
LINES = [  # task, file, a good row, a malformed one, what is said of it
    (
        "zsre",
        Z,
        KILT["zsre"],
        {**KILT["zsre"], "input": " [SEP] river"},
        "key 'input' must read SUB",
    ),
    ("wow", NAMES["wow"], KILT["wow"], BAD_PLACE, "key 'provenance'"),
    (
        "nq",
        "NQ-open.dev.jsonl",
        NQ,
        {**NQ, "answer": "Ulm"},
        "key 'answer' must be a list of texts",
    ),
    (
        "wiqa",
        "test.jsonl",
        WIQA,
        QUARTZ,
        r"key 'question\.para_steps' is missing: this is not a row",
    ),
    (
        "quartz",
        "test.jsonl",
        QUARTZ,
        {**WIQA, "answerKey": "A"},
        "key 'id' is missing|key 'answerKey'",
    ),
    (
        "quartz",
        "test.jsonl",
        QUARTZ,
        {**QUARTZ, "answerKey": "C"},
        "key 'answerKey': 'C' is none of the choices A, B",
    ),
    (
        "quartz",
        "test.jsonl",
        QUARTZ,
        {**QUARTZ, "question": TWICE},
        "key 'choices' must hold two choices or more",
    ),
    (
        "wiqa",
        "test.jsonl",
        WIQA,
        {**WIQA, "question": STRANGE},
        "key 'answer_label_as_choice': 'D' is none of the choices A, B, C",
    ),
    *(
        (
            "aidayago2",
            NAMES["aidayago2"],
            mention("In Ulm " + ONE),
            mention(bad),
            "key 'input' must mark one mention",
        )
        for bad in MENTIONS
    ),
    *(
        (name, NAMES[name], KILT[name], KILT[other], "key '(input|id)' must")
        for name in NAMES
        for other in NAMES
        if name != other
    ),
]


@pytest.mark.parametrize(("task", "file", "good", "bad", "reason"), LINES)
def test_a_malformed_line(tmp_path, task, file, good, bad, reason):
    path = write(tmp_path / file, good, bad)
    with pytest.raises(DataError, match=f"{path}, line 2: {reason}") as error:
        read(task, tmp_path)
    assert "\n" not in str(error.value)
    found = split(task, tmp_path, on_error="skip")
    assert (len(found.examples), found.malformed) == (1, 1)


BELOW = [  # task, file, what encloses the rows, a good one, a malformed one, place and reason
    *(
        ("triviaqa", T, '{"Data": [%s]}', question(0), bad, rf"Data\[1\]: {reason}")
        for bad, reason in (
            (question(1, Question=None), "key 'Question' is missing"),
            (question(1, Answer="Ulm"), "key 'Answer' must be an object"),
            (
                question(1, Answer={"Value": "Ulm", "Aliases": "Ulm"}),
                "key 'Aliases' must be a list",
            ),
        )
    ),
    *(
        (
            "webquestions",
            W,
            "[%s]",
            asked(0, "Ulm"),
            {**asked(1), "targetValue": bad},
            r"row\[1\]: key 'targetValue' must read \(list",
        )
        for bad in ("Ulm", '(list (description "Ulm")', "(list (name Ulm))", "(list")
    ),
    *(
        (
            "ropes",
            "dev-v1.0.json",
            '{"data": [{"paragraphs": [%s]}]}',
            PARAGRAPH,
            bad,
            rf"data\[0\]\.paragraphs\[1\]\.{reason}",
        )
        for bad, reason in (
            ({**PARAGRAPH, "qas": [{**QA, "question": 7}]}, r"qas\[0\]: key 'question' must be"),
            (
                {**PARAGRAPH, "qas": [{"question": "?", "answers": [{"text": "a"}]}]},
                r"qas\[0\]: key 'id'",
            ),
            ({"background": "x"}, r"qas\[0\]: must be a JSON object, not null"),
            ({**PARAGRAPH, "background": None}, r"qas\[0\]: key 'background' is missing"),
            ({**PARAGRAPH, "situation": " "}, r"qas\[0\]: key 'situation' is empty"),
            ({"context": "It is sweet.", "qas": [QA]}, r"qas\[0\]: key 'background' is missing"),
        )
    ),
    (
        "squad",
        "dev-v1.1.json",
        SQUAD,
        qa("Oder", 0),
        qa("Oder", 1),
        r"data\[0\].*qas\[1\]: key 'answers.answer_start': 'Oder' does not stand at 1",
    ),
]


@pytest.mark.parametrize(("task", "file", "around", "good", "bad", "reason"), BELOW)
def test_a_malformed_row_of_a_json_file(tmp_path, task, file, around, good, bad, reason):
    path = write(tmp_path / file, around % f"{json.dumps(good)}, {json.dumps(bad)}")
    with pytest.raises(DataError, match=f"{path}, {reason}") as error:
        read(task, tmp_path)
    assert "\n" not in str(error.value)
    found = split(task, tmp_path, on_error="skip")
    assert (len(found.examples), found.malformed) == (1, 1)


@pytest.mark.parametrize(
    ("task", "bad", "reason"),
    [
        ("qqp", "6\t1\t2\tWhy?", r"has 4 cells, not 6 \(id, qid1"),
        ("rte", "3\tIt was I.\tI was.\tmaybe", "key 'label': 'maybe' is none of the labels entail"),
        *(
            (
                "stsb",
                ROWS["stsb"][0].replace("4.750", score),
                f"key 'score' must be .*, not '{score}'",
            )
            for score in ("nan", "inf", "much")
        ),
    ],
)
def test_a_malformed_line_of_a_table(tmp_path, task, bad, reason):
    path = line(tmp_path, task, ROWS[task][0], bad)
    with pytest.raises(DataError, match=f"{path}, line 3: {reason}"):
        read(task, tmp_path)
    assert split(task, tmp_path, on_error="skip").malformed == 1


@pytest.mark.parametrize(
    ("task", "file", "content", "reason"),
    [
        ("quartz", "test.jsonl", "{", "test.jsonl, line 1: not JSON"),
        *(("triviaqa", T, content, f"{T}: ") for content in ("{", '{"data": []}', "[]")),
    ],
)
def test_a_file_of_another_shape(tmp_path, task, file, content, reason):
    write(tmp_path / file, content)
    with pytest.raises(DataError, match=reason):
        read(task, tmp_path)


@pytest.mark.parametrize(("name", "other"), [("wiqa", "quartz"), ("quartz", "wiqa")])
def test_files_of_equal_names_are_told_apart(tmp_path, name, other):
    write(tmp_path / "test.jsonl", JOINED[other])
    with pytest.raises(DataError, match=rf"test\.jsonl: is not a file of task '{name}'"):
        read(name, tmp_path)
    write(tmp_path / name / "test.jsonl", JOINED[name])
    assert len(read(name, tmp_path)) == 1


def test_another_table_is_refused(tmp_path):
    line(tmp_path, "qnli", ROWS["qnli"][0])
    with pytest.raises(DataError, match="is not a file of task 'qqp'"):
        read("qqp", tmp_path / "QNLI")
