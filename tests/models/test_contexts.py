"""The contexts of each task: where they come from, what they hold, what is counted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import small

from maskpolicy.core.errors import DataError
from maskpolicy.data.world import make, write
from maskpolicy.experiment import learned_policies
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.world_settings import SUBJECT_KINDS
from maskpolicy.models.learned import fit_tools as contexts

PAPER = sorted((Path(__file__).parents[2] / "experiments" / "paper").glob("*.yaml"))
NINE = (
    *("triviaqa", "nq", "webquestions", "zsre", "wow"),
    *("aidayago2", "ropes", "wiqa", "quartz"),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write(make({"people": 24, "general_people": 6, "kinds": list(SUBJECT_KINDS)}), folder)
    return folder


def corpus(world):
    lines = (world / "intermediate.jsonl").read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.mark.parametrize("task", NINE)
def test_every_task_has_contexts_and_marks_the_answers_in_them(world, task):
    for split in contexts.SPLITS:
        rows, counts = contexts.find_contexts(TaskBlock(task, task), split, world / "tasks")
        assert counts["examples"] == len(rows) + counts["without_context"] > 0
        assert counts["without_answer"] == sum(not row["answers"] for row in rows)
        assert counts["answers"] == sum(len(row["answers"]) for row in rows)
        for row in rows:
            assert row["context"].strip()
            for start, end in row["answers"]:
                assert row["context"][start:end].strip()
                if task != "aidayago2":
                    found = row["context"][start:end].lower()
                    assert found in " | ".join(row["targets"]).lower()


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_what_the_papers_policies_learn_from_holds_answers(world, path):
    source = world / "tasks" / "kilt_knowledgesource.json"
    files = [f"corpus.files=[{source}]"]
    if path.stem == "multiple-choice":
        files.append(f"policies.2.corpus.mix.other.files=[{source}]")
    made = load_experiment(path, [f"data={world / 'tasks'}", *files])
    for block in filter(learned_policies.is_learned, made.policies):
        first = learned_policies.start(block) or block
        for task in learned_policies.tasks(first, made.tasks, made.data):
            rows, _ = contexts.find_contexts(task, "train", world / "tasks")
            assert sum(bool(row["answers"]) for row in rows) >= 0.2 * len(rows), block.label


@pytest.mark.parametrize("task", ["nq", "webquestions"])
def test_without_dprs_file_the_best_passage_with_an_answer_is_retrieved(world, task, tmp_path):
    folder = shutil.copytree(world / "tasks", tmp_path / "tasks")
    for path in folder.glob("biencoder-*"):
        path.unlink()
    block = TaskBlock(task, task)
    with pytest.raises(DataError, match=f"no train example of task {task!r} has a context: put"):
        contexts.find_contexts(block, "train", folder)
    rows, counts = contexts.find_contexts(block, "train", folder, corpus(world))
    assert counts["retrieved"] == len(rows) > 0
    assert counts["without_answer"] == 0
    assert {row["context"] for row in rows} <= set(corpus(world))


def test_a_passage_that_shares_no_word_with_the_question_is_not_retrieved(tmp_path):
    rows = [{"question": f"who met anna {n}", "answer": ["Ulm"]} for n in range(20)]
    (tmp_path / "NQ-open.train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    texts = ["Ulm is a town.", "Anna lives there.", "Ulm is where Anna lives."]
    found, counts = contexts.find_contexts(TaskBlock("nq", "nq"), "train", tmp_path, texts)
    assert {row["context"] for row in found} == {texts[2]}
    assert counts["retrieved"] == len(found) == counts["examples"]
    with pytest.raises(DataError, match="has a context"):
        contexts.find_contexts(TaskBlock("nq", "nq"), "train", tmp_path, texts[:2])


def test_an_empty_context_and_one_without_the_answer_are_counted(tmp_path):
    choices = [{"label": label, "text": text} for label, text in (("A", "Ulm"), ("B", "Rome"))]
    question = {"stem": "Where?", "choices": choices}
    for split in contexts.SPLITS:
        rows = [
            {"id": f"{number}", "para": text, "question": question, "answerKey": "A"}
            for number, text in enumerate(["Ulm, in the Ulm area.", " ", "Bonn.", "ulm!"] * 2)
        ]
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = [
        contexts.find_contexts(TaskBlock("quartz", "it"), side, tmp_path)
        for side in contexts.SPLITS
    ]
    total = {name: sum(counts[name] for _, counts in found) for name in found[0][1]}
    assert total["examples"] == 16
    assert total["without_context"] == 4
    assert total["without_answer"] == 4
    assert total["answers"] == 12


@pytest.mark.parametrize(("language", "answer"), [("en", "他在巴黎出生"), ("zh", "巴黎")])
def test_an_answer_is_of_whole_words_of_the_language(tmp_path, language, answer):
    row = {"id": "a", "group": "a", "source": "?", "targets": ["巴黎"], "context": "他在巴黎出生"}
    line = json.dumps({**row, "answers": [[2, 4]]}) + "\n"
    for split in contexts.SPLITS:
        (tmp_path / f"{split}.jsonl").write_text(line, encoding="utf-8")
    (tmp_path / contexts.COUNTS).write_text(json.dumps({"task": "nq", "counts": {}}))
    loaded = contexts.load_contexts(tmp_path, small.tokenizer(), language=language)
    (one,) = loaded.train
    assert one.passage.texts(one.answers) == [answer]


def test_an_alias_inside_a_longer_one_is_no_answer_of_its_own(tmp_path):
    answers = ["Burmley", "Burmley College", "the College"]
    rows = [{"question": f"who met anna {n}", "answer": answers} for n in range(9)]
    (tmp_path / "NQ-open.train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    text = "Anna saw Burmley College, and Burmley."
    found, _ = contexts.find_contexts(TaskBlock("nq", "nq"), "train", tmp_path, [text, "Anna."])
    spans = [text[start:end] for start, end in found[0]["answers"]]
    assert spans == ["Burmley College", "Burmley"]


@pytest.mark.parametrize("task", ["ropes", "wiqa", "quartz"])
def test_real_rows_have_contexts(real_data, task):
    rows, counts = contexts.find_contexts(TaskBlock(task, task), "train", real_data)
    assert len(rows) == counts["examples"] - counts["without_context"] > 0
    if task == "ropes":  # the answers of the others are choices, mostly not in them
        assert counts["answers"] >= len(rows) - counts["without_answer"] > 0
