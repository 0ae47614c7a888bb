"""Splits, official files, malformed rows and contexts, over rows written here."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from official import block, carved, read, split, write
from refusals import refused

from maskpolicy import ConfigError, DataError, Example
from maskpolicy.data.taskfiles import dpr, examples, sources
from maskpolicy.data.taskfiles.evidence import occurrences, plain, window
from maskpolicy.experiment.definition import Limit
from maskpolicy.plugins import discovery

NAMES = {
    "train": "structured_zeroshot-train-kilt.jsonl",
    "dev": "structured_zeroshot-dev-kilt.jsonl",
}


def row(number, subject=None, **more):
    subject = subject or f"Town {number}"
    return {
        "id": f"q{number}",
        "input": f"{subject} [SEP] river",
        "output": [{"answer": f"River {number}"}],
        **more,
    }


def ids(split, folder, **keys):
    return [example.id for example in read("zsre", folder, split, **keys)]


def test_train_and_the_carved_dev_share_no_group_and_lose_no_row(tmp_path):
    rows = [row(n, f"Town {n // 3}") for n in range(300)]
    write(tmp_path / NAMES["train"], *rows, row(300, output=[]))
    train, dev = carved("zsre", tmp_path)
    assert sorted(e.id for e in train + dev) == sorted(f"q{n}" for n in range(300))
    assert 0.04 < len(dev) / 300 < 0.18
    numbers = [int(e.id[1:]) for e in train]
    assert numbers == sorted(numbers)
    unlabelled = [split("zsre", tmp_path, side).unlabelled for side in ("train", "dev")]
    assert unlabelled == [1, 0]  # such rows are those of train


def test_one_group_cannot_be_carved(tmp_path):
    write(tmp_path / NAMES["train"], row(1, "Ulm"), row(2, "Ulm"))
    assert ids("train", tmp_path) == ["q1", "q2"]
    with pytest.raises(DataError, match=r"train-kilt.jsonl: all usable rows are of one group"):
        ids("dev", tmp_path)


@pytest.mark.parametrize("folder", [".", "kilt", "data", "zsre", "zsre/kilt"])
def test_test_is_found_in_official_folders_without_train(tmp_path, folder):
    path = write(tmp_path / folder / NAMES["dev"], row(1))
    assert ids("test", tmp_path) == ["q1"]
    assert examples.files(block("zsre"), "test", tmp_path) == [path]


@pytest.mark.parametrize(
    ("split", "rows", "keys", "said"),
    [
        ("train", None, {}, f"{{folder}} has no {NAMES['train']}, neither in itself nor"),
        ("tests", None, {}, "did you mean 'test'"),
        ("test", [], {"data": "files"}, "zsre' needs rows with answers"),
        ("test", [], {"data": "world"}, "needs rows with answers: set more subjects in the block"),
        ("test", [{"id": "a"}], {}, "no usable row ("),
        ("test", [row(1)], {"context": True}, "context: true, but no example has a context"),
    ],
)
def test_a_split_that_cannot_be_read_is_one_line(tmp_path, split, rows, keys, said):
    if rows is not None:
        write(tmp_path / NAMES["dev"], *rows)
    line = refused(ids, split, tmp_path, error=(ConfigError, DataError), **keys)
    assert said.format(folder=tmp_path) in line


def test_an_id_that_comes_twice_in_an_official_file_is_told_and_both_rows_stay(tmp_path, caplog):
    path = write(tmp_path / NAMES["dev"], row(1), row(2), row(1, subject="Ulm"), row(1))
    with caplog.at_level(logging.WARNING):
        found = split("zsre", tmp_path)
    groups = [(one.id, one.group) for one in found.examples]
    assert groups == [("q1", "Town 1"), ("q2", "Town 2"), ("q1", "Ulm"), ("q1", "Town 1")]
    told = f"{path}, line 3: id 'q1' is that of {path}, line 1 too"
    assert found.repeated[0] == told and len(found.repeated) == 2
    assert "2 rows have the id of an earlier row, and are kept" in caplog.text
    assert told in caplog.text


def test_context_true_appends_the_paragraph(tmp_path):
    origin = {"wikipedia_id": "7", "start_paragraph_id": 1, "end_paragraph_id": 1}
    output = [{"answer": "Danube", "provenance": [origin]}]
    path = write(tmp_path / NAMES["dev"], row(1, output=output), row(2))
    page = {"wikipedia_id": "7", "text": ["Ulm\n", "Ulm lies on the Danube.\n"]}
    source = write(tmp_path / "kilt_knowledgesource.json", page)
    plain, oracle = (
        [e.source for e in read("zsre", tmp_path, context=context)] for context in (False, True)
    )
    assert oracle == [f"{plain[0]}\nUlm lies on the Danube.", plain[1]]
    assert examples.files(block("zsre"), "test", tmp_path) == [path, source]
    assert examples.files(block("zsre"), "test", tmp_path, contexts=False) == [path]


OWN = """
from dataclasses import dataclass
import numpy as np
from maskpolicy import Example, task

