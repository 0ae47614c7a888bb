"""The policy salient-span: which spans it finds, and how it draws among them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maskpolicy.policies.salient_span import SalientSpan
from small import words as passage

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import as_spans
from maskpolicy.data.corpus import annotation

TEXT = "Ada Byron met Dr. Babbage in Turin on 5 June 1833 ."


def annotated(text: str, **fields) -> list[list[int]]:
    """Return the entity spans of one text."""
    return SalientSpan(**fields).annotate([passage(text)])["entities"][0].tolist()


def test_annotate_gives_token_spans_of_whole_entities():
    assert annotated(TEXT) == [[0, 2], [3, 5], [6, 7], [8, 11]]


def test_labels_choose_among_entities():
    assert annotated(TEXT, labels=("DATE",)) == [[8, 11]]


NUMBERED = "Ada Byron paid $5 million at 9:30 a.m. for 12 looms , 40 per cent , in 1854 ."


def test_numbers_and_times_are_hidden_only_where_labels_say_so():
    names_and_dates = [[0, 2], [17, 18]]
    numbers, times = [[3, 5], [9, 10], [12, 15]], [[6, 8]]
    assert annotated(NUMBERED) == names_and_dates
    assert annotated(NUMBERED, labels=("NUMBER",)) == numbers
    assert annotated(NUMBERED, labels=("TIME",)) == times
    for every in ("all", ()):
        assert annotated(NUMBERED, labels=every) == sorted(names_and_dates + numbers + times)


def test_a_pipeline_without_any_of_the_labels_is_told_its_own(tmp_path):
    import spacy

    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "ANIMAL", "pattern": "fox"}, {"label": "ORG", "pattern": "BBC"}])
    nlp.to_disk(tmp_path / "some")
    ruler.clear()
    ruler.add_patterns([{"label": "ANIMAL", "pattern": "fox"}])
    nlp.to_disk(tmp_path / "animals")
    text = "The BBC saw a fox ."
    assert annotated(text, pipeline=str(tmp_path / "some")) == [[1, 2]]
    animals = str(tmp_path / "animals")
    with pytest.raises(ConfigError, match="has none of them; it has ANIMAL: name some of these"):
        annotated(text, pipeline=animals)
    for labels in ("all", ("ANIMAL",)):
        assert annotated(text, pipeline=animals, labels=labels) == [[4, 5]]


def test_the_worlds_years_are_dates_and_nothing_there_is_a_number(tmp_path):
    from maskpolicy.data import world

    world.write(world.make({"people": 20, "general_people": 4}), tmp_path)
    with (tmp_path / "intermediate.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    policy = SalientSpan()
    found = policy.entities([row["text"] for row in rows])
    every = SalientSpan(labels="all").entities([row["text"] for row in rows])
    assert found == every
    years = 0
    for row, spans in zip(rows, found, strict=True):
        dates = {row["text"][start:end] for start, end, label in spans if label == "DATE"}
        wanted = {row["text"][start:end] for start, end, _ in row["asked"]}
        stated = {text for text in wanted if text.isdigit()}
        assert stated <= dates
        years += len(stated)
    assert years > 20


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


def test_processes_run_the_rules_too(monkeypatch):
    monkeypatch.setattr(annotation, "BATCH", 2)
    passages = [passage(text) for text in (TEXT, "Rome fell in 476 AD .", "no", "It was Ada .")]
    alone = annotation.annotate(SalientSpan(), passages)["entities"]
    shared = annotation.annotate(SalientSpan(), passages, workers=2)["entities"]
    assert [row.tolist() for row in shared] == [row.tolist() for row in alone]


def test_the_pipeline_belongs_to_what_annotations_rest_on():
    assert SalientSpan().depends()["name"] == "rules"
    with pytest.raises(ConfigError, match="spacy download"):
        SalientSpan(pipeline="en_core_web_absent").depends()
