"""GLUE's and SQuAD's tasks over rows in their official formats and the Hub's columns."""

from __future__ import annotations

import gzip
import json

import pytest

from maskpolicy.config.experiment import TaskBlock
from maskpolicy.errors import DataError
from maskpolicy.formats import examples, sources
from maskpolicy.formats.sources import facts
from maskpolicy.plugins.discovery import find_plugin

HEADS = {
    "sst2": ("SST-2", "sentence\tlabel"),
    "mrpc": ("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"),
    "stsb": (
        "STS-B",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    ),
    "qqp": ("QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"),
    "mnli": (
        "MNLI",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
    ),
    "qnli": ("QNLI", "index\tquestion\tsentence\tlabel"),
    "rte": ("RTE", "index\tsentence1\tsentence2\tlabel"),
}
ROWS = {
    "cola": ("gj04\t1\t\tThey said so.", ("They said so.", None, "1")),
    "sst2": ("a fine film \t1", ("a fine film", None, "1")),
    "mrpc": ('1\t7\t8\tHe said "no.\tHe said no.', ('He said "no.', "He said no.", "1")),
    "stsb": (
        "0\tg\tf\t2012\t1\tn\tn\tA plane.\tAn aeroplane.\t4.750",
        ("A plane.", "An aeroplane.", "4.75"),
    ),
    "qqp": ("5\t1\t2\tWhy?\tHow so?\t0", ("Why?", "How so?", "0")),
    "mnli": (
        "0\t1\t1n\tx\t(\t(\t(\t(\tIt rains.\tIt is wet.\tn\tneutral",
        ("It rains.", "It is wet.", "neutral"),
    ),
    "qnli": ("3\tWho?\tIt was I.\tentailment", ("Who?", "It was I.", "entailment")),
    "rte": ("3\tIt was I.\tI was.\tnot_entailment", ("It was I.", "I was.", "not_entailment")),
}
HUB = {
    "cola": ({"sentence": "So.", "label": 0, "idx": 3}, "0"),
    "sst2": ({"sentence": "So.", "label": 1, "idx": 3}, "1"),
    "mrpc": ({"sentence1": "A.", "sentence2": "B.", "label": 1, "idx": 3}, "1"),
    "stsb": ({"sentence1": "A.", "sentence2": "B.", "label": 3.25, "idx": 3}, "3.25"),
    "qqp": ({"question1": "A?", "question2": "B?", "label": 1, "idx": 3}, "1"),
    "mnli": ({"premise": "A.", "hypothesis": "B.", "label": 2, "idx": 3}, "contradiction"),
    "qnli": ({"question": "A?", "sentence": "B.", "label": 1, "idx": 3}, "not_entailment"),
    "rte": ({"sentence1": "A.", "sentence2": "B.", "label": 0, "idx": 3}, "entailment"),
}  # fmt: skip


def block(name, fields=None, **keys):
    return TaskBlock(name, name, fields or {}, **keys)


def write(folder, name, *lines, file="dev.tsv"):
    below, head = HEADS.get(name, ("CoLA", ""))
    path = folder / below / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(filter(None, [head, *lines])) + "\n", encoding="utf-8")


def load(folder, name, *lines, file="dev.tsv", fields=None, **keys):
    write(folder, name, *lines, file=file)
    return examples.read_split(block(name, fields, **keys), "test", folder)


@pytest.mark.parametrize("name", ROWS)
def test_an_official_row(tmp_path, name):
    line, (first, second, label) = ROWS[name]
    file = "dev_matched.tsv" if name == "mnli" else "dev.tsv"
    (example,) = load(tmp_path, name, line, file=file).examples
    assert (example.source, example.context, example.targets) == (first, second, (label,))
    assert (label in example.choices) == (name != "stsb")


@pytest.mark.parametrize("name", HUB)
def test_a_row_of_the_hub(name):
    row, label = HUB[name]
    plugin = sources.task(block(name)).plugin
    assert plugin.example(row).targets == (label,)
    assert plugin.example({**row, "label": -1}) is None


@pytest.mark.parametrize("name", HUB)
def test_the_facts_of_a_task(name):
    stated = facts(find_plugin("task", name))
    assert (stated.kind, stated.group, stated.hub.id) == ("label", "glue", "nyu-mll/glue")
    assert sources.hub_config(sources.task(block(name)))[1] == name


