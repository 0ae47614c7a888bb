"""Difference-Masking: TF-ICF by hand on 20 lines, and weights by hand from embeddings."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import small
from maskpolicy.policies.difference_masking import ANCHORS, EMBEDDINGS, DifferenceMasking

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.data.corpus.sums import statistics_of
from maskpolicy.masking.selection import select

LINES = (
    *["the molecule reacts with water"] * 4,
    *["a molecule of water ."] * 2,
    *["The Process , a process"] * 3,
    *["heat and heat"] * 1,
)
GENERAL = (
    *["the process works"] * 5,
    *["water and water"] * 3,
    *["heat"] * 2,
)


def passages(lines):
    return [small.words(line) for line in lines]


def anchors(count: int = 20) -> dict:
    policy = DifferenceMasking(anchors=count)
    return dict(statistics_of(policy, passages(LINES), passages(GENERAL)).items())


def test_anchors_are_frequent_here_and_rare_in_general():
    assert len(LINES) + len(GENERAL) == 20
    counts = {"molecule": 6, "reacts": 4, "water": 6, "process": 6, "heat": 2}
    general = {"molecule": 0, "reacts": 0, "water": 3, "process": 5, "heat": 2}  # passages of 10
    expected = {word: counts[word] / 24 * log(11 / (general[word] + 1)) for word in counts}
    assert anchors() == pytest.approx(expected)
    assert [*sorted(anchors(3), key=lambda word: -expected[word])] == [
        "molecule",
        "reacts",
        "water",
    ]


def test_words_that_are_everywhere_in_general_are_no_anchors():
    text = passages(["water", "heat"])
    policy = DifferenceMasking()
    with pytest.raises(DataError, match="no word of the corpus is rarer in contrast_corpus"):
        statistics_of(policy, text, passages(["water heat"]))


def test_stop_words_numbers_and_punctuation_are_no_anchors():
    found = statistics_of(
        DifferenceMasking(), passages(["the 1854 of . molecule x"]), passages(["a"])
    )
    assert [word for word, _ in found.items()] == ["molecule"]


def fitted(folder, embeddings, vectors):
    np.save(folder / EMBEDDINGS, np.asarray(embeddings, np.float32))
    np.save(folder / ANCHORS, np.asarray(vectors, np.float64))
    return folder


def test_a_word_has_its_largest_cosine_to_an_anchor(tmp_path):
    embeddings = [[2, 0], [0, 3], [1, 1], [-1, -1], [5, 0], [0, 0]]
    folder = fitted(tmp_path, embeddings, [[1, 0], [0.6, 0.8]])
    passage = small.words("one two three four . six")
    weights = DifferenceMasking().annotate([passage], folder)["weights"][0]
    assert weights == pytest.approx([1, 0.8, 1.4 / 2**0.5, 0, 0, 0])


def test_a_word_of_several_tokens_has_their_mean(tmp_path):
    folder = fitted(tmp_path, [[1, 0], [0, 1], [0, 1]], [[1, 0]])
    passage = replace(small.words("one two three"), words=np.asarray([[0, 2], [2, 3]], np.int32))
    weights = DifferenceMasking().annotate([passage], folder)["weights"][0]
    assert weights == pytest.approx([1 / 2**0.5, 0])


def test_words_are_drawn_in_proportion_to_their_weights():
    weights = np.asarray([3, 1, 0, 0], np.float32)
    passage = replace(small.words("a b c d"), columns={"weights": weights})
    hidden = np.zeros(4)
    for epoch in range(2000):
        spans = select(DifferenceMasking(ratio=0.25), [passage], 0, [epoch])[0]
        assert len(spans) == 1
        hidden[spans[:, 0]] += 1
    assert hidden / 2000 == pytest.approx([0.75, 0.25, 0, 0], abs=0.04)


def test_without_a_fit_the_way_to_one_is_told():
    with pytest.raises(ConfigError, match="needs the embeddings of a model: name a finished run"):
        DifferenceMasking().annotate([small.words("a")])
