"""Minimal pairs in the files of BLiMP and BabyLM's pipeline, and entities in CoNLL's columns."""

import gzip
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from official import files, groups, read, split, write
from refusals import refused
from seqeval.metrics import f1_score, precision_score, recall_score

from maskpolicy.core import metrics
from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Example
from maskpolicy.data.majority import Material, best
from maskpolicy.experiment.definition import Limit


def blimp(number, uid="wh_island", **more):
    return {
        **{"sentence_good": f"Who leaves {number}?", "sentence_bad": f"Who leave {number}?"},
        **{"field": "syntax_semantics", "linguistics_term": "island_effects", "UID": uid},
        **{"pairID": str(number), "one_prefix_method": True, **more},
    }


@pytest.fixture
def official(tmp_path):
    """Return a folder with two paradigms, one of them packed, and a file of another task."""
    write(tmp_path / "blimp" / "wh_island.jsonl.gz", blimp(0), blimp(1), blimp(2))
    write(tmp_path / "blimp" / "transitive.jsonl", blimp(0, "transitive"))
    write(tmp_path / "nq_open.jsonl", {"question": "who?", "answer": ["Ada"]})
    return tmp_path


def test_a_paradigm_is_a_file_and_a_group(official):
    assert files("blimp", official) == ["transitive.jsonl", "wh_island.jsonl.gz"]
    found = read("blimp", official)
    assert [one.id for one in found] == ["transitive-0", *(f"wh_island-{n}" for n in range(3))]
    assert groups("blimp", official) == ["transitive", *["wh_island"] * 3]
    some = groups("blimp", official, limit=Limit(group=2))
    assert some == ["transitive", "wh_island", "wh_island"]
    assert found[0].choices == ("Who leaves 0?", "Who leave 0?")
    assert found[0].targets == ("Who leaves 0?",)
    assert found[0].slices == {"field": "syntax/semantics", "phenomenon": "island_effects"}


def test_equal_sentences_are_left_out_and_other_keys_are_one_line(official, caplog):
    same = blimp(3, sentence_bad="Who leaves 3?")
    write(official / "blimp" / "passive_1.jsonl", same, blimp(4))
    with caplog.at_level(logging.INFO):
        found = split("blimp", official)
    assert (len(found.examples), found.unlabelled) == (5, 1)
    assert f"{official / 'blimp'}: 1 rows without two different texts left out" in caplog.messages
    for row, said in (
        ({"good": "a", "bad": "b"}, "key 'sentence_good' is missing"),
        (blimp(5, sentence_bad=""), "key 'sentence_bad' is empty"),
        (blimp(5, field={}), "key 'field' must be text, not {}"),
    ):
        write(official / "blimp" / "passive_2.jsonl", row)
        refused(read, "blimp", official, error=DataError, match=f"passive_2.jsonl, line 1: {said}")


def test_a_file_names_the_paradigm_of_a_row_of_the_supplement(tmp_path):
    row = {"sentence_good": "A: Who left? B: Ada.", "sentence_bad": "A: Who left? B: Rome."}
    write(tmp_path / "supplement_filtered" / "turn_taking.jsonl", row, {**row, "sentence_bad": "B"})
    found = read("blimp-supplement", tmp_path)
    assert [one.id for one in found] == ["turn_taking-1", "turn_taking-2"]
    assert {one.group for one in found} == {"turn_taking"}
    assert found[0].slices == {"field": "supplement", "phenomenon": "supplement"}
    write(tmp_path / "blimp" / "passive.jsonl", blimp(5))
    said = "key 'UID': a row of BLiMP: name the folder of the supplement"
    refused(read, "blimp-supplement", tmp_path / "blimp", error=DataError, match=said)


def test_the_context_of_ewok_is_read_and_its_target_is_scored(tmp_path):
    row = {
        **{"Domain": "social-properties", "ContextType": "direct", "ContextDiff": "antonym"},
        **{"TargetDiff": "swap", "Context1": "Ada is kind.", "Context2": "Ada is mean."},
        **{"Target1": "Bob likes her.", "Target2": "Bob hates her."},
    }
    path = tmp_path / "ewok_fast" / "social.jsonl"
    write(path, row, {**row, "Target2": ""})
    refused(read, "ewok", tmp_path, error=DataError, match="line 2: key 'Target2' is empty")
    write(path, row)
    (found,) = read("ewok", tmp_path)
    assert (found.source, found.choices) == ("Ada is kind.", (row["Target1"], row["Target2"]))
    assert found.group == "social-properties"
    assert found.slices == {"context type": "direct", "context": "antonym", "target": "swap"}


def test_columns_of_a_table_are_pairs(tmp_path):
    (tmp_path / "pairs.csv").write_text("right,wrong,kind,start\nI am,I is,verb,So\nMe,I,case,\n")
    fields = {"good": "right", "bad": "wrong", "topic": "kind", "before": "start"}
    first, second = read("pairs", tmp_path, fields=fields | {"slices": ("kind",)})
    assert (first.source, first.choices, first.group) == ("So", ("I am", "I is"), "verb")
    assert (second.source, second.slices) == ("", {"kind": "case"})