def test_the_labels_of_mnli_have_the_hubs_order():
    plugin = sources.task(block("mnli")).plugin
    row = HUB["mnli"][0]
    found = [plugin.example({**row, "label": number}).targets[0] for number in range(3)]
    assert found == ["entailment", "neutral", "contradiction"]


def test_mnli_has_two_test_splits_and_leaves_rows_without_gold_out(tmp_path):
    line = ROWS["mnli"][0]
    write(tmp_path, "mnli", line, line.replace("neutral", "-"), file="dev_matched.tsv")
    write(tmp_path, "mnli", *[line] * 3, file="dev_mismatched.tsv")
    found = examples.read_split(block("mnli"), "test", tmp_path)
    assert (len(found.examples), found.unlabelled) == (1, 1)
    other = examples.read_examples(block("mnli", {"edition": "mismatched"}), "test", tmp_path)
    assert len(other) == 3
    names = {"auto": "validation_matched", "mismatched": "validation_mismatched"}
    for edition, name in names.items():
        assert sources.hub_splits(sources.task(block("mnli", {"edition": edition}))) == {
            "dev": name
        }


def test_a_line_with_too_few_fields_is_named_or_skipped(tmp_path):
    good, bad = ROWS["qqp"][0], "6\t1\t2\tWhy?"
    with pytest.raises(DataError, match=r"QQP/dev.tsv, line 3: has 4 cells, not 6 \(id, qid1"):
        load(tmp_path, "qqp", good, bad)
    found = load(tmp_path, "qqp", good, bad, on_error="skip")
    assert (len(found.examples), found.malformed) == (1, 1)


def test_a_strange_label_is_one_line(tmp_path):
    with pytest.raises(DataError, match="key 'label': 'maybe' is none of the labels entailment"):
        load(tmp_path, "rte", "3\tIt was I.\tI was.\tmaybe")


@pytest.mark.parametrize("score", ["nan", "inf", "much"])
def test_a_similarity_that_is_no_number_is_one_line(tmp_path, score):
    with pytest.raises(DataError, match=f"line 2: key 'score' must be a number, not '{score}'"):
        load(tmp_path, "stsb", ROWS["stsb"][0].replace("4.750", score))


def test_another_tasks_file_is_refused(tmp_path):
    write(tmp_path, "qnli", ROWS["qnli"][0])
    with pytest.raises(DataError, match="is not a file of task 'qqp'"):
        examples.read_split(block("qqp"), "test", tmp_path / "QNLI")


def test_a_byte_order_mark_and_carriage_returns_are_no_part_of_a_row(tmp_path):
    path = tmp_path / "MRPC" / "dev.tsv"
    path.parent.mkdir()
    text = f"\ufeff{HEADS['mrpc'][1]}\r\n{ROWS['mrpc'][0]}\r\n"
    path.write_bytes(text.encode())
    (example,) = examples.read_examples(block("mrpc"), "test", tmp_path)
    assert example.context == "He said no."


def test_dev_is_carved_from_train_by_premise(tmp_path):
    lines = [f"{i}\tText {i // 4}.\tIt is {i}.\tentailment" for i in range(80)]
    write(tmp_path, "rte", *lines, file="train.tsv")
    train, dev = (
        examples.read_examples(block("rte"), split, tmp_path) for split in ("train", "dev")
    )
    assert len(train) + len(dev) == 80
    assert dev and not {one.group for one in train} & {one.group for one in dev}


def test_equal_sentences_of_cola_stand_on_one_side(tmp_path):
    lines = [f"gj04\t{i % 2}\t\tThey said {i // 2}." for i in range(200)]
    write(tmp_path, "cola", *lines, "gj04\t1\t\tthey  said 0.", file="train.tsv")
    train, dev = (
        examples.read_examples(block("cola"), split, tmp_path) for split in ("train", "dev")
    )
    assert len(train) + len(dev) == 201 and len(dev) > 10
    sides = [{one.source.lower().replace("  ", " ") for one in side} for side in (train, dev)]
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("name", ["mrpc", "stsb", "qqp", "qnli", "rte"])
def test_pairs_that_share_a_text_belong_together_also_through_others(tmp_path, name):
    line, (first, second, _) = ROWS[name]

    def pair(one, two):
        cells = line.split("\t")
        cells[cells.index(first)], cells[cells.index(second)] = one, two
        return "\t".join(cells)

    lines = [pair("A.", "B."), pair("D.", "E."), pair("C.", "b."), pair("C.", "F.")]
    groups = [one.group for one in load(tmp_path, name, *lines).examples]
    assert groups[0] == groups[2] == groups[3] != groups[1]


