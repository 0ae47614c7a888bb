"""Splits, official files, malformed rows and contexts, over rows written here."""

from __future__ import annotations

import json
import logging

import pytest

from maskpolicy.config.experiment import Limit, TaskBlock
from maskpolicy.datafiles import readers
from maskpolicy.errors import ConfigError, DataError
from maskpolicy.formats import examples, sources
from maskpolicy.formats.sources import TaskFacts
from maskpolicy.plugins import discovery

NAMES = {
    "train": "structured_zeroshot-train-kilt.jsonl",
    "dev": "structured_zeroshot-dev-kilt.jsonl",
}


def block(**keys):
    return TaskBlock("zsre", "zsre", **keys)


def row(number, subject=None, **more):
    subject = subject or f"Town {number}"
    return {
        "id": f"q{number}",
        "input": f"{subject} [SEP] river",
        "output": [{"answer": f"River {number}"}],
        **more,
    }


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return path


def ids(split, folder, **keys):
    return [example.id for example in examples.read_examples(block(**keys), split, folder)]


@pytest.mark.parametrize(
    ("labelled", "expected"),
    [
        ("train dev", {"train": "train train", "dev": "train dev", "test": "dev all"}),
        ("train test", {"train": "train train", "dev": "train dev", "test": "test all"}),
        ("train dev test", {"train": "train all", "dev": "dev all", "test": "test all"}),
    ],
)
def test_the_official_split_that_each_split_is_read_from(labelled, expected):
    facts = TaskFacts("closed-book", "f1", {name: name for name in labelled.split()})
    assert {split: " ".join(facts.part(split)) for split in sources.SPLITS} == expected


def test_train_and_the_carved_dev_share_no_group_and_lose_no_row(tmp_path):
    write(tmp_path / NAMES["train"], [row(n, f"Town {n // 3}") for n in range(300)])
    train = examples.read_examples(block(), "train", tmp_path)
    dev = examples.read_examples(block(), "dev", tmp_path)
    assert not {e.group for e in train} & {e.group for e in dev}
    assert sorted(e.id for e in train + dev) == sorted(f"q{n}" for n in range(300))
    assert 0.04 < len(dev) / 300 < 0.18
    numbers = [int(e.id[1:]) for e in train]
    assert numbers == sorted(numbers)


def test_one_group_cannot_be_carved(tmp_path):
    write(tmp_path / NAMES["train"], [row(1, "Ulm"), row(2, "Ulm")])
    assert ids("train", tmp_path) == ["q1", "q2"]
    with pytest.raises(DataError, match=r"train-kilt.jsonl: all usable rows are of one group"):
        ids("dev", tmp_path)


@pytest.mark.parametrize("folder", [".", "kilt", "data", "zsre", "zsre/kilt"])
def test_test_is_found_in_official_folders_without_train(tmp_path, folder):
    path = write(tmp_path / folder / NAMES["dev"], [row(1)])
    assert ids("test", tmp_path) == ["q1"]
    assert examples.files(block(), "test", tmp_path) == [path]


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(DataError) as error:
        ids("train", tmp_path)
    assert NAMES["train"] in str(error.value) and str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_split_lists_the_choices(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'test'"):
        ids("tests", tmp_path)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{'id': 1}", "line 2: not JSON"),
        ('{"id": ' + "9" * 5000 + "}", "line 2: not JSON"),
        ("[1]", r"line 2: must be a JSON object, not \[1\]"),
        (row(2, input=None), "line 2: key 'input' is missing"),
        (row(2, input=7), "line 2: key 'input' must be text, not 7"),
        (row(2, output="River"), "line 2: key 'output' must be a list of objects"),
        (row(2, output=[{"answer": 7}]), "line 2: key 'output': every 'answer' must be text"),
        (row(2, id=None), "line 2: key 'id' is missing"),
        (row(2, subject="nul \0"), "line 2: .* NUL character at character 4"),
        (
            row(2, output=[{"answer": "lone \ud800"}]),
            r"line 2: .* lone surrogate \(U\+D800\) at character 5",
        ),
    ],
)
def test_a_malformed_row_names_file_row_and_key(tmp_path, bad, reason):
    write(tmp_path / NAMES["dev"], [row(1), bad, row(3)])
    with pytest.raises(DataError, match=f"{NAMES['dev']}, {reason}"):
        ids("test", tmp_path)
    with pytest.raises(DataError, match=r"\(on_error: skip in the block of task 'zsre' leaves"):
        ids("test", tmp_path)
    assert ids("test", tmp_path, on_error="skip") == ["q1", "q3"]


