"""The policy salient-span: which spans it finds, and how it draws among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy import annotate, plugins
from maskpolicy.errors import ConfigError
from maskpolicy.types import Passage, as_spans
from policies.salient_span import SalientSpan

TEXT = "Ada Byron met Dr. Babbage in Turin on 5 June 1833 ."


def passage(text: str, **columns) -> Passage:
    """Return a passage with one token for each blank-separated word."""
    words = text.split()
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
    offsets = as_spans([(s, s + len(w)) for s, w in zip(starts, words, strict=True)])
    index = np.arange(len(words), dtype=np.int32)
    each = np.stack([index, index + 1], axis=1)
    return Passage("p", text, index, offsets, each, as_spans([(0, len(words))]), columns)


def annotated(text: str, **fields) -> list[list[int]]:
    """Return the entity spans of one text."""
    return SalientSpan(**fields).annotate([passage(text)])["entities"][0].tolist()


def test_it_is_registered_with_spans_as_its_target():
    entry = plugins.find("policy", "salient-span")
    assert entry.plugin is SalientSpan
    assert entry.facts == {"target": "spans"}


def test_annotate_gives_token_spans_of_whole_entities():
    assert annotated(TEXT) == [[0, 2], [3, 5], [6, 7], [8, 11]]


def test_labels_choose_among_entities():
    assert annotated(TEXT, labels=("DATE",)) == [[8, 11]]


def test_a_passage_without_entities_has_an_empty_column_and_no_span():
    rng = np.random.default_rng(0)
    policy = SalientSpan()
    plain = passage("nothing happened to anybody .")
    column = policy.annotate([plain])["entities"][0]
    assert (column.shape, column.dtype) == ((0, 2), np.int32)
    assert policy.select(passage(plain.text, entities=column), rng).shape == (0, 2)


def test_every_entity_is_drawn_equally_often():
    columns = SalientSpan().annotate([passage(TEXT)])
    one = passage(TEXT, entities=columns["entities"][0])
    rng = np.random.default_rng(0)
    drawn = [int(SalientSpan().select(one, rng)[0, 0]) for _ in range(4000)]
    _, counts = np.unique(drawn, return_counts=True)
    assert len(counts) == 4
    assert (abs(counts - 1000) < 150).all()


@given(count=st.integers(0, 8), spans=st.integers(1, 10), seed=st.integers(0, 2**32))
def test_select_draws_entities_without_replacement_in_text_order(count, spans, seed):
    found = as_spans([(2 * i, 2 * i + 1) for i in range(count)])
    one = passage("a b " * 9, entities=found)
    drawn = SalientSpan(spans=spans).select(one, np.random.default_rng(seed)).tolist()
    assert len(drawn) == min(spans, count)
    assert drawn == sorted(drawn)
    assert all(span in found.tolist() for span in drawn)


def test_hiding_no_span_is_refused():
    with pytest.raises(ConfigError, match="spans"):
        SalientSpan(spans=0)


def test_processes_run_the_rules_too(monkeypatch):
    monkeypatch.setattr(annotate, "SHARD", 2)
    passages = [passage(text) for text in (TEXT, "Rome fell in 476 AD .", "no", "It was Ada .")]
    alone = annotate.annotate(SalientSpan(), passages)["entities"]
    shared = annotate.annotate(SalientSpan(), passages, workers=2)["entities"]
    assert [row.tolist() for row in shared] == [row.tolist() for row in alone]


def test_the_pipeline_belongs_to_what_annotations_rest_on():
    assert SalientSpan().depends()["name"] == "rules"
    with pytest.raises(ConfigError, match="spacy download"):
        SalientSpan(pipeline="en_core_web_absent").depends()
