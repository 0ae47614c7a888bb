"""What masking.py writes: nothing is lost, nothing is made up, all is drawn from its own key."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from strategies import DENOISINGS, masked_passages

from maskpolicy.masking.denoising import denoising_pair, denoising_pairs
from maskpolicy.masking.selection import select
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.types import Denoising, as_spans

MASK = 4
PASSAGES = small.passages()


def filled(source, parts, corruption, spans):
    """Put the parts of a target back where the masks of the source stand."""
    parts, result = [list(part) for part in parts], []
    sizes = [1] * len(parts) if corruption == "span" else [b - a for a, b in spans.tolist()]
    waiting = [size for size in sizes for _ in range(size)]
    place = 0
    while place < len(source):
        if source[place] == MASK:
            result += parts.pop(0)
            place += waiting[0]
            waiting = waiting[waiting[0] :]
        else:
            result.append(source[place])
            place += 1
    assert not parts
    return result


def split(target):
    parts = [[]]
    for token in target:
        if token == MASK:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


@pytest.mark.parametrize("corruption", ["span", "token"])
@given(masked_passages(least=1))
def test_source_and_joined_target_make_the_passage_again(corruption, given_):
    passage, spans = given_
    masked = denoising_pair(passage, spans, Denoising(corruption=corruption), MASK)
    parts = split(masked.target.tolist())
    assert len(parts) == len(spans)
    assert filled(masked.source.tolist(), parts, corruption, spans) == passage.tokens.tolist()


@given(masked_passages(least=1), st.sampled_from(["span", "token"]))
def test_without_a_join_the_target_is_the_hidden_tokens_in_order(given_, corruption):
    passage, spans = given_
    masked = denoising_pair(passage, spans, Denoising(corruption=corruption, join="none"), MASK)
    assert masked.target.tolist() == [t for a, b in spans for t in passage.tokens[a:b]]
    assert masked.masked_tokens == len(masked.target)
    assert masked.spans == len(spans)


@given(masked_passages(least=1), DENOISINGS)
def test_a_full_target_is_the_passage_whatever_else_is_asked_for(given_, how):
    passage, spans = given_
    how = Denoising(**vars(how) | {"target": "full"})
    assert denoising_pair(passage, spans, how, MASK).target.tolist() == passage.tokens.tolist()


@given(masked_passages(least=1), DENOISINGS)
def test_the_source_holds_what_is_not_masked_and_the_masks(given_, how):
    passage, spans = given_
    masked = denoising_pair(passage, spans, Denoising(**vars(how) | {"insert": 0.0}), MASK)
    seen = Counter(masked.source.tolist())
    assert seen.pop(MASK) == (len(spans) if how.corruption == "span" else masked.masked_tokens)
    hidden_tokens = {t for a, b in spans for t in passage.tokens[a:b].tolist()}
    assert seen == Counter(set(passage.tokens.tolist()) - hidden_tokens)


@given(masked_passages(least=1), DENOISINGS, st.integers(0, 5))
def test_permuting_moves_whole_sentences_and_keeps_every_token(given_, how, epoch):
    passage, spans = given_
    fixed = denoising_pair(passage, spans, Denoising(corruption=how.corruption), MASK, 0, epoch)
    moved = denoising_pair(
        passage, spans, Denoising(how.corruption, permute_sentences=True), MASK, 0, epoch
    )
    assert Counter(moved.source.tolist()) == Counter(fixed.source.tolist())
    assert moved.target.tolist() == fixed.target.tolist()
    kept = [t for t in moved.source.tolist() if t != MASK]
    sentence = np.searchsorted(passage.sentences[:, 0], np.asarray(kept) - 100, side="right")
    order = list(dict.fromkeys(sentence.tolist()))
    assert kept == sorted(kept, key=lambda t: (order.index(sentence[kept.index(t)]), t))


def test_permuting_changes_the_order_from_epoch_to_epoch():
    passage = small.ids(np.arange(100, 112), [(0, 3), (3, 6), (6, 9), (9, 12)])
    how = Denoising(permute_sentences=True)
    sources = [
        tuple(denoising_pair(passage, as_spans([(1, 2)]), how, MASK, 0, e).source.tolist())
        for e in range(9)
    ]
    assert len(set(sources)) > 3


@given(masked_passages(least=1), DENOISINGS, st.integers(0, 9))
def test_inserting_adds_masks_and_nothing_else(given_, how, epoch):
    passage, spans = given_
    plain = denoising_pair(passage, spans, Denoising(**vars(how) | {"insert": 0.0}), MASK, 0, epoch)
    more = denoising_pair(passage, spans, Denoising(**vars(how) | {"insert": 0.5}), MASK, 0, epoch)
    added = len(more.source) - len(plain.source)
    assert added in {len(spans) // 2, (len(spans) + 1) // 2}
    kept = [t for t in more.source.tolist() if t != MASK]
    assert kept == [t for t in plain.source.tolist() if t != MASK]
    assert more.target.tolist() == plain.target.tolist()


@given(masked_passages(least=1), DENOISINGS)
def test_only_masks_are_excluded_and_as_many_as_were_asked_for(given_, how):
    passage, spans = given_
    masked = denoising_pair(passage, spans, how, MASK)
    assert len(masked.excluded) == len(masked.source)
    assert (masked.source[masked.excluded] == MASK).all()
    share = how.mask_exclusion * (masked.source == MASK).sum()
    assert int(share) <= masked.excluded.sum() <= np.ceil(share)


def test_the_share_of_excluded_masks_is_right_on_average():
    passage, spans = small.ids(range(100, 110)), as_spans([(1, 2), (4, 6), (8, 9)])
    how = Denoising(mask_exclusion=0.5)
    counts = [denoising_pair(passage, spans, how, MASK, 0, e).excluded.sum() for e in range(400)]
    assert np.mean(counts) == pytest.approx(1.5, abs=0.1)


def test_one_span_gives_the_bare_text():
    masked = denoising_pair(small.ids(range(100, 106)), as_spans([(2, 4)]), Denoising(), MASK)
    assert masked.source.tolist() == [100, 101, MASK, 104, 105]
    assert masked.target.tolist() == [102, 103]


def test_several_spans_are_joined_by_the_mask():
    masked = denoising_pair(
        small.ids(range(100, 106)), as_spans([(0, 1), (3, 5)]), Denoising(), MASK
    )
    assert masked.source.tolist() == [MASK, 101, 102, MASK, 105]
    assert masked.target.tolist() == [100, MASK, 103, 104]


@given(masked_passages(), DENOISINGS)
def test_nothing_masked_leaves_the_passage_and_no_target(given_, how):
    passage, _ = given_
    masked = denoising_pair(passage, as_spans([]), how, MASK)
    assert masked.source.tolist() == passage.tokens.tolist()
    assert (len(masked.target), masked.masked_tokens, masked.spans) == (0, 0, 0)
    assert not masked.excluded.any()


@given(st.integers(1, 20), DENOISINGS)
def test_a_whole_passage_may_be_masked(length, how):
    passage = small.ids(np.arange(100, 100 + length))
    masked = denoising_pair(
        passage, as_spans([(0, length)]), Denoising(**vars(how) | {"insert": 0.0}), MASK
    )
    assert masked.source.tolist() == [MASK] * (1 if how.corruption == "span" else length)
    assert masked.target.tolist() == passage.tokens.tolist()


@given(masked_passages(least=1), DENOISINGS)
def test_the_same_key_hides_the_same_and_touches_nothing(given_, how):
    passage, spans = given_
    before = passage.tokens.copy(), spans.copy()
    first, second = (denoising_pair(passage, spans, how, MASK, 3, 5) for _ in range(2))
    for name in ("source", "target", "excluded"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist()
    assert (passage.tokens == before[0]).all()
    assert (spans == before[1]).all()


def test_an_empty_passage_has_nothing_to_hide():
    policy = find_plugin("policy", "random").plugin(ratio=1.0)
    (spans,) = select(policy, [small.ids([])], 0, [0])
    assert denoising_pair(small.ids([]), spans, Denoising(), MASK).source.tolist() == []


@given(st.lists(masked_passages(), min_size=1, max_size=5), DENOISINGS, st.integers(0, 9))
def test_what_is_written_does_not_depend_on_the_batch(given_, how, seed):
    passages = [replace(passage, id=str(i)) for i, (passage, _) in enumerate(given_)]
    spans = [each for _, each in given_]
    epochs = list(range(len(passages)))
    together = denoising_pairs(passages, spans, how, MASK, seed, epochs)
    for masked, passage, each, epoch in zip(together, passages, spans, epochs, strict=True):
        alone = denoising_pair(passage, each, how, MASK, seed, epoch)
        for name in ("source", "target", "excluded"):
            assert getattr(masked, name).tolist() == getattr(alone, name).tolist()
        assert (masked.masked_tokens, masked.spans) == (alone.masked_tokens, alone.spans)