def test_bytes_that_are_not_utf8_name_the_line(tmp_path):
    path = write(tmp_path / NAMES["dev"], [row(1)])
    path.write_bytes(path.read_bytes() + b'{"id": "\xff"}\n')
    with pytest.raises(DataError, match="line 2: not UTF-8 at byte 8"):
        ids("test", tmp_path)


def test_skipped_rows_are_counted_and_the_first_ten_named(tmp_path, caplog):
    write(tmp_path / NAMES["dev"], [row(0), *["{"] * 12])
    with caplog.at_level(logging.WARNING):
        split = examples.read_split(block(on_error="skip"), "test", tmp_path)
    assert split.malformed == 12
    assert "12 malformed rows skipped" in caplog.text
    assert "line 11: " in caplog.text and "line 12: " not in caplog.text


def test_rows_without_an_answer_are_counted(tmp_path):
    empty = [{"id": "a"}, row(2, output=[{"provenance": []}]), row(3, output=[{"answer": " "}])]
    write(tmp_path / NAMES["dev"], [row(1), *empty])
    split = examples.read_split(block(), "test", tmp_path)
    assert (len(split.examples), split.unlabelled) == (1, 3)


def test_an_id_that_comes_twice_in_an_official_file_is_told_and_both_rows_stay(tmp_path, caplog):
    path = write(tmp_path / NAMES["dev"], [row(1), row(2), row(1, subject="Ulm"), row(1)])
    with caplog.at_level(logging.WARNING):
        split = examples.read_split(block(), "test", tmp_path)
    assert [(one.id, one.group) for one in split.examples] == [
        ("q1", "Town 1"),
        ("q2", "Town 2"),
        ("q1", "Ulm"),
        ("q1", "Town 1"),
    ]
    told = f"{path}, line 3: id 'q1' is that of {path}, line 1 too"
    assert split.repeated[0] == told and len(split.repeated) == 2
    assert "2 rows have the id of an earlier row, and are kept" in caplog.text
    assert told in caplog.text


@pytest.mark.parametrize("rows", [[], [{"id": "a"}]])
def test_a_split_without_a_usable_row_is_refused(tmp_path, rows):
    write(tmp_path / NAMES["dev"], rows)
    with pytest.raises(DataError, match="no usable row"):
        ids("test", tmp_path)


def test_byte_order_mark_blank_lines_and_line_separators_are_survived(tmp_path):
    lines = ["\ufeff" + json.dumps(row(1)), "", json.dumps(row(2, "A\u2028B"), ensure_ascii=False)]
    (tmp_path / NAMES["dev"]).write_bytes("\r\n".join(lines).encode())
    assert ids("test", tmp_path) == ["q1", "q2"]


def test_context_true_appends_the_paragraph(tmp_path):
    origin = {"wikipedia_id": "7", "start_paragraph_id": 1, "end_paragraph_id": 1}
    output = [{"answer": "Danube", "provenance": [origin]}]
    write(tmp_path / NAMES["dev"], [row(1, output=output), row(2)])
    page = {"wikipedia_id": "7", "text": ["Ulm\n", "Ulm lies on the Danube.\n"]}
    source = write(tmp_path / "kilt_knowledgesource.json", [page])
    plain, oracle = (
        [e.source for e in examples.read_examples(block(context=context), "test", tmp_path)]
        for context in (False, True)
    )
    assert oracle == [f"{plain[0]}\nUlm lies on the Danube.", plain[1]]
    assert examples.files(block(), "test", tmp_path) == [tmp_path / NAMES["dev"], source]
    assert examples.files(block(), "test", tmp_path, contexts=False) == [tmp_path / NAMES["dev"]]