FACTS = {"group": "own", "files": {"train": "a.jsonl", "test": "b.jsonl"}}
KINDS = {"text": "f1", "label": "accuracy", "span": "squad_v1", "pairs": "accuracy"}
GIVEN = {"source": "a b", "targets": ["b"], "context": "a b", "start": np.int64(2)}

@dataclass(frozen=True)
class More(Example):
    url: str = ""

def example(self, row):
    given = {"id": "", "group": "", **GIVEN, "answerable": np.bool_(True), **row}
    return given if "as_dict" in row else More(**given, url="x")

for name, metric in (*KINDS.items(), ("tags", "entity_f1"), ("numbers", "correlation")):
    @task(f"own {name}", kind={"numbers": "label"}.get(name, name), metric=metric, **FACTS)
    @dataclass(frozen=True)
    class Own:
        choose: str = "generate"
        example = example
"""
GOOD = {  # what a row of each task gives, beside OWN's GIVEN
    "text": {},
    "label": {"choices": [" a", "b "]},
    "span": {},
    "pairs": {"choices": ["b", "a"]},
    "tags": {"targets": ["B-LOC O"]},
    "numbers": {"targets": ["-1e3"]},
}
ONCE = "each once and one of them the target"
BAD = [
    ("text", {"boo": 1}, r"'own text' failed: TypeError: .*'boo' \({file}:\d+\)"),
    ("text", {"as_dict": 1}, "gave dict: it must return a maskpolicy.core.types.Example"),
    ("text", {"source": None}, r"source of its Example must be text, not None: use str\(...\)"),
    ("text", {"id": 0}, "'own text': id of its Example must be text, not 0"),
    ("text", {"group": 1900}, "group of its Example must be text, not 1900"),
    ("text", {"targets": "Oslo"}, "targets of its Example must be a tuple of texts, not 'Oslo'"),
    ("text", {"slices": {"year": 7}}, r"slices\['year'\] of its Example must be text, not 7"),
    ("text", {"slices": None}, "slices of its Example must be a dict of texts"),
    ("text", {"targets": [], "answerable": False}, "answerable=False is for an Example"),
    ("span", {"targets": [], "answerable": False}, "and unanswerable=True"),
    ("span", {"start": 3.0}, "start of its Example must be a whole number, not 3.0"),
    ("span", {"start": -1}, "'b' does not start at character -1 of its context"),
    ("span", {"targets": ["a"]}, "'a' does not start at character 2 of its context"),
    ("pairs", {"choices": ["b", "b "]}, f"must be two texts, {ONCE}"),
    ("pairs", {"choices": ["a", "b", "c"]}, f"must be two texts, {ONCE}"),
    ("pairs", {"choices": ["a", "c"]}, f"must be two texts, {ONCE}"),
    ("label", {"choices": ["b", "b "]}, f"must be all labels, {ONCE}"),
    ("label", {"choices": ["a", "c"]}, f"must be all labels, {ONCE}"),
    ("label", {"targets": ["a", "b"]}, "has 2 targets, and an example"),
    ("label", {"targets": ["1"], "choices": []}, "is a number, which accuracy does not compare"),
    ("tags", {"targets": ["O"]}, "has 2 words and 1 tags: give each word a tag"),
    *(
        ("numbers", {"targets": [text]}, f"no choices, and its target '{text}' is not a number")
        for text in ("half", "nan", "inf")
    ),
]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A user's tasks, one of each kind, whose rows give the fields of their Examples."""
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN)
    discovery.load_file(path)
    return path


@pytest.mark.parametrize(("kind", "bad", "says"), BAD)
def test_a_row_that_a_users_task_cannot_take_is_a_malformed_row(tmp_path, own, kind, bad, says):
    path = write(tmp_path / "b.jsonl", GOOD[kind], {**GOOD[kind], **bad})
    match = f"{path}, line 2: .*{says.format(file=own)}"
    refused(read, f"own {kind}", tmp_path, error=DataError, match=match)
    found = split(f"own {kind}", tmp_path, on_error="skip")
    assert (len(found.examples), found.malformed) == (1, 1)


