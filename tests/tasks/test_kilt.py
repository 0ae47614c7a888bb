"""zsre, wow and aidayago2 over rows in KILT's format, the Hub's columns, and the real files."""

import shutil

import pytest
from official import block, carved, files, groups, read, rows_of, split, write

from maskpolicy.core.errors import DataError
from maskpolicy.data.taskfiles import sources

NAMES = {
    "zsre": "structured_zeroshot-dev-kilt.jsonl",
    **{name: f"{name}-dev-kilt.jsonl" for name in ("wow", "nq", "aidayago2")},
}
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
OUTPUT = [{"answer": "Ulm"}]
ROWS = {
    "zsre": ZSRE,
    "wow": {"id": "54aaf22e-99cd-11ea_0", "input": "I love rap music.", "output": OUTPUT},
    "nq": {"id": "-5004457603684974952", "input": "where is the minster", "output": OUTPUT},
    "aidayago2": {"id": "947testa A:0", "input": "In [START_ENT] Ulm [END_ENT]", "output": OUTPUT},
}
PAGES = [
    {"wikipedia_id": "8", "text": ["Other\n", "Other text.\n"]},
    {"wikipedia_id": "7", "text": ["Ulm\n", "Ulm is a city.\n", "It lies on the Danube.\n"]},
    {"wikipedia_id": "9", "text": ["Danube\n", "The Danube is a river.\n"]},
]
KNOWLEDGE = "kilt_knowledgesource.json"
LEFT, RIGHT = ([f"{side}{n}" for n in range(100)] for side in "lr")


def document(left, right):
    return f"{' '.join(left)} [START_ENT] Ulm town [END_ENT] {' '.join(right)}"


def mention(source=None, **more):
    return {
        "id": "947testa CRICKET:0",
        "input": document(LEFT, RIGHT) if source is None else source,
        "output": [{"answer": "Ulm", "provenance": [{"wikipedia_id": "7", "title": "Ulm"}]}],
        "meta": {"left_context": "", "mention": "Ulm town", "right_context": ""},
        **more,
    }


def test_zsre_has_relations_and_wow_turns_of_dialogues(tmp_path):
    write(tmp_path / NAMES["zsre"], ZSRE)
    (example,) = read("zsre", tmp_path)
    assert example.source == "Ulm [SEP] located next to body of water"
    assert example.targets == ("Danube", "River Danube")
    assert (example.group, example.context) == ("Ulm", None)
    assert example.slices == {"relation": "located next to body of water"}
    write(tmp_path / NAMES["wow"], WOW, {"id": "4f-9a_3", "input": "Hi"})
    (example,) = read("wow", tmp_path)
    assert example.source == WOW["input"]
    assert (example.id, example.group, example.slices["turns"]) == ("4f-9a_2", "4f-9a", "3")


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_provenance_of_an_answer_is_the_context_or_else_the_next(tmp_path, ending):
    write(tmp_path / f"{NAMES['zsre']}{ending}", ZSRE)
    write(tmp_path / f"{KNOWLEDGE}{ending}", *PAGES)
    assert read("zsre", tmp_path)[0].context == "Ulm is a city.\nIt lies on the Danube."
    assert files("zsre", tmp_path) == [f"{NAMES['zsre']}{ending}", f"{KNOWLEDGE}{ending}"]
    write(tmp_path / KNOWLEDGE, PAGES[0], PAGES[2])
    assert read("zsre", tmp_path)[0].context == "The Danube is a river."
    write(tmp_path / KNOWLEDGE, PAGES[0], "{")
    with pytest.raises(DataError, match=r"kilt_knowledgesource\.json, line 2: not a page"):
        read("zsre", tmp_path)


def test_the_hubs_columns_give_the_same_example():
    def place(*values):
        keys = ("wikipedia_id", "start_paragraph_id", "end_paragraph_id")
        return dict(zip(keys, values, strict=True))

    output = {
        "answer": ["Danube", "", "Danube"],
        "provenance": [place(["7"], [1], [1]), place([""], [-1], [-1]), place([], [], [])],
    }
    row = {"id": "a1", "input": "Ulm [SEP] river", "output": output}
    assert sources.task(block("zsre")).plugin.example(row).targets == ("Danube",)
    task = sources.task(block("aidayago2"))
    assert sources.hub_config(task) == ("facebook/kilt_tasks", "aidayago2")
    output = [{"answer": "Ulm", "meta": {"score": -1}, "provenance": []}]
    assert task.plugin.example(mention(output=output)).targets == ("Ulm",)


