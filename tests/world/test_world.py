"""The embedded world's corpora: determinism, subjects, values, gold offsets, scale."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from maskpolicy import world
from maskpolicy.corpus import entities
from maskpolicy.errors import ConfigError, DataError
from maskpolicy.world.entries import ENDINGS, entries
from maskpolicy.world.invented_names import FullNames, Names
from maskpolicy.world.people import person
from maskpolicy.world.pools import build
from maskpolicy.world.settings import SUBJECT_KINDS
from maskpolicy.world.subject_kinds import subjects
from maskpolicy.world.wordings import ASKED, NEVER

SMALL = world.Settings(people=40, general_people=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("world")
    world.write(SMALL, out)
    return out


def rows(path: Path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()


def test_same_settings_give_the_same_bytes_under_any_hash_seed(folder, tmp_path):
    code = (
        "import sys, pathlib; from maskpolicy import world;"
        "world.write(world.Settings(people=40, general_people=30), pathlib.Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)
    assert digest(tmp_path) == digest(folder)


@pytest.mark.parametrize(
    ("settings", "known"),
    [
        (SMALL, "4b8e7a192910a78167402f48e5a96952b544723d521e1b0e90a48da3c29ec068"),
        (
            world.Settings(
                kinds=SUBJECT_KINDS, people=20, general_people=30, writers=20, birds=20, salts=40
            ),
            "4b7ca76e21913524fd242bbd6b9670867debf64b3916a23068b083a43b6e5e8c",
        ),
    ],
    ids=["people", "all kinds"],
)
def test_without_further_settings_the_bytes_stay(settings, known, tmp_path):
    world.write(settings, tmp_path)
    assert digest(tmp_path) == known


def test_another_seed_gives_another_world(folder, tmp_path):
    world.write(world.Settings(people=40, general_people=30, seed=1), tmp_path)
    assert digest(tmp_path) != digest(folder)


def test_subjects_of_the_two_corpora_are_disjoint_but_share_name_parts(folder):
    general = {row["title"] for row in rows(folder / "general.jsonl")}
    intermediate = {row["title"] for row in rows(folder / "intermediate.jsonl")}
    assert (len(general), len(intermediate)) == (30, 40)
    assert not general & intermediate
    for part in (0, 1):
        assert {name.split()[part] for name in general} & {n.split()[part] for n in intermediate}


def test_asked_values_are_shared_by_the_corpora(folder):
    words = {
        name: {
            row["text"][a:b] for row in rows(folder / f"{name}.jsonl") for a, b, _ in row["asked"]
        }
        for name in ("general", "intermediate")
    }
    pool = {value.text for values in build(SMALL).values.values() for value in values}
    assert words["general"] | words["intermediate"] <= pool
    assert len(words["general"] & words["intermediate"]) > 20


@pytest.mark.parametrize("corpus", ["general", "intermediate"])
def test_gold_entities_are_whole_names_dates_and_years(folder, corpus):
    for row in rows(folder / f"{corpus}.jsonl"):
        marked = [row["text"][start:end] for start, end, _ in row["entities"]]
        assert marked[0] == row["title"]
        assert len(set(marked)) == len(marked) == 1 + SMALL.facts
        for text in marked:
            assert re.fullmatch(r"[A-Z]\w+( (of )?[A-Z]\w+)*|(\d{1,2} [A-Z]\w+ )?\d{4}", text)
        spans = [(start, end) for start, end, _ in row["entities"]]
        assert spans == sorted(spans)
        assert {(start, end) for start, end, _ in row["asked"]} <= set(spans)


def test_nothing_but_gold_looks_like_a_name_inside_a_sentence(folder):
    for row in rows(folder / "general.jsonl"):
        text = row["text"]
        for start, end, _ in reversed(row["entities"]):
            text = text[:start] + "x" + text[end:]
        assert not re.search(r"(?<![.] )(?<!^)[A-Z]|\d", text)


def test_an_entry_names_its_subject_once_and_is_short(folder):
    for row in rows(folder / "intermediate.jsonl"):
        for part in row["title"].split():
            assert row["text"].split(".")[0].count(part) == 1
        assert row["text"].count(row["title"]) == 1
        assert 7 <= len(row["text"].split()) <= 20


def test_the_entries_of_a_subject_word_each_fact_differently():
    subject = person(SMALL, build(SMALL), 3, 4)
    made = entries(subject, 4, 0, SMALL.seed)
    for fact in subject.facts:
        stated = {entry.text[slice(*entry.sentences[fact.relation.name])] for entry in made}
        assert len(stated) == 4
        assert all(fact.value.text in sentence for sentence in stated)


def test_the_entries_of_a_subject_state_all_facts_equally_often():
    subject = person(SMALL, build(SMALL), 3, 4)
    made = entries(subject, SMALL.entries, SMALL.facts, SMALL.seed)
    assert all(len(entry.sentences) == 1 for entry in made)
    said = [relation for entry in made for relation in entry.sentences]
    assert {said.count(fact.relation.name) for fact in subject.facts} == {3}


def test_a_share_of_the_entries_goes_on_after_the_fact(folder, tmp_path):
    world.write(replace(SMALL, endings=0.5), tmp_path)
    without, ended = (rows(each / "intermediate.jsonl") for each in (folder, tmp_path))
    more = [new["text"].removeprefix(old["text"]) for old, new in zip(without, ended, strict=True)]
    assert {text.strip() for text in more} == {"", *ENDINGS}
    assert 0.45 < sum(bool(text) for text in more) / len(more) < 0.55
    assert [row | {"text": ""} for row in without] == [row | {"text": ""} for row in ended]
    for row, text in zip(ended, more, strict=True):
        found = [row["text"][start:end] for start, end, _ in entities.find(row["text"])]
        assert found == [row["text"][start:end] for start, end, _ in row["entities"]], text


@pytest.mark.parametrize("relation", [*ASKED, *NEVER], ids=lambda relation: relation.name)
def test_each_relation_is_worded_in_four_ways_or_more(relation):
    assert len(set(relation.phrasings)) >= 4
    assert all(wording.count("{v}") == 1 for wording in relation.phrasings)
    if relation.asked:
        said = [set(relation.name.split()) <= set(w.split()) for w in relation.phrasings]
        assert sum(said) >= 2
        assert len(relation.questions) >= 4


def test_asked_relations_are_40_to_45_percent_of_the_mentions(folder):
    for corpus in world.figures(folder)["corpora"].values():
        assert 0.40 <= corpus["asked_share"] <= 0.45


def test_figures_count_documents_subjects_and_questions(folder):
    figures = world.figures(folder)
    assert figures["corpora"]["general"]["documents"] == 540
    assert figures["corpora"]["intermediate"]["subjects"] == 40
    assert figures["tasks"]["triviaqa"] == {"train": 100, "test": 100}
    asked = {
        name: sum(
            len(paragraph["qas"])
            for article in json.loads((folder / "tasks" / name).read_text())["data"]
            for paragraph in article["paragraphs"]
        )
        for name in ("dev-v1.1.json", "dev-v2.0.json")
    }
    assert figures["tasks"]["squad"]["test"] == asked["dev-v1.1.json"] > 20
    assert figures["tasks"]["squad_v2"]["test"] == asked["dev-v2.0.json"] > asked["dev-v1.1.json"]


def test_figures_of_a_folder_without_a_world_say_so(tmp_path):
    with pytest.raises(DataError, match=r"world\.json"):
        world.figures(tmp_path)


def test_tens_of_thousands_of_people_have_names_of_their_own():
    settings = world.Settings(people=20_000, general_people=20_000)
    pools = build(settings)
    names = {pools.names.at(index)[0] for index in range(40_000)}
    assert len(names) == 40_000
    assert not names & {teacher.text for teacher in pools.values["teachers"]}


def test_subjects_are_made_one_at_a_time():
    settings = world.Settings(people=10**9, general_people=1, name_parts=40_000)
    pools = build(settings)
    assert next(subjects(settings, pools, "people", "intermediate")).page == 2


@given(parts=st.integers(2, 40), offset=st.integers(0, 10**6))
@limits(deadline=None, max_examples=30)
def test_full_names_visit_each_pair_once(parts, offset):
    import numpy as np

    names = FullNames(Names(np.random.default_rng(0)), parts, offset)
    assert len({names.at(index)[0] for index in range(len(names))}) == parts * parts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peple": 3}, "did you mean 'people'"),
        ({"people": "many"}, "world.people: must be a whole number, not text 'many'"),
        ({"people": 1}, "world.people: must be >= 4, not 1"),
        ({"years": 99}, "world.years: must be >= 1 and <= 60, not 99"),
        ({"train_share": 1}, "world.train_share: must be > 0 and < 1"),
        ({"relations": ["birthplace"]}, "unknown relation 'birthplace'"),
        (
            {"relations": ["employer"]},
            "needs 5 or more, only 1 in use: name more, or set world.asked: 1",
        ),
        ({"heldout": ["school", "school"]}, "world.heldout[1]: school is named twice: remove one"),
        ({"kinds": ["people", "people"]}, "world.kinds[1]: people is named twice: remove one"),
        ({"entity_errors": 0.2}, "not a number 0.2: write {dropped: 0.2}"),
        ({"situations": True}, "world.situations: must be a number >= 0 and < 1, not true"),
        ({"relations": ["employer", "year of birth"], "asked": 2}, "zsRE needs a relation"),
        ({"kinds": ["people", "bird"]}, "did you mean 'birds'?"),
        ({"kinds": ["birds"]}, "world.kinds: must name people"),
        ({"heldout": ["school", "river"]}, "world.heldout[1]: unknown relation 'river'"),
        (
            {"relations": ["school", "employer"], "asked": 2, "heldout": ["school", "employer"]},
            "world.heldout: zsRE needs a relation of its train file and one of its dev file: name",
        ),
        ({"entity_errors": {"dropped": 2}}, "world.entity_errors.dropped: must be >= 0 and <= 1"),
        ({"entity_errors": {"dropped": 0.6, "wrong": 0.5}}, "together are more than 1"),
        ({"situations": 1}, "world.situations: must be >= 0 and < 1, not 1"),
        ({"skew": -1}, "world.skew: must be >= 0, not -1.0"),
        ({"relations": "employer"}, "world.relations: must be a list, not text"),
    ],
)
def test_settings_that_give_no_world_are_refused(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        world.make(options)


def test_too_few_full_names_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"world\.name_parts"):
        world.write(world.Settings(name_parts=10), tmp_path)


def test_relations_can_be_narrowed():
    settings = world.make(
        {
            "relations": ["place of birth", "place of death", "year of death", "employer"],
            "asked": 4,
            "never": 0,
        }
    )
    subject = person(settings, build(settings), 0, 1)
    assert [fact.relation.name for fact in subject.facts] == [
        "place of birth",
        "place of death",
        "year of death",
        "employer",
    ]