@pytest.mark.parametrize("kind", GOOD)
def test_examples_of_a_users_task_are_stored_with_types_of_ours(tmp_path, own, kind):
    write(tmp_path / "b.jsonl", GOOD[kind])
    found = read(f"own {kind}", tmp_path)
    examples.write_rows(tmp_path / "rows", found)
    assert examples.read_rows(tmp_path / "rows") == found and type(found[0]) is Example
    assert {*found[0].choices} <= {"a", "b"}


def test_only_training_needs_the_start_of_a_span(tmp_path, own):
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name, {"start": None})
    assert read("own span", tmp_path)[0].start is None
    match = "has no start, the character of its context at which 'b' begins"
    refused(read, "own span", tmp_path, "train", error=DataError, match=match)


def test_a_users_rows_without_choices_or_with_one_id_are_named(tmp_path, own):
    rows = [{"id": "a", "choices": ["a", "b"]}, {"id": "b"}]
    path = write(tmp_path / "b.jsonl", *rows)
    assert len(read("own text", tmp_path)) == 2
    with pytest.raises(DataError, match=f"{path}, line 2: .*has no choices.*give choices="):
        read("own text", tmp_path, fields={"choose": "likelihood"})
    write(path, *rows, {"id": "a"})
    with pytest.raises(DataError, match=f"{path}, line 3: id 'a' is that of {path}, line 1 too"):
        read("own text", tmp_path)


def test_a_misspelt_way_to_choose_is_refused(tmp_path, own):
    match = "'own text': choose: unknown value 'likelihod': did you mean 'likelihood'"
    refused(read, "own text", tmp_path, fields={"choose": "likelihod"}, match=match)


def test_a_limit_keeps_that_many_examples_of_its_split_in_file_order(tmp_path):
    write(tmp_path / NAMES["train"], *(row(n, f"Town {n // 4}") for n in range(200)))
    write(tmp_path / NAMES["dev"], *(row(n) for n in range(50)))
    whole = {split: ids(split, tmp_path) for split in sources.SPLITS}
    found = {split: ids(split, tmp_path, limit=Limit(train=40, test=7)) for split in sources.SPLITS}
    counts = {split: len(some) for split, some in found.items()}
    assert counts == {"train": 40, "dev": len(whole["dev"]), "test": 7}
    for name, some in found.items():
        assert some == [one for one in whole[name] if one in some]
    towns = [int(one[1:]) // 4 for one in found["train"]]
    assert len(set(towns)) == 10
    assert ids("train", tmp_path, limit=Limit(train=10**6)) == whole["train"]


def test_short_answers_are_those_of_the_row_and_are_kept_only_where_there_are_some(tmp_path):
    turn = {"input": "And where?", "output": [{"answer": "In Ulm."}]}
    told = {"id": "a_1", **turn, "meta": {"obj_surface": ["Ulm", "Ulm ", ""]}}
    silent = [{"id": "b_1", **turn, "meta": {"obj_surface": []}}, {"id": "c_1", **turn}]
    write(tmp_path / "wow-dev-kilt.jsonl", told, *silent)
    found = read("wow", tmp_path)
    assert [one.short_answers for one in found] == [("Ulm",), (), ()]
    examples.write_rows(tmp_path / "rows.jsonl", found)
    assert examples.read_rows(tmp_path / "rows.jsonl") == found
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert ["short_answers" in json.loads(line) for line in lines] == [True, False, False]


@given(st.sets(st.text(max_size=5), min_size=2, max_size=40), st.floats(0, 1), st.data())
def test_both_sides_of_a_carve_have_a_group_and_those_to_stay_stay(groups, share, data):
    stay = data.draw(st.sets(st.sampled_from(sorted(groups)), max_size=len(groups) - 1))
    dev = examples.carve(groups, share, stay)
    assert dev and dev < groups and not dev & stay


@given(st.lists(st.sampled_from("abcdef"), max_size=30), st.integers(0, 30), st.integers(0, 20))
def test_a_limit_takes_whole_groups_and_of_one_the_first(groups, count, more):
    places = examples.first(groups, count)
    assert places == sorted(set(places)) and {*places} <= {*examples.first(groups, count + more)}
    assert len(places) == min(count, len(groups))
    taken = [groups[place] for place in places]
    parts = {group for group in set(taken) if taken.count(group) < groups.count(group)}
    assert len(parts) <= 1
    for group in parts:
        own = [place for place, other in enumerate(groups) if other == group]
        assert [place for place in places if groups[place] == group] == own[: taken.count(group)]


@given(st.integers(0, 400), st.integers(401, 500), st.integers(2, 40))
def test_a_window_holds_the_whole_answer(at, length, words):
    document = " ".join("York City" if n == at else f"w{n}" for n in range(length))
    found = window(document, ["york city"], words)
    assert found is not None and found in document
    assert "York City" in found and len(found.split()) <= words


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('["q"]', r"row\[0\]: must be a JSON object"),
        ('[{"positive_ctxs": []}]', r"row\[0\]: key 'question' is missing"),
        ('[{"question": "q", "positive_ctxs": [{}]}]', r"row\[0\]: key 'text' is missing"),
        ('[{"question": "q", "positive_ctxs": "x"}]', r"row\[0\]: key 'positive_ctxs' must be"),
    ],
)
def test_a_malformed_file_is_one_line(tmp_path, content, reason):
    path = write(tmp_path / "biencoder-nq-dev.json", content)
    example, match = Example("i", "g", "q", ("Ulm",)), rf"biencoder-nq-dev\.json.*{reason}"
    refused(lambda: dpr.passages(["q"], [path])({}, example), error=DataError, match=match)


