"""Named entities: CoNLL's columns are read, and F1 is that of seqeval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from official import read, split
from seqeval.metrics import f1_score, precision_score, recall_score

from maskpolicy.core import metrics
from maskpolicy.core.errors import DataError
from maskpolicy.data.majority import Material, best

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
    assert split("ner", conll).unlabelled == 1  # the line that begins the document
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.conll").write_text(SECOND)
    (one,) = read("ner", tmp_path, fields={"edition": "conll"})
    assert (one.source, one.targets[0]) == ("A B C D E", "O B-LOC B-ORG I-ORG I-ORG")
    assert read("ner", conll, fields={"tag": 2})[1].targets == ("B-NP I-NP",)


@pytest.mark.parametrize(
    ("line", "fields", "said"),
    [
        ("Peter PER", {}, r"test\.txt, line 1: the tag 'PER' of 'Peter' is neither O nor like B-P"),
        ("Peter", {"tag": 3}, r"line 1: 'Peter' has no column 3"),
    ],
)
def test_lines_that_are_none_of_conlls_are_named(conll, line, fields, said):
    (conll / "test.txt").write_text(f"{line}\n")
    with pytest.raises(DataError, match=said):
        read("ner", conll, fields=fields)


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
