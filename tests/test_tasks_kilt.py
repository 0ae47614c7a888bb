"""zsre and wow over rows in KILT's format, over the Hub's columns, and over the real files."""

from __future__ import annotations

import json

import pytest

from maskpolicy import examples, sources
from maskpolicy.config import TaskBlock
from maskpolicy.errors import DataError

FILES = {"zsre": "structured_zeroshot-dev-kilt.jsonl", "wow": "wow-dev-kilt.jsonl"}
ZSRE = {
    "id": "a1",
    "input": "Ulm [SEP] located next to body of water",
    "output": [
        {"provenance": [{"wikipedia_id": "9", "title": "Danube", "start_paragraph_id": 1}]},
        {
            "answer": " Danube",
            "provenance": [
                {"wikipedia_id": "7", "title": "Ulm"},
                {"wikipedia_id": "7", "start_paragraph_id": 1, "end_paragraph_id": 2},
            ],
        },
        {"answer": "Danube"},
        {"answer": "River Danube"},
    ],
    "meta": {"template_questions": ["Which river is Ulm on?"]},
}
WOW = {
    "id": "4f-9a_2",
    "input": "I like rap. \nMe too!\nSince when?",
    "output": [{"answer": "1979"}],
}
PAGES = [
    {"wikipedia_id": "8", "text": ["Other\n", "Other text.\n"]},
    {"wikipedia_id": "7", "text": ["Ulm\n", "Ulm is a city.\n", "It lies on the Danube.\n"]},
    {"wikipedia_id": "9", "text": ["Danube\n", "The Danube is a river.\n"]},
]


def read(name, folder, split="test"):
    return examples.read(TaskBlock(name, name), split, folder)


def write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_zsre(tmp_path):
    write(tmp_path / FILES["zsre"], [ZSRE])
    (example,) = read("zsre", tmp_path)
    assert example.source == "Ulm [SEP] located next to body of water"
    assert example.targets == ("Danube", "River Danube")
    assert (example.group, example.context) == ("Ulm", None)
    assert example.slices == {"relation": "located next to body of water"}


def test_wow_keeps_turns_and_groups_dialogues(tmp_path):
    write(tmp_path / FILES["wow"], [WOW, {"id": "4f-9a_3", "input": "Hi"}])
    (example,) = read("wow", tmp_path)
    assert example.source == WOW["input"]
    assert (example.id, example.group, example.slices["turns"]) == ("4f-9a_2", "4f-9a", "3")


def test_the_provenance_of_an_answer_is_the_context(tmp_path):
    write(tmp_path / FILES["zsre"], [ZSRE])
    write(tmp_path / "kilt_knowledgesource.json", PAGES)
    assert read("zsre", tmp_path)[0].context == "Ulm is a city.\nIt lies on the Danube."


def test_a_page_that_is_not_there_leaves_the_next_provenance(tmp_path):
    write(tmp_path / FILES["zsre"], [ZSRE])
    write(tmp_path / "kilt_knowledgesource.json", [PAGES[0], PAGES[2]])
    assert read("zsre", tmp_path)[0].context == "The Danube is a river."


def test_a_broken_knowledge_source_names_its_line(tmp_path):
    write(tmp_path / FILES["zsre"], [ZSRE])
    (tmp_path / "kilt_knowledgesource.json").write_text(json.dumps(PAGES[0]) + "\n{\n")
    with pytest.raises(DataError, match=r"kilt_knowledgesource\.json, line 2: not a page"):
        read("zsre", tmp_path)


def test_malformed_provenance_names_the_row(tmp_path):
    write(tmp_path / FILES["wow"], [{**WOW, "output": [{"answer": "x", "provenance": "y"}]}])
    with pytest.raises(DataError, match=r"wow-dev-kilt\.jsonl, line 1: key 'provenance'"):
        read("wow", tmp_path)


def test_the_hubs_columns_give_the_same_example():
    row = {
        "id": "a1",
        "input": "Ulm [SEP] river",
        "output": {
            "answer": ["Danube", "", "Danube"],
            "provenance": [
                {"wikipedia_id": ["7"], "start_paragraph_id": [1], "end_paragraph_id": [1]},
                {"wikipedia_id": [""], "start_paragraph_id": [-1], "end_paragraph_id": [-1]},
                {"wikipedia_id": [], "start_paragraph_id": [], "end_paragraph_id": []},
            ],
        },
    }
    assert sources.task(TaskBlock("zsre", "zsre")).plugin.example(row).targets == ("Danube",)


@pytest.mark.parametrize(("name", "split", "count"), [("zsre", "test", 5), ("wow", "test", 200)])
def test_the_real_files_are_read(real_data, name, split, count):
    read_ = read(name, real_data, split)
    assert len(read_) == count
    assert all(example.source and example.targets for example in read_)
    assert name != "wow" or len({example.group for example in read_}) < count


@pytest.mark.parametrize("name", ["zsre", "wow"])
def test_real_train_and_dev_are_carved_from_train(real_data, name):
    train, dev = (read(name, real_data, split) for split in ("train", "dev"))
    assert train and dev and not {e.group for e in train} & {e.group for e in dev}
