"""GLUE's and SQuAD's tasks over rows in their official formats and the Hub's columns."""

import pytest
from official import block, carved, groups, read, split, write
from refusals import refused

from maskpolicy.core.errors import DataError
from maskpolicy.data.taskfiles import sources
from maskpolicy.plugins.discovery import find_plugin

HEADS = {
    "cola": ("CoLA", None),
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
DEV = {"mnli": "dev_matched.tsv"}


def line(folder, name, *lines, file=""):
    below, head = HEADS[name]
    place = folder / below / (file or DEV.get(name, "dev.tsv"))
    return write(place, *([head] if head else []), *lines)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_a_file_and_of_the_hub(tmp_path, name):
    text, (first, second, label) = ROWS[name]
    line(tmp_path, name, text)
    (example,) = read(name, tmp_path)
    assert (example.source, example.context, example.targets) == (first, second, (label,))
    assert (label in example.choices) == (name != "stsb")
    task, (row, label) = sources.task(block(name)), HUB[name]
    assert task.plugin.example(row).targets == (label,)
    assert task.plugin.example({**row, "label": -1}) is None
    assert (task.facts.kind, task.facts.group) == ("label", "glue")
    assert sources.hub_config(task) == ("nyu-mll/glue", name)


def test_mnli_has_two_test_splits_and_leaves_rows_without_gold_out(tmp_path):
    text = ROWS["mnli"][0]
    line(tmp_path, "mnli", text, text.replace("neutral", "-"))
    line(tmp_path, "mnli", *[text] * 3, file="dev_mismatched.tsv")
    found = split("mnli", tmp_path)
    assert (len(found.examples), found.unlabelled) == (1, 1)
    assert len(read("mnli", tmp_path, fields={"edition": "mismatched"})) == 3
    names = {"auto": "validation_matched", "mismatched": "validation_mismatched"}
    for edition, name in names.items():
        task = sources.task(block("mnli", {"edition": edition}))
        assert sources.hub_splits(task) == {"dev": name}


def test_dev_is_carved_from_train_by_premise_and_by_equal_sentences(tmp_path):
    lines = [f"{i}\tText {i // 4}.\tIt is {i}.\tentailment" for i in range(80)]
    line(tmp_path, "rte", *lines, file="train.tsv")
    assert sum(map(len, carved("rte", tmp_path))) == 80
    lines = [f"gj04\t{i % 2}\t\tThey said {i // 2}." for i in range(200)]
    line(tmp_path, "cola", *lines, "gj04\t1\t\tthey  said 0.", file="train.tsv")
    sides = carved("cola", tmp_path)
    first, second = [{one.source.lower().replace("  ", " ") for one in side} for side in sides]
    assert sum(map(len, sides)) == 201 and len(second) > 5 and not first & second
    # a linked group with more than dev's share stays in train
    lines = [f"{i}\tText {i}.\tText {i + 1}.\tentailment" for i in range(60)]
    lines += [f"{i}\tPremise {i}.\tIt is {i}.\tentailment" for i in range(60, 90)]
    line(tmp_path, "rte", *lines, file="train.tsv")
    train, dev = carved("rte", tmp_path)
    assert len({one.group for one in train if one.source.startswith("Text")}) == 1
    assert all(one.source.startswith("Premise") for one in dev)


@pytest.mark.parametrize("name", ["mrpc", "stsb", "qqp", "qnli", "rte"])
def test_pairs_that_share_a_text_belong_together_also_through_others(tmp_path, name):
    text, (first, second, _) = ROWS[name]

    def pair(one, two):
        cells = text.split("\t")
        cells[cells.index(first)], cells[cells.index(second)] = one, two
        return "\t".join(cells)

    line(tmp_path, name, pair("A.", "B."), pair("D.", "E."), pair("C.", "b."), pair("C.", "F."))
    found = groups(name, tmp_path)
    assert found[0] == found[2] == found[3] != found[1]


WET = "It rains in Lindau."
ASKED = 'Does "It" refer to "rain" in this passage?'
SPANS = {"span1_text": "rain", "span2_text": "It", "span1_index": 1, "span2_index": 0}
ANSWERS = [{"text": "Lindau", "idx": 0, "label": 1}, {"text": "Rome", "idx": 1, "label": 0}]
SUPERGLUE = {  # the rows of SuperGLUE's own file and of the Hub, and their examples
    "boolq": (
        {"question": "is it wet", "passage": WET, "idx": 0, "label": True},
        {"question": "is it wet", "passage": WET, "idx": 0, "label": 1},
        [("is it wet", WET, ("1",))],
    ),
    "multirc": (
        {"passage": {"text": WET, "questions": [{"question": "Where?", "answers": ANSWERS}]}},
        {"paragraph": WET, "question": "Where?", "answer": "Lindau", "idx": {}, "label": 1},
        [
            ("Question: Where? Answer: Lindau", WET, ("1",)),
            ("Question: Where? Answer: Rome", WET, ("0",)),
        ],
    ),
    "wsc": (
        {"text": WET, "target": SPANS, "idx": 0, "label": False},
        {"text": WET, **SPANS, "idx": 0, "label": 0},
        [(ASKED, WET, ("0",))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUPERGLUE)
def test_a_row_of_superglue_of_the_hub_and_of_babylms_pipeline(tmp_path, name):
    official, flat, wanted = SUPERGLUE[name]
    write(tmp_path / "official" / "val.jsonl", official)
    found = read(name, tmp_path / "official")
    assert [(one.source, one.context, one.targets) for one in found] == wanted
    assert len({one.id for one in found}) == len(found)
    assert len({one.group for one in found}) == 1
    write(tmp_path / f"{name}.valid.jsonl", flat)
    (example,) = read(name, tmp_path)
    assert (example.source, example.context, example.targets) == wanted[0]
    assert (example.group, example.choices) == (found[0].group, ("0", "1"))
    assert sources.task(block(name)).plugin.example({**flat, "label": -1}) is None


def test_files_of_other_tasks_beside_multirc_are_skipped_and_boolqs_own_release_is_read(tmp_path):
    own = {"question": "is it wet", "title": "Lindau", "answer": True, "passage": WET}
    write(tmp_path / "val.jsonl", own)
    write(tmp_path / "MultiRC" / "val.jsonl", SUPERGLUE["multirc"][0])
    assert len(read("multirc", tmp_path)) == 2
    assert [one.targets for one in read("boolq", tmp_path)] == [("1",)]
    (tmp_path / "webquestions.examples.test.json.bz2").touch()
    refused(read, "webquestions", tmp_path, error=DataError, match="unpack it .only .gz is read")
    mnli = sources.task(block("mnli", {"edition": "babylm"}))
    refused(sources.hub_config, mnli, error=DataError, match="the Hub has no edition 'babylm'")


@pytest.mark.parametrize("name", ["mnli", "mrpc", "qqp", "rte"])
def test_a_row_of_babylms_pipeline_is_that_of_the_hub(tmp_path, name):
    row, label = HUB[name]
    with pytest.raises(DataError, match=f"nor in {HEADS[name][0]}, glue_filtered, {name}: put"):
        read(name, tmp_path)
    write(tmp_path / "glue_filtered" / f"{name}.valid.jsonl", row)
    assert [one.targets for one in read(name, tmp_path)] == [(label,)]
    line(tmp_path, name, ROWS[name][0])  # the official file comes first
    assert [one.targets for one in read(name, tmp_path)] == [(ROWS[name][1][2],)]


CONTEXT = "The Oder runs through Lindau. "
QA = {
    "id": "1",
    "question": "What runs through Lindau? ",
    "answers": [{"text": "The Oder", "answer_start": 0}, {"text": " Oder", "answer_start": 3}],
}
NONE = {"id": "2", "question": "Why?", "answers": [], "is_impossible": True}


def qa(text, start):
    answers = [{"text": text, "answer_start": start}]
    return {"id": f"{start}", "question": "Which?", "answers": answers}


def squad(folder, *paragraphs, name="dev-v1.1.json", task="squad", **article):
    written = [{"context": context, "qas": qas} for context, qas in paragraphs]
    write(folder / name, {"version": "x", "data": [{**article, "paragraphs": written}]})
    return split(task, folder)


def test_squad(tmp_path):
    found = squad(tmp_path, (CONTEXT, [QA, NONE]), title="Oder")
    (example,) = found.examples
    assert (example.id, example.group, found.unlabelled) == ("1", "Oder", 1)
    assert (example.source, example.targets) == ("What runs through Lindau?", ("The Oder", "Oder"))
    assert (example.context, example.start, example.answerable) == (CONTEXT, 0, True)
    blanks = {**QA, "answers": QA["answers"][1:]}  # outer blanks move the start
    (example,) = squad(tmp_path, (CONTEXT, [blanks])).examples
    assert CONTEXT[example.start :].startswith(example.targets[0])
    # without a title, the questions on one paragraph belong together
    paragraphs = [(CONTEXT + str(n % 2), [{**QA, "id": f"{n}"}]) for n in range(4)]
    groups = [one.group for one in squad(tmp_path, *paragraphs).examples]
    assert groups[:2] == groups[2:] and groups[0] != groups[1]


def test_squad_2_keeps_questions_without_an_answer_and_the_hub_has_the_same_rows(tmp_path):
    found = squad(tmp_path, (CONTEXT, [QA, NONE]), name="dev-v2.0.json", task="squad_v2")
    answered = [(one.targets != (), one.answerable) for one in found.examples]
    assert answered == [(True, True), (False, False)]
    assert sources.facts(find_plugin("task", "squad_v2")).unanswerable
    row = {**QA, "title": "Oder", "context": CONTEXT}
    row["answers"] = {"text": ["The Oder"], "answer_start": [0]}
    assert sources.task(block("squad")).plugin.example(row).start == 0
    for none in ({**row, "is_impossible": False, "answers": []}, {"id": "1", "context": CONTEXT}):
        assert sources.task(block("squad_v2")).plugin.example(none) is None
    row["answers"] = {"text": [], "answer_start": []}
    assert not sources.task(block("squad_v2")).plugin.example(row).answerable