def test_context_true_without_any_context_is_refused(tmp_path):
    write(tmp_path / NAMES["dev"], [row(1)])
    with pytest.raises(DataError, match="context: true, but no example has a context"):
        ids("test", tmp_path, context=True)


def test_lines_are_the_json_lines_of_the_verb(tmp_path):
    write(tmp_path / NAMES["dev"], [row(n, f"Zürich {n}") for n in range(3)])
    first, second = examples.lines(block(), "test", tmp_path, limit=2)
    assert json.loads(first) == {
        "id": "q0",
        "group": "Zürich 0",
        "source": "Zürich 0 [SEP] river",
        "targets": ["River 0"],
        "context": None,
    }
    assert "Zürich 1" in second


def test_an_unknown_field_of_a_task_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"task zsre\.nonsense: unknown key"):
        examples.read_examples(block(fields={"nonsense": 1}), "test", tmp_path)


def test_a_hub_dataset_gives_rows_with_their_place(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    write(tmp_path / "hub" / "validation.jsonl", [row(1), row(2)])
    rows = list(readers.hub_rows(str(tmp_path / "hub"), split="validation"))
    assert [row.value["id"] for row in rows] == ["q1", "q2"]
    assert rows[1].place.endswith("split validation, row 1")


def test_a_hub_dataset_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(DataError, match="cannot be loaded from the Hub") as error:
        list(readers.hub_rows(str(tmp_path / "none"), split="validation"))
    assert "\n" not in str(error.value)


def hub_config(**fields):
    return sources.hub_config(sources.task(TaskBlock("triviaqa", "t", fields)))


def test_the_hub_configuration_depends_on_the_tasks_fields():
    assert hub_config() == ("mandarjoshi/trivia_qa", "unfiltered")
    assert hub_config(edition="wikipedia", documents=False)[1] == "rc.wikipedia.nocontext"


def test_a_task_that_the_hub_has_not_asks_for_files():
    facts = TaskFacts("closed-book", "f1", {"dev": "dev.jsonl"})
    with pytest.raises(
        DataError, match=r"not from the Hub: set data to the folder of its files \(dev.jsonl\)"
    ):
        sources.hub_config(sources.Task("mine", facts, None))


OWN = '''
from dataclasses import dataclass
from maskpolicy.plugins.registry import task
from maskpolicy.types import Example

@task("capitals", group="own", metric="exact_match", files={"train": "a.jsonl", "dev": "b.jsonl"})
@dataclass(frozen=True)
class Capitals:
    """Asks for capitals."""

    def example(self, row):
        if row.get("as_dict"):
            return {"id": "x"}
        if row.get("bare"):
            return Example("x", "", "q", row["capital"])
        if row.get("boo"):
            raise RuntimeError("boo")
        return Example(row["id"], "", row["country"], (row["capital"].strip(),))
'''


CHOOSING = """
from dataclasses import dataclass
from maskpolicy import Example, task


@task("choosing-NAME", group="own", metric="f1", files={"train": "a.jsonl", "dev": "b.jsonl"})
@dataclass(frozen=True)
class Choosing:
    choose: str = "generate"

    def example(self, row):
        return Example(row["id"], "", "Which town?", ("Oslo",), choices=tuple(row["choices"]))
"""


@pytest.fixture(scope="module")
def capitals(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN)
    discovery.load_file(path)
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"capital": 3}, r"'capitals' failed: AttributeError: .*'strip' \({file}:18\)"),
        ({"country": None}, r"source of its Example must be text, not None: use str\(...\)"),
        ({"id": 7}, r"'capitals': id of its Example must be text, not 7: use str\(...\)"),
        ({"id": 0}, "id of its Example must be text, not 0"),
        ({"boo": 1}, r"failed: RuntimeError: boo \({file}:17\)"),
        ({"bare": 1}, r"targets of its Example must be a tuple of texts, not 'Oslo'"),
        ({"as_dict": 1}, "gave dict: it must return a maskpolicy.types.Example"),
    ],
)
def test_a_row_that_a_users_task_cannot_take_is_a_malformed_row(tmp_path, capitals, change, says):
    good = {"id": "a", "country": "Norway", "capital": "Oslo"}
    path = write(tmp_path / "b.jsonl", [good, {**good, "id": "b", **change}])
    given = {"name": "capitals", "label": "capitals"}
    with pytest.raises(DataError, match=f"{path}, line 2: .*{says.format(file=capitals)}"):
        examples.read_examples(TaskBlock(**given), "test", tmp_path)
    split = examples.read_split(TaskBlock(**given, on_error="skip"), "test", tmp_path)
    assert [one.id for one in split.examples] == ["a"] and split.malformed == 1


