"""The values of a row: official keys and the Hub's, types, and texts that no tokenizer takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.datafiles import fields
from maskpolicy.errors import DataError

ROW = {"text": " A. ", "empty": " ", "null": None, "number": 3, "list": ["a"], "object": {"b": 1}}


def test_the_first_key_that_a_row_has_is_read():
    assert fields.text(ROW, "Text", "null", "text") == " A. "
    assert fields.optional(ROW, "text") == "A."
    assert fields.texts(ROW, "List", "list") == ["a"]
    assert fields.block(ROW, "object") == {"b": 1}
    assert fields.records({"rows": [{"b": 1}]}, "rows") == [{"b": 1}]


def test_what_a_row_lacks_is_empty_unless_it_must_be_there():
    assert fields.optional(ROW, "none") == fields.optional(ROW, "null") == ""
    assert fields.texts(ROW, "null") == fields.records(ROW, "none") == []
    assert fields.block(ROW, "null") == {}
    with pytest.raises(DataError, match="key 'null' is missing"):
        fields.text(ROW, "null", "none")


@pytest.mark.parametrize(
    ("read", "key", "message"),
    [
        (fields.text, "empty", "key 'empty' is empty"),
        (fields.text, "number", "key 'number' must be text, not 3"),
        (fields.optional, "list", r"key 'list' must be text, not \[\"a\"\]"),
        (fields.texts, "text", "key 'text' must be a list of texts, not \" A. \""),
        (fields.block, "list", "key 'list' must be an object"),
        (fields.records, "list", "key 'list' must be a list of objects"),
        (fields.records, "object", "key 'object' must be a list of objects"),
    ],
)
def test_a_value_of_another_type_names_the_official_key(read, key, message):
    with pytest.raises(DataError, match=message):
        read(ROW, key, "other")


@given(st.lists(st.fixed_dictionaries({"a": st.integers(), "b": st.text()}), min_size=1))
def test_the_hubs_object_of_lists_is_a_list_of_objects(rows):
    columns = {name: [row[name] for row in rows] for name in ("a", "b")}
    assert fields.records({"rows": columns}, "rows") == fields.records({"rows": rows}, "rows")


def test_lists_of_different_lengths_are_no_rows():
    with pytest.raises(DataError, match="key 'rows' has lists of different lengths"):
        fields.records({"rows": {"a": [1], "b": []}}, "rows")


@given(st.text(st.characters(exclude_categories=[])))
def test_text_is_usable_unless_it_has_a_nul_or_a_lone_surrogate(text):
    assert bool(fields.unusable(text)) == (
        "\0" in text or any("\ud800" <= c < "\ue000" for c in text)
    )


def test_text_that_no_tokenizer_takes_names_its_place():
    fields.check("Zürich \U0001f600", "the text")
    with pytest.raises(DataError, match="the text holds a NUL character at character 1: remove it"):
        fields.check("a\0", "the text")
    with pytest.raises(DataError, match=r"a lone surrogate \(U\+D800\) at character 0"):
        fields.check("\ud800", "the text")


def test_texts_are_cleaned_compared_and_digested():
    assert fields.distinct([" a", "b ", "a", " "]) == ("a", "b")
    assert fields.alike("  Where  IS\nUlm? ") == "where is ulm?"
    assert fields.digest("a") == fields.digest("a") != fields.digest("b")
    assert len(fields.digest("\ud800")) == 16
