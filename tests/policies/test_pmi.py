"""PMI-Masking: the vocabulary by hand on 20 lines, the paper's overlapping n-grams, the budget."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import log

import numpy as np
import pytest
import small
from maskpolicy.policies.pmi import PMI, ngrams, scores, units

from maskpolicy.core.errors import DataError
from maskpolicy.core.types import as_spans
from maskpolicy.data.corpus.sums import statistics_of
from maskpolicy.masking.selection import select
from maskpolicy.plugins.statistics import Statistics

LINES = (
    *["by the way we met"] * 4,
    *["on the way home"] * 3,
    *["we went by the river"] * 2,
    *["New York , New York"] * 5,
    *["the end . by the way"] * 6,
)


def counts() -> Statistics:
    passages = [small.words(line) for line in LINES]
    return Statistics.of(PMI().count(passages))


def annotated(text: str, *vocabulary: str):
    """Return a passage with the spans of the n-grams of a vocabulary."""
    passage = small.words(text)
    known = Statistics.of(dict.fromkeys(vocabulary, 1.0))
    spans = PMI().annotate([passage], None, known)["ngrams"][0]
    return replace(passage, columns={"ngrams": spans})


def found(text: str, *vocabulary: str) -> list[list[int]]:
    return annotated(text, *vocabulary).columns["ngrams"].tolist()


def test_counts_are_those_of_twenty_lines():
    assert len(LINES) == 20
    made = counts()
    assert [made[word] for word in ("by", "the", "way", "new", "york")] == [12, 21, 13, 10, 10]
    pairs = ("by the", "the way", "on the", "new york", "the end", "end by", "york new")
    assert [made[pair] for pair in pairs] == [12, 13, 3, 10, 6, 0, 0]  # punctuation divides
    assert [made[text] for text in ("by the way", "the way home", "by the way we met")] == [
        10,
        3,
        4,
    ]
    # words of a line, less those of each run of words, less again
    assert [made[n] for n in range(1, 6)] == [
        5 * 4 + 4 * 3 + 5 * 2 + 4 * 5 + 5 * 6,
        4 * 4 + 3 * 3 + 4 * 2 + 2 * 5 + 3 * 6,
        3 * 4 + 2 * 3 + 3 * 2 + 0 * 5 + 1 * 6,
        2 * 4 + 1 * 3 + 2 * 2,
        1 * 4 + 0 * 3 + 1 * 2,
    ]


def test_pmi_is_the_least_over_all_segmentations():
    ranked = {ngram: score for score, ngram in scores(counts())}
    ones, twos, threes = 92, 61, 30  # n-grams of each length
    by_the = 2 * log(12 / twos) - log(12 / ones) - log(21 / ones)
    assert ranked["by the"] == pytest.approx(by_the)
    alone = log(12 / ones) + log(21 / ones) + log(13 / ones)
    pairs = [log(12 / twos) + log(13 / ones), log(12 / ones) + log(13 / twos)]
    assert ranked["by the way"] == pytest.approx(2 * log(10 / threes) - max(alone, *pairs))
    assert max(alone, *pairs) == pairs[1]  # by | the way, which a product over words would miss


def test_the_vocabulary_has_the_best_of_each_length_that_occur_often_enough():
    made = counts()
    passages = [small.words(line) for line in LINES]
    whole = statistics_of(PMI(min_count=10), passages)
    assert dict(whole.items()).keys() == {"by the", "the way", "new york", "by the way"}
    ranked = {ngram: score for score, ngram in scores(made)}
    pairs = sorted(["by the", "the way", "new york"], key=lambda each: -ranked[each])
    assert [whole[pair] for pair in pairs] == [1, 2, 3]
    assert whole["by the way"] == 1
    few = statistics_of(PMI(entries=4, min_count=3), passages)  # 2 bigrams, 1 trigram, no others
    assert Counter(len(ngram.split()) for ngram, _ in few.items()) == {2: 2, 3: 1}


def test_a_corpus_that_is_too_small_is_refused():
    with pytest.raises(DataError, match="no n-gram occurs 30 times in the corpus: lower min_count"):
        statistics_of(PMI(min_count=30), [small.words(line) for line in LINES])


def test_ngrams_are_in_lower_case_and_stop_at_punctuation():
    texts = [text for *_, text in ngrams(small.words("The U.S. army , then"), shortest=2)]
    assert texts == ["the u.s.", "u.s. army", "the u.s. army"]


def test_the_longer_of_two_nested_ngrams_is_the_unit():
    states = ("the united states", "air force", "the united states air force", "states air")
    assert found("in the united states air force", *states) == [[1, 6]]
    assert found("The air force of the United States", *states) == [[1, 3], [4, 7]]


def test_lots_decide_between_overlapping_ngrams():
    # the authors' example: by the way + out, or by + the way out
    passage = annotated("by the way out", "by the way", "the way out")
    assert passage.columns["ngrams"].tolist() == [[0, 3], [1, 4]]
    drawn = Counter(
        tuple(map(tuple, units(passage, np.random.default_rng(seed)).tolist()))
        for seed in range(200)
    )
    assert drawn.keys() == {((0, 3), (3, 4)), ((0, 1), (1, 4))}
    assert min(drawn.values()) > 70


def test_units_divide_the_passage():
    passage = annotated("a b c d e f", "b c", "c d e", "e f")
    for seed in range(20):
        divided = units(passage, np.random.default_rng(seed))
        assert [divided[0, 0], *divided[:, 1].tolist()] == [*divided[:, 0].tolist(), 6]


def test_units_are_masked_whole_until_the_budget_is_full():
    passage = annotated("x y " * 20 + "by the way", "by the way")
    seen = set()
    for epoch in range(60):
        spans = select(PMI(ratio=4 / 43), [passage], 0, [epoch])[0]
        sizes = tuple(sorted((spans[:, 1] - spans[:, 0]).tolist()))
        seen.add(sizes)
        assert sum(sizes) in (4, 5) or sizes == (1, 1, 1, 3)
    assert (1, 3) in seen and (1, 1, 1, 1) in seen


def test_without_an_ngram_words_are_the_units():
    passage = annotated("one two three", "by the way")
    assert passage.columns["ngrams"].tolist() == as_spans([]).tolist()
    assert units(passage, np.random.default_rng(0)).tolist() == passage.words.tolist()
    assert select(PMI(1.0), [passage], 0, [0])[0].tolist() == passage.words.tolist()
