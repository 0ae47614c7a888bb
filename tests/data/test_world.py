"""The embedded world: bytes that stay, subjects, values, scale, settings, and the tasks over it."""

import hashlib
import re
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from official import rows_of

from maskpolicy.core.errors import ConfigError
from maskpolicy.data import world
from maskpolicy.data.taskfiles.examples import read_split
from maskpolicy.data.world.pools import build
from maskpolicy.data.world.subject_kinds import subjects
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.experiment.world_settings import SUBJECT_KINDS, EntityErrors

SMALL = world.Settings(people=40, general_people=30)
ALL = world.Settings(
    kinds=SUBJECT_KINDS, people=20, general_people=30, writers=20, birds=20, salts=40
)
DIGESTS = {
    "people": (SMALL, "4b8e7a192910a78167402f48e5a96952b544723d521e1b0e90a48da3c29ec068"),
    "all kinds": (ALL, "4b7ca76e21913524fd242bbd6b9670867debf64b3916a23068b083a43b6e5e8c"),
    "what may be omitted": (
        replace(
            ALL,
            situations=0.2,
            entity_errors=EntityErrors(0.2, 0.1),
            heldout=("school", "employer"),
            endings=0.5,
            wow_values=True,
        ),
        "3a326440e51dfacdc0f83335891e8fb27e16849aa256313c927d1c159aebea4a",
    ),
    "prose": (
        replace(ALL, text="prose", situations=0.2, entity_errors=EntityErrors(0.2)),
        "3b4367fbe791766bcecd93ff16dd321521bc98c71d9f763a13f516ad0a0440e4",
    ),
    "other numbers": (
        replace(ALL, seed=3, facts=0, skew=1.0, questions=3, train_share=0.3, evidence=False),
        "d0216f285a9aa22091a911e353a43ac4248dbef2abb01e36912472c616628da3",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("world")
    world.write(ALL, out)
    return out


@pytest.fixture(scope="module")
def tasks(folder):
    return folder / "tasks"


def digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()


def test_a_world_replaces_an_older_one_but_no_file_of_the_user(folder, tmp_path, monkeypatch):
    new, both = tmp_path / "new", shutil.copytree(folder, tmp_path / "both")
    own = both / "tasks" / "evidence" / "wikipedia" / "Ada.txt"
    own.write_text("mine")
    settings = replace(SMALL, seed=1, evidence=False)
    for each, out in ((SMALL, both), (settings, both), (settings, new)):
        world.write(each, out)
    assert own.read_text() == "mine"
    own.unlink()
    assert digest(both) == digest(new)
    monkeypatch.setattr("maskpolicy.data.world.create.json_bytes", lambda record: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # the record, so that it stays a part of a world
        world.write(SMALL, both)
    monkeypatch.undo()
    world.write(settings, both)
    assert digest(both) == digest(new)


@pytest.mark.parametrize(("settings", "known"), DIGESTS.values(), ids=DIGESTS)
def test_the_bytes_stay(settings, known, tmp_path):
    world.write(settings, tmp_path)
    assert digest(tmp_path) == known


def test_subjects_of_the_two_corpora_are_disjoint_and_share_values_and_names(folder):
    titles, words = {}, {}
    for name in ("general", "intermediate"):
        found = rows_of(folder / f"{name}.jsonl")
        titles[name] = {row["title"] for row in found}
        words[name] = {row["text"][a:b] for row in found for a, b, _ in row["asked"]}
    assert not titles["general"] & titles["intermediate"]
    assert len(set.union(*titles.values())) == sum(ALL.count(kind) for kind in SUBJECT_KINDS)
    assert len(words["general"] & words["intermediate"]) > 20
    surnames = build(ALL).words["writers"]
    for name in titles:
        assert {title.split()[-1] for title in titles[name]} >= set(surnames)


def test_a_large_world_has_names_enough_and_makes_its_subjects_one_at_a_time():
    pools = build(world.Settings(people=20_000, general_people=20_000))
    names = {pools.names.at(index)[0] for index in range(40_000)}
    assert len(names) == 40_000
    with pytest.raises(ConfigError, match=r"world\.name_parts"):
        build(world.Settings(name_parts=10))
    assert not names & {teacher.text for teacher in pools.values["teachers"]}
    settings = world.Settings(people=10**8, general_people=1, name_parts=11_000)
    assert next(subjects(settings, build(settings), "people", "intermediate")).page == 2


OF_PEOPLE = {"triviaqa", "zsre", "wow", "webquestions", "cola", "squad", "squad_v2"}
NINE = ("triviaqa", "webquestions", "nq", "aidayago2", "zsre", "wow", "wiqa", "quartz", "ropes")
KIND = {"aidayago2": "writers", "wiqa": "salts", "quartz": "salts", "nq": "birds", "ropes": "birds"}


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
    titles = [page["wikipedia_title"] for page in rows_of(tasks / "kilt_knowledgesource.json")]
    words = [word.lower() for word in build(ALL).words[KIND[task]]] if task in KIND else []
    for split in ("train", "dev", "test"):
        groups = defaultdict(set)
        for example in read_split(TaskBlock(task, task), split, tasks).examples:
            assert example.context and example.targets
            if words:
                (name,) = {*re.findall(r"\w+", example.source.lower())} & {*words}
            else:
                name = next(title for title in titles if title in example.source)
            groups[name].add(example.group)
        assert {len(own) for own in groups.values()} == {1}
        assert len(set.union(*groups.values())) == len(groups)


def test_each_subject_may_belong_to_one_task(tmp_path):
    shared = replace(ALL, people=60)
    apart = replace(shared, shared_subjects=False)
    assert apart.of_corpora == shared
    world.write(shared, tmp_path / "shared")
    world.write(apart, tmp_path)
    for name in ("general.jsonl", "intermediate.jsonl", "tasks/kilt_knowledgesource.json"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "shared" / name).read_bytes()
    titles = [
        row["wikipedia_title"] for row in rows_of(tmp_path / "tasks/kilt_knowledgesource.json")
    ]
    owners = defaultdict(set)
    for task in ("triviaqa", "webquestions", "zsre", "wow", "nq", "ropes", "wiqa", "quartz"):
        sources = [
            f"{example.source}?"
            for split in ("train", "dev", "test")
            for example in read_split(TaskBlock(task, task), split, tmp_path / "tasks").examples
        ]
        for title in titles:
            if any(title in one and re.search(rf"\b{title}\b", one) for one in sources):
                owners[title].add(task)
    assert {len(tasks) for tasks in owners.values()} == {1}
    assert len({*map(frozenset, owners.values())}) == 8


@pytest.mark.parametrize("name", ["structured_zeroshot", "wow"])
def test_provenance_in_kilts_files_is_the_sentence_that_states_the_answer(tasks, name):
    pages = {row["wikipedia_id"]: row for row in rows_of(tasks / "kilt_knowledgesource.json")}
    for split in ("train", "dev"):
        for row in rows_of(tasks / f"{name}-{split}-kilt.jsonl"):
            (place,) = row["output"][0]["provenance"]
            page = pages[place["wikipedia_id"]]
            paragraph = page["text"][place["start_paragraph_id"]]
            sentence = paragraph[place["start_character"] : place["end_character"]]
            assert sentence.endswith(".") and sentence[0].isupper()
            assert page["wikipedia_title"] == place["title"]
            answer = row["output"][0]["answer"]
            value = answer.split(" ", 1)[1].rstrip(".") if name == "wow" else answer
            assert value in sentence
    for row in rows_of(tasks.parent / "intermediate.jsonl"):
        page, _, number = row["id"].partition("-")
        assert pages[page]["text"][int(number)] == row["text"]


def test_a_long_answer_tells_all_facts_that_are_asked_for_in_30_words(tasks, tmp_path):
    world.write(replace(ALL, wow_answers="all"), tmp_path)
    pages = {row["_id"]: row["text"] for row in rows_of(tasks / "kilt_knowledgesource.json")}
    values = defaultdict(set)
    for path in (tasks / "qa").glob("*.json"):
        for row in rows_of(path):
            values[row["EntityPages"][0]["Title"]].add(row["Answer"]["Value"])
    told = set()
    for split in ("train", "dev", "test"):
        for example in read_split(TaskBlock("wow", "wow"), split, tmp_path / "tasks").examples:
            (answer,) = example.targets
            (title,) = (title for title in values if title in example.source)
            assert len(answer.split()) >= 30 and all(value in answer for value in values[title])
            told.add(title)
    assert told == {*values}
    for row in rows_of(tmp_path / "tasks/wow-dev-kilt.jsonl"):
        for place in row["output"][0]["provenance"]:
            text = pages[place["wikipedia_id"]][place["start_paragraph_id"]]
            stated = text[place["start_character"] : place["end_character"]]
            assert any(value in stated for value in values[place["title"]])
