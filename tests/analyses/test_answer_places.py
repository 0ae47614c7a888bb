"""Where answers stand in a text."""

from __future__ import annotations

from maskpolicy.analyses.task_examples import Answers, words_of, words_within

TEXT = "The U.S. war (1934-1950) ended inside Rome, Italy."


def test_words_have_no_punctuation_and_articles_are_left_out():
    found = words_of(TEXT)
    assert [word for word, *_ in found] == (
        ["u", "s", "war", "1934", "1950", "ended", "inside", "rome", "italy"]
    )
    assert [TEXT[start:end].lower() for _, start, end in found] == [word for word, *_ in found]


def test_places_are_ranges_of_whole_words():
    answers = Answers(["the US", "U.S.", "1950!", "Rome", "Rome, Italy", "in", "a war", "..", ""])
    assert answers.places(words_of(TEXT)) == {(0, 2), (2, 3), (4, 5), (7, 8), (7, 9)}
    assert not Answers(["..", "the"])


def test_a_span_masks_the_words_that_it_holds_whole():
    words = words_of(TEXT)

    def within(part):
        start = TEXT.index(part)
        return words_within(words, start, start + len(part))

    assert within("(1934-") == (3, 4)
    assert within("Rome, Italy.") == (7, 9)
    assert within("The U.S.") == (0, 2)
    assert within(" (") is None
    assert within("in") is None  # of "inside"
    assert within("side Rome") is None
