"""The tasks over the embedded world: their official files, and what the built-in tasks read."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from maskpolicy.data import world
from maskpolicy.data.taskfiles.examples import read_examples
from maskpolicy.data.world.pools import build
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.experiment.world_settings import SUBJECT_KINDS

ROOT = Path(__file__).parents[2]
ALL = world.Settings(
    kinds=SUBJECT_KINDS, people=20, general_people=30, writers=20, birds=20, salts=40
)
OF_PEOPLE = {"triviaqa", "zsre", "wow", "webquestions", "cola", "squad", "squad_v2"}
NINE = ("triviaqa", "webquestions", "nq", "aidayago2", "zsre", "wow", "wiqa", "quartz", "ropes")
KIND = {"aidayago2": "writers", "wiqa": "salts", "quartz": "salts", "nq": "birds", "ropes": "birds"}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    out = tmp_path_factory.mktemp("world")
    world.write(ALL, out)
    return out / "tasks"


def rows(path: Path):
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl" or "knowledgesource" in path.name:
        return [json.loads(line) for line in text.splitlines()]
    whole = json.loads(text)
    return whole if isinstance(whole, list) else whole.get("Data") or whole["data"]


def test_a_kind_comes_with_its_tasks_and_files(tasks, tmp_path):
    world.write(
        world.Settings(kinds=("people", "birds"), people=4, general_people=4, birds=4), tmp_path
    )
    assert {*world.figures(tmp_path)["tasks"]} == OF_PEOPLE | {"nq", "ropes"}
    assert {*world.figures(tasks.parent)["tasks"]} == OF_PEOPLE | {*NINE}
    written = {path.relative_to(tasks).as_posix() for path in tasks.rglob("*") if path.is_file()}
    kinds = world.KINDS_BY_FILE
    assert {*kinds} == {name for name in written if not name.startswith("evidence/")}
    there = {name for name in kinds if (tmp_path / "tasks" / name).is_file()}
    assert there == {name for name, kind in kinds.items() if kind in ("", "people", "birds")}


@pytest.mark.parametrize("task", NINE)
def test_built_in_tasks_read_examples_whose_groups_are_subjects(tasks, task):
    """Every row about a bird, writer, person or salt names it by a word that no other has."""
    titles = [page["wikipedia_title"] for page in rows(tasks / "kilt_knowledgesource.json")]
    words = [word.lower() for word in build(ALL).words[KIND[task]]] if task in KIND else []
    for split in ("train", "dev", "test"):
        groups = defaultdict(set)
        for example in read_examples(TaskBlock(task, task), split, tasks):
            assert example.context and example.targets
            if words:
                (name,) = {*re.findall(r"\w+", example.source.lower())} & {*words}
            else:
                name = next(title for title in titles if title in example.source)
            groups[name].add(example.group)
        assert {len(own) for own in groups.values()} == {1}
        assert len(set.union(*groups.values())) == len(groups)


def test_subjects_of_train_and_dev_are_disjoint_and_the_same_in_all_tasks(tasks):
    asked = {}
    for split in ("train", "dev"):
        trivia = rows(tasks / f"qa/wikipedia-{split}.json")
        asked[split] = {row["EntityPages"][0]["Title"] for row in trivia}
        for row in rows(tasks / f"wow-{split}-kilt.jsonl"):
            assert row["output"][0]["provenance"][0]["title"] in asked[split]
    assert len(asked["train"]) == len(asked["dev"]) == 10
    assert not asked["train"] & asked["dev"]


def test_zsre_asks_for_new_relations_in_dev_or_for_those_of_the_setting(tasks, tmp_path):
    heldout = {"heldout": ["school", "employer"], "kinds": list(SUBJECT_KINDS)}
    numbers = {"people": 20, "general_people": 30, "writers": 20, "birds": 20, "salts": 40}
    world.write(world.make({**heldout, **numbers}), tmp_path)
    of_people = {"place of birth", "year of birth", "year of death"}
    usual = {"place of death", "school", "year of discovery"}
    for folder, dev, train in (
        (tasks, usual, of_people | {"employer", "place of nesting", "describer"}),
        (
            tmp_path / "tasks",
            {"school", "employer"},
            of_people | usual - {"school"} | {"place of nesting", "describer"},
        ),
    ):
        for split, wanted in (("train", train), ("dev", dev)):
            found = rows(folder / f"structured_zeroshot-{split}-kilt.jsonl")
            assert {row["input"].split(" [SEP] ")[1] for row in found} == wanted
    changed = {
        path.name
        for path in tasks.rglob("*")
        if path.is_file()
        and path.read_bytes() != (tmp_path / path.relative_to(tasks.parent)).read_bytes()
    }
    assert changed == {f"structured_zeroshot-{split}-kilt.jsonl" for split in ("train", "dev")}


@pytest.mark.parametrize("name", ["structured_zeroshot", "wow"])
def test_provenance_in_kilts_files_is_the_sentence_that_states_the_answer(tasks, name):
    pages = {row["wikipedia_id"]: row for row in rows(tasks / "kilt_knowledgesource.json")}
    for split in ("train", "dev"):
        for row in rows(tasks / f"{name}-{split}-kilt.jsonl"):
            (place,) = row["output"][0]["provenance"]
            page = pages[place["wikipedia_id"]]
            paragraph = page["text"][place["start_paragraph_id"]]
            sentence = paragraph[place["start_character"] : place["end_character"]]
            assert sentence.endswith(".") and sentence[0].isupper()
            assert page["wikipedia_title"] == place["title"]
            answer = row["output"][0]["answer"]
            value = answer.split(" ", 1)[1].rstrip(".") if name == "wow" else answer
            assert value in sentence
    for row in rows(tasks.parent / "intermediate.jsonl"):
        page, _, number = row["id"].partition("-")
        assert pages[page]["text"][int(number)] == row["text"]


@pytest.mark.parametrize("name", ["wiqa", "quartz"])
def test_salts_are_asked_about_in_one_of_the_three_files_by_their_law(tasks, name):
    of_part = []
    for part in ("train", "dev", "test"):
        found = rows(tasks / name / f"{part}.jsonl")
        ids = [row.get("id") or row["metadata"]["ques_id"] for row in found]
        of_part.append({re.split("[-:]", each)[1] for each in ids})
        for row in found:
            choices = {choice["label"]: choice["text"] for choice in row["question"]["choices"]}
            law = row.get("para") or row["question"]["para_steps"][1]
            right = choices[row.get("answerKey") or row["question"]["answer_label_as_choice"]]
            told = [text for text in choices.values() if f" {text}" in law]
            assert told == [right] or (right == "no effect" and " equal " in law)
    train, dev, test = of_part
    assert train and dev and test
    assert not train & dev and not train & test and not dev & test


def test_every_task_asks_250_test_questions_or_more(tmp_path):
    settings = yaml.safe_load((ROOT / "experiments" / "nine-tasks.yaml").read_text("utf-8"))[
        "world"
    ]
    world.write(world.make(settings), tmp_path)
    asked = world.figures(tmp_path)["tasks"]
    assert {name: counts["test"] for name, counts in asked.items() if counts["test"] < 250} == {}