@pytest.mark.parametrize(
    ("row", "said"),
    [("a,", "key 'bad' is empty"), ("a,a", "'good' and 'bad' are the same text, 'a'")],
)
def test_a_pair_that_is_none_is_one_line(tmp_path, row, said):
    (tmp_path / "pairs.csv").write_text(f"good,bad\nx,y\n{row}\n")
    refused(read, "pairs", tmp_path, error=DataError, match=rf"pairs.csv, line 3: {said}")
    (tmp_path / "pairs.csv").write_text("good,worse\nx,y\n")
    with pytest.raises(DataError, match=r"has no column 'bad' \(it has good, worse\)"):
        read("pairs", tmp_path)


def test_the_official_files_of_blimp(real_data, tmp_path):
    """20 rows of each, and those of equal sentences."""
    written = 0
    for path in (real_data / "english" / "blimp").glob("*.jsonl.gz"):
        rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        kept = [*rows[:20], *(r for r in rows[20:] if r["sentence_good"] == r["sentence_bad"])]
        write(tmp_path / path.name, *kept)
        written += len(kept)
    found = split("blimp", tmp_path)
    assert (len(found.examples), found.unlabelled) == (written - 7, 7)
    assert len({one.group for one in found.examples}) == 67
    assert len({one.slices["phenomenon"] for one in found.examples}) == 13
    assert len({one.slices["field"] for one in found.examples}) == 4


CONLL = """-DOCSTART- -X- -X- O

U.N. NNP I-NP I-ORG
official NN I-NP O
Ekeus NNP I-NP I-PER
Smith NNP I-NP B-PER
heads VBZ I-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
SECOND = "# id 7\nA\tO\nB\tS-LOC\nC\tB-ORG\nD\tI-ORG\nE\tE-ORG\n"


@pytest.fixture
def conll(tmp_path):
    """Return a folder with official-like files."""
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text(CONLL)
    return tmp_path


def test_sentences_are_read_with_tags_in_one_scheme(conll, tmp_path):
    found = read("ner", conll)
    assert [(one.source, one.targets[0]) for one in found] == [
        ("U.N. official Ekeus Smith heads", "B-ORG O B-PER B-PER O"),
        ("Peter Blackburn", "B-PER I-PER"),
    ]
    texts = [one.source for one in found]
    assert [one.source for one in read("ner", conll, "dev")] == texts  # of valid.txt
    (conll / "test.txt").write_text(CONLL.replace("O\n\nU.N.", "O\nU.N.").replace("heads", "#"))
    assert read("ner", conll)[0].source == "U.N. official Ekeus Smith #"
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.conll").write_text(SECOND)
    (one,) = read("ner", tmp_path, fields={"edition": "conll"})
    assert (one.source, one.targets[0]) == ("A B C D E", "O B-LOC B-ORG I-ORG I-ORG")
    both = {"tag": 2, "edition": "valid"}  # conll is preferred
    assert read("ner", conll, fields=both)[1].targets == ("B-NP I-NP",)


@pytest.mark.parametrize(
    ("line", "fields", "said"),
    [
        ("Peter PER", {}, r"test\.txt, line 1: the tag 'PER' of 'Peter' is neither O nor like B-P"),
        ("Peter", {"tag": 3}, r"line 1: 'Peter' has no column 3"),
        ("10 000\tO", {}, r"line 1: the word '10 000' is empty or holds a blank: write _"),
        ("\xa0 O", {}, "line 1: 'O' has no column 1"),
        ("Jan\tO\n\xa0\tO", {}, r"line 1: the word '\\xa0' is empty or holds a blank"),
    ],
)
def test_lines_that_are_none_of_conlls_are_named(conll, line, fields, said):
    (conll / "test.txt").write_text(f"{line}\n")
    refused(read, "ner", conll, fields=fields, error=DataError, match=said)


TAGS = st.sampled_from(["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC"))])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=8), min_size=1)


@given(SENTENCES)
def test_scores_are_those_of_seqeval(sentences):
    guessed, known = ([[pair[side] for pair in one] for one in sentences] for side in (0, 1))
    found = metrics.total(
        "entity_f1", [" ".join(one) for one in guessed], [[" ".join(one)] for one in known]
    )
    wanted = [score(known, guessed) for score in (f1_score, precision_score, recall_score)]
    parts = (found.score, found.parts["precision"], found.parts["recall"])
    assert parts == pytest.approx(wanted)


def test_a_guess_without_a_model_is_the_commonest_tag_of_each_word(conll):
    train = read("ner", conll, "train")
    found = best(Material(train, "entity_f1"), train[:1], train, "tags")
    assert (found.rule, found.score) == ("commonest tag of a word", 1.0)
    one = [Example("", "", "10\xa0000 m", ("B-QTY O",))]  # of a user's task
    assert best(Material(one, "entity_f1"), one, one, "tags").score == 1.0


@pytest.mark.parametrize("comment", ["# newdoc", "#\thttp://de.wikipedia.org/wiki/X\t[2009-10-17]"])
def test_comments_have_any_number_of_cells(tmp_path, comment):
    (tmp_path / "test.txt").write_text(f"{comment}\n1\tAda\tx\tB-PER\n2\tspoke\tx\tO\n")
    (one,) = read("ner", tmp_path, fields={"word": 1, "tag": 3})
    assert (one.source, one.targets) == ("Ada spoke", ("B-PER O",))


def test_a_word_may_hold_a_no_break_space(conll):
    (conll / "test.txt").write_text("10\xa0000 B-QTY\nm O\n")
    assert [(one.source, one.targets[0]) for one in read("ner", conll)] == [
        ("10\xa0000 m", "B-QTY O")
    ]