@pytest.mark.parametrize(
    ("source", "fields", "expected"),
    [
        (None, {}, document(LEFT[60:], RIGHT[:40])),
        (None, {"words": 2}, "l98 l99 [START_ENT] Ulm town [END_ENT] r0 r1"),
        ("[START_ENT] Ulm [END_ENT]", {}, "[START_ENT] Ulm [END_ENT]"),
        ("In [START_ENT]Ulm[END_ENT], \n we", {}, "In [START_ENT] Ulm [END_ENT] , we"),
    ],
)
def test_aidayago2_keeps_words_on_either_side_of_the_mention(tmp_path, source, fields, expected):
    write(tmp_path / NAMES["aidayago2"], mention(source))
    (example,) = read("aidayago2", tmp_path, fields=fields)
    assert (example.id, example.source) == ("947testa CRICKET:0", expected)
    is_title = "no" if "town" in expected else "yes"
    assert (example.targets, example.slices) == (("Ulm",), {"mention is title": is_title})


def test_mentions_of_one_document_or_subject_belong_together(tmp_path):
    path = tmp_path / NAMES["aidayago2"]
    one = mention("In [START_ENT] Ulm [END_ENT] and Bonn", id="a:0")
    two = mention("In Ulm and  [START_ENT] Bonn [END_ENT]", id="b:1")
    write(path, one, two, mention("In [START_ENT] Ulm [END_ENT] or Bonn", id="a:2"))
    found = groups("aidayago2", tmp_path)
    assert found[0] == found[1] != found[2]
    write(path, {**one, "subject": "7"}, {**two, "subject": "7"})
    assert groups("aidayago2", tmp_path) == ["7", "7"]


def test_title_and_first_paragraph_of_the_page_are_the_context(tmp_path):
    page = {"wikipedia_id": "7", "text": ["Ulm\n", "It lies on the Danube.\n", "More.\n"]}
    write(tmp_path / KNOWLEDGE, page)
    write(tmp_path / NAMES["aidayago2"], mention())
    assert read("aidayago2", tmp_path)[0].context == "Ulm\nIt lies on the Danube."
    place = {"wikipedia_id": "7", "start_paragraph_id": 2, "end_paragraph_id": 2}
    named = mention(output=[{"answer": "Ulm", "provenance": [place]}])
    write(tmp_path / NAMES["aidayago2"], named)
    (oracle,) = read("aidayago2", tmp_path, context=True)
    assert oracle.context == "More." and oracle.source.endswith(" r39\nMore.")


@pytest.mark.parametrize(("name", "count"), [("zsre", 5), ("wow", 200)])
def test_the_real_files_are_read(real_data, name, count):
    found = read(name, real_data)
    assert len(found) == count
    assert all(example.source and example.targets for example in found)
    assert name != "wow" or len({example.group for example in found}) < count
    carved(name, real_data)


def test_the_real_rows_of_the_shape_of_aidayago2(real_data, tmp_path):
    path = tmp_path / NAMES["aidayago2"]
    shutil.copy(real_data / "kilt" / "wned-dev-kilt.jsonl", path)
    rows = rows_of(path)
    found = read("aidayago2", tmp_path)
    assert len(rows) == 5 and len({example.group for example in found}) == 1
    for official, example in zip(rows, found, strict=True):
        assert example.targets == (official["output"][0]["answer"],)
        left, _, rest = example.source.partition("[START_ENT] ")
        inside, _, right = rest.partition(" [END_ENT]")
        assert inside == official["meta"]["mention"]
        assert len(left.split()) <= 40 and len(right.split()) == 40
    shutil.copy(real_data / "kilt" / "wned-test_without_answers-kilt.jsonl", path)
    with pytest.raises(DataError, match="no usable row \\(5 without an answer, 0 malformed"):
        split("aidayago2", tmp_path)
