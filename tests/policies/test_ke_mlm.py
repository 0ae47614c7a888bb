"""The policy ke-mlm: words that tell classes apart, by the log-odds-ratio with a prior."""

from __future__ import annotations

import json
from collections import Counter
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest
import small
from maskpolicy.policies.ke_mlm import FILE, KeMlm, z_scores

from maskpolicy import Statistics
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.types import Passage, as_spans
from maskpolicy.experiment.budgets import Training
from maskpolicy.models.learned import Context, Contexts

LINES = [
    *[("1", "Good film !")] * 6,
    *[("1", "fine film")] * 4,
    *[("0", "bad film")] * 7,
    ("0", "good film"),
    *[("0", "fine plot")] * 2,
]
CORPUS = ["Good film .", "film", *["plot"] * 18, *["other"] * 19]
TASK = Contexts(
    "reviews",
    tuple(
        Context(f"{i}", "", text, (label,), small.words(text), as_spans([]), ("0", "1"))
        for i, (label, text) in enumerate(LINES)
    ),
    (),
    {},
)


def fitted(out: Path, **fields) -> dict[str, dict[str, float]]:
    """Return the words of each class of the 20 lines."""
    policy = KeMlm(("reviews",), **fields)
    statistics = Statistics.of(policy.count([small.words(text) for text in CORPUS]))
    policy.fit([TASK], Training(), out, None, statistics)
    return json.loads((out / FILE).read_text())["reviews"]


def test_words_have_the_z_scores_that_the_formula_gives_by_hand(tmp_path):
    # class 1: good 6, fine 4, film 10, of 20; class 0: bad 7, film 8, good 1, fine 2, plot 2, of 20
    # with the corpus, of 40: good 8, fine 6, film 20, bad 7, plot 20, and 19 others; 80 in all, so
    # that the prior has half of each
    found = fitted(tmp_path)
    good = (log(10 / 50) - log(5 / 55)) / sqrt(1 / 10 + 1 / 5)
    film = (log(20 / 40) - log(18 / 42)) / sqrt(1 / 20 + 1 / 18)
    fine = (log(7 / 53) - log(5 / 55)) / sqrt(1 / 7 + 1 / 5)
    bad = (log(10.5 / 49.5) - log(3.5 / 56.5)) / sqrt(1 / 10.5 + 1 / 3.5)
    plot = (log(12 / 48) - log(10 / 50)) / sqrt(1 / 12 + 1 / 10)
    wanted = {"1": {"good": good, "fine": fine, "film": film}, "0": {"bad": bad, "plot": plot}}
    assert found == {
        label: {word: pytest.approx(z, abs=5e-4) for word, z in words.items()}
        for label, words in wanted.items()
    }
    assert list(found["1"]) == ["good", "fine", "film"]  # best first


def test_z_is_antisymmetric_and_zero_where_shares_are_equal():
    one, other = Counter(a=3, b=1), Counter(a=1, b=3)
    prior = {"a": 4.0, "b": 4.0}
    forth, back = z_scores(one, other, prior, 8), z_scores(other, one, prior, 8)
    assert forth["a"] == pytest.approx(-back["a"])
    assert z_scores(one, one, prior, 8) == {"a": 0, "b": 0}


def test_a_larger_prior_draws_z_towards_zero():
    one, other = Counter(a=3, b=1), Counter(a=1, b=3)
    sizes = [z_scores(one, other, {"a": n, "b": n}, 2 * n)["a"] for n in (1, 10, 100)]
    assert sizes[0] > sizes[1] > sizes[2] > 0


def test_all_occurrences_of_the_words_of_any_class_are_found(tmp_path):
    fitted(tmp_path, words=1)
    policy = KeMlm(("reviews",), words=1)
    passages = [small.words("BAD film , good plot"), small.words("nothing here")]
    found = policy.annotate(passages, tmp_path)["telling"]
    assert [spans.tolist() for spans in found] == [[[0, 1], [3, 4]], []]


def test_it_masks_as_many_words_as_the_ratio_allows():
    words = small.words("w " * 20).words
    for found, masked in ((words[:2], 2), (words[:9], 3), (words[:0], 0)):
        passage = Passage("p", "", words[:, 0], words, words, words[:0], {"telling": found})
        spans = KeMlm(("reviews",)).select(passage, np.random.default_rng(0))
        assert len(spans) == masked
        assert {tuple(span) for span in spans.tolist()} <= {tuple(span) for span in found.tolist()}


def test_a_task_with_one_class_teaches_nothing(tmp_path):
    task = Contexts("reviews", TASK.train[:10], (), {})
    with pytest.raises(DataError, match="all texts of reviews have one label"):
        KeMlm(("reviews",)).fit([task], Training(), tmp_path, None, Statistics.of({"": 9}))


def test_without_a_fit_it_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="policy ke-mlm: is learned and needs a fitted policy"):
        KeMlm(("reviews",)).annotate([small.words("bad")])
