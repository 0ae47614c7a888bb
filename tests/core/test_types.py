"""The types that everything shares: spans are arrays, characters snap to whole words."""

from __future__ import annotations

import numpy as np
import small
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.core.types import as_spans

TEXT = "Anna Kovar’s “Red River” isn't in café Zürich-Süd: 300.5 francs, 🙂 e\u0301te\u0301!"
RANGE = st.tuples(st.integers(0, len(TEXT)), st.integers(0, len(TEXT))).map(sorted)


def words_of(passage):
    return [(int(passage.offsets[a, 0]), int(passage.offsets[b - 1, 1])) for a, b in passage.words]


def test_no_spans_are_an_array_of_two_columns():
    for nothing in ([], (), np.zeros(0), np.zeros((0, 2))):
        assert as_spans(nothing).shape == (0, 2)
        assert as_spans(nothing).dtype == np.int32


def test_pieces_are_every_token_by_itself():
    passage = small.passage("Anna Kovar was born.")
    assert passage.pieces.tolist() == [[i, i + 1] for i in range(len(passage.tokens))]
    assert small.ids([]).pieces.shape == (0, 2)


@given(st.lists(RANGE, max_size=5))
def test_characters_become_exactly_the_words_that_they_touch(ranges):
    passage = small.passage(TEXT)
    spans = passage.at(ranges)
    hidden = {token for a, b in spans.tolist() for token in range(a, b)}
    wanted = {
        token
        for (first, last), (a, b) in zip(passage.words.tolist(), words_of(passage), strict=True)
        if any(begin < b and a < end for begin, end in ranges if begin < end)
        for token in range(first, last)
    }
    assert hidden == wanted


def test_ranges_that_share_a_word_are_one_span_and_neighbours_are_two():
    passage = small.passage("Anna Kovar was born.")
    assert len(passage.at([[0, 2], [2, 4]])) == 1
    assert len(passage.at([[0, 4], [5, 10]])) == 2


def test_blanks_and_places_beyond_the_text_touch_no_word():
    passage = small.passage("Anna Kovar")
    assert passage.at([[4, 5], [10, 12]]).tolist() == []
    assert small.passage("").at([[0, 3]]).tolist() == []
