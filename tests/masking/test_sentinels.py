"""Masks by sentinels, as T5 documents them, and Pegasus' masks of sentences."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from strategies import DENOISINGS, masked_passages

from maskpolicy.masking.denoising import denoising_pair, denoising_pairs, mixed_pairs
from maskpolicy.masking.sentinels import Marks
from maskpolicy.types import Denoising, as_spans

IDS = tuple(range(99, 59, -1))  # <extra_id_0> has the highest id, as in T5
T5 = Marks(IDS[0], None, IDS)
PEGASUS = Marks(3, 2)


def parts(target):
    """Return the text after each sentinel of a target, by sentinel."""
    found: dict[int, list[int]] = {}
    for token in target.tolist():
        if token in IDS:
            found[token] = []
            last = token
        else:
            found[last].append(token)
    return found


def test_the_example_of_t5():
    """Raffel et al. 2020, Figure 2: Thank you <X> me to your party <Y> week."""
    # Thank you for inviting me to your party last week
    passage = small.ids(np.arange(100, 110))
    found = denoising_pair(passage, as_spans([(2, 4), (8, 9)]), Denoising(), T5)
    assert found.source.tolist() == [100, 101, 99, 104, 105, 106, 107, 98, 109]
    assert found.target.tolist() == [99, 102, 103, 98, 108, 97]


@given(masked_passages(least=1))
def test_source_and_target_make_the_passage_again(drawn):
    passage, spans = drawn
    found = denoising_pair(passage, spans, Denoising(), T5)
    hidden = parts(found.target)
    whole = [t for token in found.source.tolist() for t in hidden.get(token, [token])]
    assert whole == passage.tokens.tolist()
    assert list(hidden) == list(IDS[: len(spans) + 1])
    assert hidden[IDS[len(spans)]] == []


@given(masked_passages(least=1), DENOISINGS, st.integers(0, 5))
def test_sentinels_are_numbered_in_the_order_of_the_source(drawn, how, epoch):
    passage, spans = drawn
    found = denoising_pair(passage, spans, how, T5, 0, epoch)
    seen = list(dict.fromkeys(t for t in found.source.tolist() if t in IDS))
    assert seen == list(IDS[: len(seen)])
    if how.target == "spans" and how.join == "mask":
        hidden = parts(found.target)
        assert list(hidden) == list(IDS[: len(seen) + 1])
        words = [tuple(part) for part in hidden.values() if part]
        assert Counter(words) == Counter(tuple(passage.tokens[a:b].tolist()) for a, b in spans)
    elif how.target == "spans":
        assert found.target.tolist() == [t for a, b in spans for t in passage.tokens[a:b]]
    else:
        assert found.target.tolist() == passage.tokens.tolist()


@given(masked_passages(least=1), DENOISINGS, st.integers(0, 5))
def test_the_source_is_that_of_one_mask_token_but_for_the_marks(drawn, how, epoch):
    passage, spans = drawn
    one = denoising_pair(passage, spans, how, 4, 0, epoch)
    many = denoising_pair(passage, spans, how, T5, 0, epoch)
    same = np.where(np.isin(many.source, IDS), 4, many.source)
    assert same.tolist() == one.source.tolist()
    assert many.excluded.tolist() == one.excluded.tolist()
    assert (many.spans, many.masked_tokens) == (one.spans, one.masked_tokens)


@given(masked_passages(least=1))
def test_all_masks_of_a_span_are_the_same_sentinel(drawn):
    passage, spans = drawn
    found = denoising_pair(passage, spans, Denoising(corruption="token"), T5)
    for number, (a, b) in enumerate(spans):
        assert found.source[a:b].tolist() == [IDS[number]] * (b - a)


@given(masked_passages(least=1), DENOISINGS, st.integers(0, 5))
def test_an_inserted_sentinel_has_no_text(drawn, how, epoch):
    passage, spans = drawn
    how = replace(how, target="spans", join="mask", insert=0.5)
    found = denoising_pair(passage, spans, how, T5, 0, epoch)
    hidden = list(parts(found.target).values())[:-1]
    assert len(hidden) - len(spans) in {len(spans) // 2, (len(spans) + 1) // 2}
    assert sum(map(bool, hidden)) == len(spans)


@given(masked_passages(least=1), st.integers(0, 5))
def test_permuted_sentences_keep_each_span_at_its_place(drawn, epoch):
    passage, spans = drawn
    found = denoising_pair(passage, spans, Denoising(permute_sentences=True), T5, 0, epoch)
    hidden = parts(found.target)
    units = [hidden.get(token, [token]) for token in found.source.tolist()]
    assert sorted(t for unit in units for t in unit) == passage.tokens.tolist()
    starts = np.asarray([unit[0] for unit in units]) - 100
    sentence = np.searchsorted(passage.sentences[:, 0], starts, side="right")
    order = list(dict.fromkeys(sentence.tolist()))
    places = [(order.index(number), start) for number, start in zip(sentence, starts, strict=True)]
    assert places == sorted(places)


@given(st.lists(masked_passages(), min_size=1, max_size=5), DENOISINGS, st.integers(0, 9))
def test_what_is_written_does_not_depend_on_the_batch(given_, how, seed):
    passages = [replace(passage, id=str(i)) for i, (passage, _) in enumerate(given_)]
    spans = [each for _, each in given_]
    epochs = list(range(len(passages)))
    together = denoising_pairs(passages, spans, how, T5, seed, epochs)
    mixed = mixed_pairs(passages, spans, [how] * len(spans), T5, seed, epochs)
    for i, (passage, each) in enumerate(zip(passages, spans, strict=True)):
        alone = denoising_pair(passage, each, how, T5, seed, i)
        for found in (together[i], mixed[i]):
            for name in ("source", "target", "excluded"):
                assert getattr(found, name).tolist() == getattr(alone, name).tolist()


def test_nothing_masked_has_no_target():
    found = denoising_pair(small.ids(range(100, 105)), as_spans([]), Denoising(insert=1.0), T5)
    assert found.source.tolist() == [100, 101, 102, 103, 104]
    assert found.target.tolist() == []


@pytest.mark.parametrize("insert", [0.0, 1.0])
def test_spans_beyond_the_sentinels_stay_visible_and_are_drawn(insert):
    marks = Marks(9, None, (9, 8, 7))  # two spans and the end
    passages = [small.ids(range(100, 120), name=name) for name in "ab"]
    spans = [as_spans([(i, i + 1) for i in range(0, 20, 2)]), as_spans([(0, 3)])]
    kept = set()
    for epoch in range(30):
        how = Denoising(insert=insert)
        found = denoising_pairs(passages, spans, how, marks, 0, [epoch] * 2)
        assert found.left_out == 8
        assert found.spans.tolist() == [2, 1]
        assert found.masked_tokens.tolist() == [2, 3]
        assert found[0].source.tolist().count(9) == found[0].source.tolist().count(8) == 1
        assert found[0].target[[0, 2, 4]].tolist() == [9, 8, 7]
        kept |= set(found[0].target[[1, 3]].tolist())
    assert kept == set(range(100, 120, 2))


def test_one_mask_token_has_no_limit():
    spans = [as_spans([(i, i + 1) for i in range(0, 400, 2)])]
    found = denoising_pairs([small.ids(range(400))], spans, Denoising(), 4, 0, [0])
    assert (found.left_out, found.spans.tolist()) == (0, [200])


def test_pegasus_masks_whole_sentences_by_a_token_of_their_own():
    """Zhang et al. 2020, Figure 1: [MASK1] for sentences, [MASK2] for tokens."""
    passage = small.ids(range(100, 112), [(0, 4), (4, 6), (6, 12)])
    spans = as_spans([(0, 4), (4, 5), (6, 12)])
    found = denoising_pair(passage, spans, Denoising(join="none"), PEGASUS)
    assert found.source.tolist() == [2, 3, 105, 2]
    assert found.target.tolist() == [*range(100, 105), *range(106, 112)]
    both = denoising_pair(passage, as_spans([(0, 6)]), Denoising(), PEGASUS)
    assert both.source.tolist()[0] == 2  # two sentences in one span
    each = denoising_pair(passage, as_spans([(0, 4)]), Denoising(corruption="token"), PEGASUS)
    assert each.source.tolist()[:4] == [3] * 4
    hidden = denoising_pair(passage, spans, Denoising(mask_exclusion=1.0), PEGASUS)
    assert hidden.excluded.tolist() == [True, True, False, True]
