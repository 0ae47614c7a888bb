"""The policy selective-masking: important words of labelled texts, and the tagger's words."""

from __future__ import annotations

import numpy as np
import pytest
import small
from maskpolicy.policies.selective_masking import SelectiveMasking

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Passage, as_spans
from maskpolicy.models.learned import Context

POLICY = SelectiveMasking(("cola",))


def context(text: str, second: str | None = None) -> Context:
    pair = None if second is None else small.words(second)
    return Context("i", "g", text, ("1",), small.words(text), as_spans([]), ("0", "1"), pair)


def important(policy: SelectiveMasking, found: Context, tell) -> tuple[list[str], list[str]]:
    """Return the important words, and the texts that were judged, where `tell(words)` is P(y)."""
    judged: list[str] = []

    def probability(examples):
        texts = [" / ".join(filter(None, (one.source, one.context))) for one in examples]
        judged.extend(texts)
        return np.asarray([tell(set(text.lower().split())) for text in texts])

    marks = policy.find([found], probability)[0]
    return [word for word, mark in zip(found.words, marks, strict=True) if mark], judged


def praise(words: set[str]) -> float:
    return 0.9 if words & {"great", "moving"} else 0.5


def test_a_word_that_suffices_is_important_and_leaves_the_buffer():
    found, judged = important(POLICY, context("The film was truly great and moving ."), praise)
    assert found == ["great", "moving"]
    assert judged == [  # the whole text; then one prefix for each word that is no stop word
        "The film was truly great and moving .",
        "The film",
        "The film was truly",
        "The film was truly great",
        "The film was truly and moving",
        "The film was truly and .",
    ]


def test_a_stop_word_stays_in_the_buffer_and_is_never_important():
    found, judged = important(POLICY, context("Not great"), lambda w: 0.9 if "not" in w else 0.1)
    assert found == ["great"]
    assert judged == ["Not great", "Not great"]


@pytest.mark.parametrize(
    ("threshold", "wanted"),
    [
        (0.0, []),
        (0.125, ["dull"]),  # bad alone is 0.25 below the whole text, and with dull it is not
        (0.375, ["bad"]),  # it is taken out: dull alone is 0.375 below
        (0.75, ["bad", "dull", "film"]),
    ],
)
def test_the_threshold_is_on_the_difference_to_the_whole_text(threshold, wanted):
    worth = {"bad": 0.375, "dull": 0.25, "film": 0.0}

    def tell(words):
        return 0.25 + sum(worth[word] for word in words)

    policy = SelectiveMasking(("cola",), threshold=threshold)
    assert important(policy, context("bad dull film"), tell)[0] == wanted


def test_both_texts_of_a_pair_are_read_one_after_the_other():
    pair = context("Boats sink", "Great boats float")
    found, judged = important(POLICY, pair, praise)
    assert found == ["Great"]
    assert judged == [
        "Boats sink / Great boats float",
        "Boats",
        "Boats sink",
        "Boats sink / Great",
        "Boats sink / boats",
        "Boats sink / boats float",
    ]


def test_texts_of_any_length_are_judged_together():
    texts = [context("great"), context("a great film"), context("of the")]
    sizes: list[int] = []

    def probability(examples):
        sizes.append(len(examples))
        return np.asarray([praise(set(one.source.split())) for one in examples])

    marks = POLICY.find(texts, probability)
    assert [each.tolist() for each in marks] == [[True], [False, True, False], [False, False]]
    assert sizes == [3, 1, 1, 1]


def test_it_masks_as_many_important_words_as_the_ratio_allows():
    words = small.words("w " * 20).words
    for found, masked in ((words[:2], 2), (words[:9], 3), (words[:0], 0)):
        passage = Passage("p", "", words[:, 0], words, words, words[:0], {"important": found})
        spans = POLICY.select(passage, np.random.default_rng(0))
        assert len(spans) == masked


def test_without_a_fit_it_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="policy selective-masking: is learned and needs"):
        POLICY.annotate([small.words("a")])