@pytest.mark.parametrize("choose", ["generate", "likelihood"])
def test_an_example_without_choices_to_take_one_of_is_a_malformed_row(tmp_path, choose):
    path = tmp_path / "own_choices.py"
    path.write_text(CHOOSING.replace("NAME", choose))
    discovery.load_file(path)
    rows = [{"id": "a", "choices": ["Oslo", "Bergen"]}, {"id": "b", "choices": []}]
    file = write(tmp_path / "b.jsonl", rows)
    block = TaskBlock(f"choosing-{choose}", "choosing", {"choose": choose})
    if choose == "generate":
        assert len(examples.read_examples(block, "test", tmp_path)) == 2
        return
    with pytest.raises(DataError, match=f"{file}, line 2: .*has no choices.*give choices="):
        examples.read_examples(block, "test", tmp_path)


def test_an_id_that_comes_twice_in_a_users_split_names_both_rows(tmp_path, capitals):
    good = {"id": "dev0", "country": "Norway", "capital": "Oslo"}
    path = write(tmp_path / "b.jsonl", [good, {**good, "id": "b"}, good])
    block = TaskBlock("capitals", "capitals")
    with pytest.raises(DataError, match=f"{path}, line 3: id 'dev0' is that of {path}, line 1 too"):
        examples.read_examples(block, "test", tmp_path)


def test_a_users_task_may_have_files_of_any_format(tmp_path):
    source = OWN.replace('"capitals"', '"capitals-csv"').replace(".jsonl", ".csv")
    path = tmp_path / "own_csv.py"
    path.write_text(source)
    discovery.load_file(path)
    (tmp_path / "b.csv").write_text('id,country,capital\na,"Norway, the",Oslo\n')
    found = examples.read_examples(TaskBlock("capitals-csv", "capitals-csv"), "test", tmp_path)
    assert [(one.id, one.source, one.targets) for one in found] == [("a", "Norway, the", ("Oslo",))]


def test_a_limit_keeps_that_many_examples_of_its_split_in_file_order(tmp_path):
    write(tmp_path / NAMES["train"], [row(n, f"Town {n // 4}") for n in range(200)])
    write(tmp_path / NAMES["dev"], [row(n) for n in range(50)])
    whole = {split: ids(split, tmp_path) for split in sources.SPLITS}
    found = {split: ids(split, tmp_path, limit=Limit(train=40, test=7)) for split in sources.SPLITS}
    assert {split: len(some) for split, some in found.items()} == {
        "train": 40,
        "dev": len(whole["dev"]),
        "test": 7,
    }
    for split, some in found.items():
        assert some == [one for one in whole[split] if one in some]
    towns = [int(one[1:]) // 4 for one in found["train"]]
    assert len(set(towns)) == 10
    assert ids("train", tmp_path, limit=Limit(train=10**6)) == whole["train"]


def test_short_answers_are_those_of_the_row_and_are_kept_only_where_there_are_some(tmp_path):
    wow = TaskBlock("wow", "wow")
    turn = {"input": "And where?", "output": [{"answer": "In Ulm."}]}
    told = {"id": "a_1", **turn, "meta": {"obj_surface": ["Ulm", "Ulm ", ""]}}
    silent = [{"id": "b_1", **turn, "meta": {"obj_surface": []}}, {"id": "c_1", **turn}]
    write(tmp_path / "wow-dev-kilt.jsonl", [told, *silent])
    found = examples.read_examples(wow, "test", tmp_path, contexts=False)
    assert [one.short_answers for one in found] == [("Ulm",), (), ()]
    examples.write_rows(tmp_path / "rows.jsonl", found)
    assert examples.read_rows(tmp_path / "rows.jsonl") == found
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert ["short_answers" in json.loads(line) for line in lines] == [True, False, False]