def test_hypotheses_on_one_premise_belong_together(tmp_path):
    line = ROWS["mnli"][0]
    lines = [line, line.replace("It is wet.", "Who?"), line.replace("It rains.", "No.")]
    found = load(tmp_path, "mnli", *lines, file="dev_matched.tsv").examples
    assert [one.group for one in found] == ["It rains.", "It rains.", "No."]


def test_a_linked_group_larger_than_devs_share_stays_in_train(tmp_path):
    lines = [f"{i}\tText {i}.\tText {i + 1}.\tentailment" for i in range(60)]
    lines += [f"{i}\tPremise {i}.\tIt is {i}.\tentailment" for i in range(60, 90)]
    write(tmp_path, "rte", *lines, file="train.tsv")
    train, dev = (
        examples.read_examples(block("rte"), split, tmp_path) for split in ("train", "dev")
    )
    assert len({one.group for one in train if one.source.startswith("Text")}) == 1
    assert dev and all(one.source.startswith("Premise") for one in dev)


def test_a_gzipped_table_is_read(tmp_path):
    write(tmp_path, "rte", ROWS["rte"][0])
    path = tmp_path / "RTE" / "dev.tsv"
    (tmp_path / "RTE" / "dev.tsv.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert examples.read_examples(block("rte"), "test", tmp_path)[0].context == "I was."


CONTEXT = "The Oder runs through Lindau. "
QA = {
    "id": "1",
    "question": "What runs through Lindau? ",
    "answers": [{"text": "The Oder", "answer_start": 0}, {"text": " Oder", "answer_start": 3}],
}
NONE = {"id": "2", "question": "Why?", "answers": [], "is_impossible": True}


def squad(folder, *qas, name="dev-v1.1.json", task="squad", **keys):
    article = {"title": "Oder", "paragraphs": [{"context": CONTEXT, "qas": list(qas)}]}
    (folder / name).write_text(json.dumps({"version": "x", "data": [article]}))
    return examples.read_split(block(task, **keys), "test", folder)


def test_squad(tmp_path):
    (example,) = squad(tmp_path, QA).examples
    assert (example.id, example.group) == ("1", "Oder")
    assert example.source == "What runs through Lindau?"
    assert example.targets == ("The Oder", "Oder")
    assert (example.context, example.start, example.answerable) == (CONTEXT, 0, True)


def test_questions_on_one_paragraph_belong_together_where_the_article_has_no_title(tmp_path):
    paragraphs = [
        {"context": CONTEXT + str(n % 2), "qas": [{**QA, "id": f"{n}"}]} for n in range(4)
    ]
    content = {"data": [{"paragraphs": paragraphs}]}
    (tmp_path / "dev-v1.1.json").write_text(json.dumps(content))
    groups = [one.group for one in examples.read_examples(block("squad"), "test", tmp_path)]
    assert groups[:2] == groups[2:] and groups[0] != groups[1]


def test_an_answers_outer_blanks_move_its_start(tmp_path):
    (example,) = squad(tmp_path, {**QA, "answers": QA["answers"][1:]}).examples
    assert CONTEXT[example.start :].startswith(example.targets[0])


def test_squad_2_keeps_questions_without_an_answer(tmp_path):
    found = squad(tmp_path, QA, NONE, name="dev-v2.0.json", task="squad_v2")
    assert [(one.targets != (), one.answerable) for one in found.examples] == [
        (True, True),
        (False, False),
    ]
    assert facts(find_plugin("task", "squad_v2")).unanswerable


def test_squad_1_leaves_them_out(tmp_path):
    assert squad(tmp_path, QA, NONE).unlabelled == 1


def test_an_answer_that_stands_elsewhere_is_refused(tmp_path):
    wrong = {**QA, "answers": [{"text": "Oder", "answer_start": 1}]}
    with pytest.raises(DataError, match=r"key 'answers.answer_start': 'Oder' does not stand at 1"):
        squad(tmp_path, wrong)


def test_the_hubs_columns_of_squad():
    row = {**QA, "title": "Oder", "context": CONTEXT}
    row["answers"] = {"text": ["The Oder"], "answer_start": [0]}
    assert sources.task(block("squad")).plugin.example(row).start == 0
    row["answers"] = {"text": [], "answer_start": []}
    assert not sources.task(block("squad_v2")).plugin.example(row).answerable
