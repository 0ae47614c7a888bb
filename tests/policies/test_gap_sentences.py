"""The policy gap-sentences: importance computed by hand, and how many sentences are masked."""

from __future__ import annotations

import pytest
import small
from maskpolicy.policies.gap_sentences import GapSentences

from maskpolicy.core.types import Passage
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.masking import selection
from maskpolicy.plugins.discovery import find_plugin

TEXT = "The loom was red. The red loom was old. Birds sing. The old loom sang."


def made(policy: GapSentences, text: str = TEXT) -> Passage:
    """Return the text as a passage with the policy's column."""
    passage = next(iter(tokenize([Document("p", text)], small.tokenizer())))
    column = policy.annotate([passage])["importance"][0]
    return Passage(**{**vars(passage), "columns": {"importance": column}})


def masked(policy: GapSentences, seed: int = 0, text: str = TEXT) -> list[int]:
    """Return the indices of the sentences that are masked."""
    passage = made(policy, text)
    spans = selection.select(policy, [passage], seed, [0])[0].tolist()
    return [passage.sentences.tolist().index(span) for span in spans]


def importance(**fields) -> list[float]:
    return made(GapSentences(**fields)).columns["importance"].tolist()


def test_sentences_are_generated_one_after_the_other():
    assert find_plugin("policy", "gap-sentences").facts == {"target": "spans", "join": "none"}


def test_importance_is_the_f_score_against_the_rest():
    # words: 4, 5, 2, 4; e.g. the first: the, loom, was, red all occur in the other 11
    rouge = [2 * 4 / 15, 2 * 5 / 15, 0, 2 * 3 / 15]
    assert importance() == pytest.approx(rouge)


def test_words_are_counted_once_if_they_are_to_be_unique():
    # the rest of the first: the red loom was old birds sing sang: 8 different words
    assert importance(unique=True)[0] == pytest.approx(2 * 4 / (4 + 8))
    # the rest of the last: the loom was red old birds sing: 7
    assert importance(unique=True)[3] == pytest.approx(2 * 3 / (4 + 7))


def test_an_occurrence_counts_as_often_as_it_stands_on_both_sides():
    passage = made(GapSentences(), "No no no. No no. Yes.")
    first, second, last = passage.columns["importance"].tolist()
    assert (first, second, last) == pytest.approx((2 * 2 / 6, 2 * 2 / 6, 0))


def test_greedy_adds_the_sentence_that_helps_the_chosen_ones_most():
    # the second sentence is first; together with each other one it has these scores
    both = {0: 2 * 3 / 15, 2: 2 * 5 / 15, 3: 2 * 4 / 15}
    assert importance(strategy="greedy")[1] == 4
    assert importance(strategy="greedy")[max(both, key=both.__getitem__)] == 3
    assert sorted(importance(strategy="greedy")) == [1, 2, 3, 4]


@pytest.mark.parametrize(("strategy", "chosen"), [("principal", [0, 1]), ("lead", [0, 1])])
def test_the_most_important_sentences_are_masked(strategy, chosen):
    policy = GapSentences(0.5, 1.0, strategy, noise=0.0)
    assert masked(policy) == chosen
    assert masked(GapSentences(0.5, 1.0, "greedy")) == [1, 2]


def test_random_sentences_are_all_masked_now_and_then():
    policy = GapSentences(0.5, 1.0, "random")
    found = [masked(policy, seed) for seed in range(60)]
    assert {len(each) for each in found} == {2}
    assert len({tuple(each) for each in found}) == 6


def test_noise_swaps_sentences_of_nearly_the_same_importance_only():
    alone = GapSentences(0.25, 1.0, noise=0.2)  # 0.53 and 0.67 of four
    assert {tuple(masked(alone, seed)) for seed in range(60)} == {(0,), (1,)}
    assert {tuple(masked(GapSentences(0.25, 1.0, noise=0.0), seed)) for seed in range(9)} == {(1,)}


def test_the_share_is_drawn_from_a_third_of_the_ratio_to_the_ratio():
    text = " ".join(f"Word{i} is here." for i in range(100))
    policy = GapSentences()
    counts = [len(masked(policy, seed, text)) for seed in range(40)]
    assert 14 <= min(counts) < 19 and 40 < max(counts) <= 45


@pytest.mark.parametrize("text", ["One sentence only", ""])
def test_a_passage_without_a_second_sentence_hides_nothing(text):
    assert masked(GapSentences(), text=text) == []


def test_one_sentence_stays_whatever_the_ratio():
    assert len(masked(GapSentences(1.0, 1.0))) == 3
    assert len(masked(GapSentences(0.0))) == 1
