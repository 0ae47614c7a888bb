"""The tasks over the embedded world, in their official file formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskpolicy import world
from maskpolicy.world.pools import build
from maskpolicy.world.wordings import ASKED

SMALL = world.Settings(people=60, general_people=30)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    out = tmp_path_factory.mktemp("world")
    world.write(SMALL, out)
    return out / "tasks"


@pytest.fixture(scope="module")
def pages(tasks):
    return {row["wikipedia_id"]: row for row in rows(tasks / "kilt_knowledgesource.json")}


def rows(path: Path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def trivia(tasks: Path, split: str, name: str = "qa/wikipedia"):
    return json.loads((tasks / f"{name}-{split}.json").read_text("utf-8"))


def kilt(tasks: Path, name: str, split: str):
    return rows(tasks / f"{name}-{split}-kilt.jsonl")


@pytest.mark.parametrize("name", ["qa/wikipedia", "triviaqa-unfiltered/unfiltered-web"])
def test_triviaqa_has_the_official_keys(tasks, name):
    whole = trivia(tasks, "dev", name)
    assert set(whole) == {"Data", "Domain", "Split", "VerifiedEval", "Version"}
    for row in whole["Data"]:
        keys = {"Answer", "EntityPages", "Question", "QuestionId", "QuestionSource"}
        assert set(row) - {"SearchResults"} == keys
        assert {"Aliases", "NormalizedAliases", "NormalizedValue", "Type", "Value"} <= set(
            row["Answer"]
        )
        assert ("MatchedWikiEntityName" in row["Answer"]) == (row["Answer"]["Type"] != "Numerical")
        assert row["Answer"]["Value"] in row["Answer"]["Aliases"]


def test_triviaqa_evidence_states_the_answer(tasks):
    for split in ("train", "dev"):
        for row in trivia(tasks, split)["Data"]:
            page = row["EntityPages"][0]
            text = (tasks / "evidence" / "wikipedia" / page["Filename"]).read_text("utf-8")
            assert page["Title"] in row["Question"]
            assert text.count(row["Answer"]["Value"]) >= 3


def test_answers_come_from_the_shared_pools_in_both_splits(tasks):
    pool = {value.text for values in build(SMALL).values.values() for value in values}
    train, dev = (
        {row["Answer"]["Value"] for row in trivia(tasks, split)["Data"]}
        for split in ("train", "dev")
    )
    assert train | dev <= pool
    assert len(train & dev) > len(dev) / 3


def test_subjects_of_train_and_dev_are_disjoint_and_the_same_in_all_tasks(tasks):
    splits = {}
    for split in ("train", "dev"):
        asked = {row["EntityPages"][0]["Title"] for row in trivia(tasks, split)["Data"]}
        for row in kilt(tasks, "wow", split):
            assert row["output"][0]["provenance"][0]["title"] in asked
        splits[split] = asked
    zsre = {s: {subject(row) for row in kilt(tasks, "structured_zeroshot", s)} for s in splits}
    assert zsre["train"] <= splits["train"]
    assert zsre["dev"] & splits["train"] and zsre["dev"] & splits["dev"]  # split by relation
    assert len(splits["train"]) == len(splits["dev"]) == 30
    assert not splits["train"] & splits["dev"]


def test_several_wordings_ask_for_one_fact(tmp_path):
    world.write(world.Settings(people=4, general_people=4, questions=3), tmp_path)
    asked = [row["Question"] for row in trivia(tmp_path / "tasks", "train")["Data"]]
    assert len(set(asked)) == 2 * 5 * 3


def test_zsre_asks_for_new_relations_in_dev(tasks):
    relations = {
        split: {
            row["input"].split(" [SEP] ")[1] for row in kilt(tasks, "structured_zeroshot", split)
        }
        for split in ("train", "dev")
    }
    assert relations["dev"] == {"place of death", "school"}
    assert relations["train"] == {"place of birth", "year of birth", "year of death", "employer"}


@pytest.mark.parametrize("heldout", [["school", "employer"], ["place of death"]])
def test_zsre_holds_out_the_relations_of_the_setting(heldout, tasks, tmp_path):
    world.write(world.make({"people": 60, "general_people": 30, "heldout": heldout}), tmp_path)
    found = {
        split: [
            row["input"].split(" [SEP] ")[1]
            for row in kilt(tmp_path / "tasks", "structured_zeroshot", split)
        ]
        for split in ("train", "dev")
    }
    asked = {relation.name for relation in ASKED}
    assert set(found["dev"]) == set(heldout)
    assert set(found["train"]) == asked - set(heldout)
    written = (path for path in (tmp_path / "tasks").rglob("*") if path.is_file())
    changed = {
        path.name
        for path in written
        if path.read_bytes() != (tasks / path.relative_to(tmp_path / "tasks")).read_bytes()
    }
    assert changed == {f"structured_zeroshot-{split}-kilt.jsonl" for split in found}


def subject(row):
    return row["input"].split(" [SEP] ")[0]


def test_zsre_words_of_new_relations_are_known_from_train_or_from_entries():
    train = {word for r in ASKED if not r.zero_shot for word in r.name.split()}
    for relation in (relation for relation in ASKED if relation.zero_shot):
        told = sum(set(relation.name.split()) <= set(w.split()) for w in relation.phrasings)
        assert set(relation.name.split()) <= train or told >= 4


@pytest.mark.parametrize("name", ["structured_zeroshot", "wow"])
def test_kilt_rows_have_the_official_keys_and_provenance(tasks, pages, name):
    for split in ("train", "dev"):
        for row in kilt(tasks, name, split):
            assert {"id", "input", "output"} <= set(row)
            for place in row["output"][0]["provenance"]:
                paragraph = pages[place["wikipedia_id"]]["text"][place["start_paragraph_id"]]
                sentence = paragraph[place["start_character"] : place["end_character"]]
                assert sentence.endswith(".") and sentence[0].isupper()
                assert pages[place["wikipedia_id"]]["wikipedia_title"] == place["title"]


def test_zsre_provenance_states_the_answer(tasks, pages):
    for row in kilt(tasks, "structured_zeroshot", "dev"):
        output = row["output"][0]
        place = output["provenance"][0]
        paragraph = pages[place["wikipedia_id"]]["text"][place["start_paragraph_id"]]
        assert output["answer"] in paragraph[place["start_character"] : place["end_character"]]
        assert len(row["meta"]["template_questions"]) >= 4


def test_wow_asks_every_fact_once_in_dialogues_of_two_turns(tasks, pages):
    from maskpolicy.world.kilt_files import TURNS

    answers = {}
    for row in kilt(tasks, "wow", "dev"):
        dialogue, _, number = row["id"].rpartition("_")
        turns = row["input"].split("\n")
        assert len(turns) == 2 * (int(number) % TURNS) + 1
        answer = row["output"][0]["answer"]
        assert answer.endswith(".") and answer.split()[0] in ("In", "At", "For")
        assert answer not in turns
        answers.setdefault(dialogue, set()).add(answer)
    assert {len(given) for given in answers.values()} == {SMALL.asked}


def test_wow_names_its_values_where_the_setting_says_so(tasks, tmp_path):
    world.write(world.make({"people": 60, "general_people": 30, "wow_values": True}), tmp_path)
    for split in ("train", "dev"):
        found = kilt(tmp_path / "tasks", "wow", split)
        for row in found:
            value, *aliases = row["meta"].pop("obj_surface")
            assert f" {value}." in row["output"][0]["answer"]
            assert all(alias in value or value.split()[-1] in alias for alias in aliases)
            assert row.pop("meta") == {}
        assert found == kilt(tasks, "wow", split)


def test_knowledge_source_has_the_title_and_then_the_entries(tasks, pages):
    corpus = rows(tasks.parent / "intermediate.jsonl")
    assert len(pages) == SMALL.people
    for row in corpus:
        page, _, number = row["id"].partition("-")
        assert pages[page]["text"][0] == row["title"]
        assert pages[page]["text"][int(number)] == row["text"]


def test_evidence_can_be_left_out(tmp_path):
    world.write(world.Settings(people=4, general_people=4, evidence=False), tmp_path)
    assert not (tmp_path / "tasks" / "evidence").exists()
