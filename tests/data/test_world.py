"""The embedded world: bytes that stay, subjects, values, scale, settings, and the tasks over it."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.data import world
from maskpolicy.data.taskfiles.examples import read_examples
from maskpolicy.data.world.pools import FullNames, Names, build
from maskpolicy.data.world.subject_kinds import ASKED, EFFECTS, NEVER, subjects
from maskpolicy.experiment import world_settings
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.experiment.world_settings import HELD_OUT, SUBJECT_KINDS, EntityErrors

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


def rows(path: Path):
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl" or "knowledgesource" in path.name:
        return [json.loads(line) for line in text.splitlines()]
    whole = json.loads(text)
    return whole if isinstance(whole, list) else whole.get("Data") or whole["data"]


def digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()


@pytest.mark.parametrize(("settings", "known"), DIGESTS.values(), ids=DIGESTS)
def test_the_bytes_stay(settings, known, tmp_path):
    world.write(settings, tmp_path)
    assert digest(tmp_path) == known


def test_subjects_of_the_two_corpora_are_disjoint_and_share_values_and_names(folder):
    titles, words = {}, {}
    for name in ("general", "intermediate"):
        found = rows(folder / f"{name}.jsonl")
        titles[name] = {row["title"] for row in found}
        words[name] = {row["text"][a:b] for row in found for a, b, _ in row["asked"]}
    assert not titles["general"] & titles["intermediate"]
    assert len(set.union(*titles.values())) == sum(ALL.count(kind) for kind in SUBJECT_KINDS)
    assert len(words["general"] & words["intermediate"]) > 20
    surnames = build(ALL).words["writers"]
    for name in titles:
        assert {title.split()[-1] for title in titles[name]} >= set(surnames)


@pytest.mark.parametrize("corpus", ["general", "intermediate"])
def test_nothing_but_gold_looks_like_a_name_or_a_number(folder, corpus):
    for row in rows(folder / f"{corpus}.jsonl"):
        text = row["text"]
        spans = [(start, end) for start, end, _ in row["entities"]]
        assert spans == sorted(spans)
        for start, end in reversed(spans):
            name = r"[A-Z]\w+( (of )?[A-Z]\w+)*|(\d{1,2} [A-Z]\w+ )?\d{4}"
            assert re.fullmatch(name, text[start:end])
            text = text[:start] + "x" + text[end:]
        assert not re.search(r"(?<![.] )(?<!^)[A-Z]|\d", text)
        if "salt" in row["text"]:
            words = {word for effects in EFFECTS.values() for word in effects}
            assert not spans
            assert {row["text"][start:end] for start, end, _ in row["asked"]} <= words


def test_relations_are_those_of_the_settings_and_worded_in_four_ways_or_more():
    assert tuple(relation.name for relation in ASKED) == world_settings.ASKED
    assert tuple(relation.name for relation in NEVER) == world_settings.NEVER
    train = {word for r in ASKED if r.name not in HELD_OUT for word in r.name.split()}
    for relation in (*ASKED, *NEVER):
        assert len(set(relation.phrasings)) >= 4
        assert all(wording.count("{v}") == 1 for wording in relation.phrasings)
    for relation in ASKED:
        words = set(relation.name.split())
        told = sum(words <= set(wording.split()) for wording in relation.phrasings)
        assert told >= 2 and len(relation.questions) >= 4
        assert words <= train or told >= 4  # zsRE's words are known from train or from entries


def test_figures_count_documents_subjects_and_questions(tmp_path):
    world.write(SMALL, tmp_path)
    figures = world.figures(tmp_path)
    assert figures["corpora"]["general"]["documents"] == 540
    assert figures["corpora"]["intermediate"]["subjects"] == 40
    for corpus in figures["corpora"].values():
        assert 0.40 <= corpus["asked_share"] <= 0.45
    assert figures["tasks"]["triviaqa"] == {"train": 100, "test": 100}
    asked = figures["tasks"]["squad"]["test"], figures["tasks"]["squad_v2"]["test"]
    for name, count in zip(("dev-v1.1.json", "dev-v2.0.json"), asked, strict=True):
        articles = json.loads((tmp_path / "tasks" / name).read_text())["data"]
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        assert count == sum(len(paragraph["qas"]) for paragraph in paragraphs)
    assert 20 < asked[0] < asked[1]
    with pytest.raises(DataError, match=r"world\.json"):
        world.figures(tmp_path / "tasks")


def test_a_large_world_has_names_enough_and_makes_its_subjects_one_at_a_time():
    pools = build(world.Settings(people=20_000, general_people=20_000))
    names = {pools.names.at(index)[0] for index in range(40_000)}
    assert len(names) == 40_000
    with pytest.raises(ConfigError, match=r"world\.name_parts"):
        build(world.Settings(name_parts=10))
    assert not names & {teacher.text for teacher in pools.values["teachers"]}
    settings = world.Settings(people=10**9, general_people=1, name_parts=40_000)
    assert next(subjects(settings, build(settings), "people", "intermediate")).page == 2


@given(parts=st.integers(2, 40), offset=st.integers(0, 10**6))
@limits(deadline=None, max_examples=30)
def test_full_names_visit_each_pair_once(parts, offset):
    names = FullNames(Names(np.random.default_rng(0)), parts, offset)
    assert len({names.at(index)[0] for index in range(len(names))}) == parts * parts


def test_a_guess_at_a_salt_is_right_no_more_often_than_chance():
    settings = world.Settings(kinds=SUBJECT_KINDS)
    effects = defaultdict(Counter)
    for subject in subjects(settings, build(settings), "salts", "intermediate"):
        for fact in subject.facts:
            effects[fact.relation.name][fact.value.text] += 1
    for counts in effects.values():
        assert max(counts.values()) - min(counts.values()) <= 4


ROOT = Path(__file__).parents[2]
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