def test_a_file_of_your_own_may_have_the_ending_of_babylms(tmp_path):
    (tmp_path / "quiz.train.jsonl").write_text('{"rows": [{"q": "Where?"}, {"q": "When?"}]}')
    facts = sources.TaskFacts("own", "f1", {"dev": "quiz.train.jsonl"}, at="rows")
    found = [one.value for one in facts.rows(tmp_path / "quiz.train.jsonl")]
    assert found == [{"q": "Where?"}, {"q": "When?"}]


@pytest.mark.parametrize(
    ("language", "document", "answer", "found"),
    [
        ("zh", "鲁迅生于1881年。", "鲁迅", ["鲁迅"]),
        ("ja", "夏目漱石は1867年に生まれた。", "1867年", ["1867年"]),
        ("th", "สุนทรภู่เกิดปี 2329", "สุนทรภู่", ["สุนทรภู่"]),
        ("hi", "राम रोम गया।", "रोम", ["रोम"]),
        ("en", "Bob's  house, the Café.", "house Café", ["house, the Café"]),
    ],
)
def test_answers_are_found_in_text_without_blanks_and_with_their_marks(
    language, document, answer, found
):
    spans = occurrences(document, [answer], language)
    assert [document[start:end] for start, end in spans] == found
    assert plain("राम", "hi") != plain("रोम", "hi")


LOOKED_UP = """
from maskpolicy import Example, task

@task("{name}", kind="label", group="own", metric="accuracy", files={{"test": "b.jsonl"}})
class LookedUp:
    def example(self, row):
        return Example("", "", "a b", (row["label"],), choices=("a", "b"))

    def evidence(self, rows, beside, split):
        {evidence}

    def evidence_files(self, rows, beside, split):
        {files}
"""


def looked_up(folder, name, evidence, files):
    """Return a block of a label task whose second texts are found by these lines."""
    (folder / "own.py").write_text(LOOKED_UP.format(name=name, evidence=evidence, files=files))
    discovery.load_file(folder / "own.py")
    write(folder / "b.jsonl", {"label": "a"}, {"label": "b"})
    return block(name)


def test_an_error_in_a_users_evidence_is_one_line(tmp_path):
    failing = looked_up(tmp_path, "failing", "1 / 0", "1 / 0")
    for call in (examples.read_split, examples.files):
        match = "'failing' failed: ZeroDivisionError"
        refused(call, failing, "test", tmp_path, error=DataError, match=match)
    (tmp_path / "other").mkdir()
    of_text = looked_up(tmp_path / "other", "of text", "1 / 0", "return 'a.txt'")
    match = "'of text': evidence_files gave a text, not a list of paths"
    refused(examples.files, of_text, "test", tmp_path, error=DataError, match=match)


def test_the_second_text_of_a_label_task_may_lie_outside_the_rows(tmp_path):
    pages = 'return lambda row, example: "page of " + row["label"]'
    made = looked_up(tmp_path, "with pages", pages, 'return [beside[0] / "pages.txt"]')
    found = examples.read_split(made, "test", tmp_path, contexts=False).examples
    assert [one.context for one in found] == ["page of a", "page of b"]
    files = examples.files(made, "test", tmp_path, contexts=False)
    assert files == [tmp_path / "b.jsonl", tmp_path / "pages.txt"]
