"""Sources and targets of masked passages: nothing is lost or invented; replacements."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from small import denoising_pair, pair_of
from strategies import DENOISINGS, masked_passages

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Denoising, Replacement, as_spans
from maskpolicy.experiment.policy_blocks import AT_POSITIONS
from maskpolicy.masking.denoising import denoising_pairs, mixed_pairs
from maskpolicy.masking.selection import Selection
from maskpolicy.masking.sentinels import Marks

MASK = 4


@given(masked_passages(least=1), DENOISINGS)
def test_a_source_holds_what_is_not_masked_and_masks_and_a_full_target_is_the_passage(drawn, how):
    passage, spans = drawn
    full = denoising_pair(passage, spans, replace(how, target="full"), MASK)
    assert full.target.tolist() == passage.tokens.tolist()
    masked = denoising_pair(passage, spans, replace(how, insert=0.0), MASK)
    seen = Counter(masked.source.tolist())
    assert seen.pop(MASK) == (len(spans) if how.corruption == "span" else masked.masked_tokens)
    hidden_tokens = {t for a, b in spans for t in passage.tokens[a:b].tolist()}
    assert seen == Counter(set(passage.tokens.tolist()) - hidden_tokens)
    # only masks are excluded, and as many as were asked for
    masked = denoising_pair(passage, spans, how, MASK)
    assert len(masked.excluded) == len(masked.source)
    assert (masked.source[masked.excluded] == MASK).all()
    share = how.mask_exclusion * (masked.source == MASK).sum()
    assert int(share) <= masked.excluded.sum() <= np.ceil(share)


@given(masked_passages(least=1), DENOISINGS, st.integers(0, 5))
def test_permuting_moves_whole_sentences_and_keeps_every_token(drawn, how, epoch):
    passage, spans = drawn
    hows = (Denoising(how.corruption, permute_sentences=permute) for permute in (False, True))
    fixed, moved = (denoising_pair(passage, spans, one, MASK, 0, epoch) for one in hows)
    assert Counter(moved.source.tolist()) == Counter(fixed.source.tolist())
    assert moved.target.tolist() == fixed.target.tolist()
    kept = [t for t in moved.source.tolist() if t != MASK]
    sentence = np.searchsorted(passage.sentences[:, 0], np.asarray(kept) - 100, side="right")
    order = list(dict.fromkeys(sentence.tolist()))
    assert kept == sorted(kept, key=lambda t: (order.index(sentence[kept.index(t)]), t))


@given(masked_passages(least=1), DENOISINGS, st.integers(0, 9))
def test_inserting_adds_masks_and_nothing_else(drawn, how, epoch):
    passage, spans = drawn
    hows = (replace(how, insert=insert) for insert in (0.0, 0.5))
    plain, more = (denoising_pair(passage, spans, one, MASK, 0, epoch) for one in hows)
    added = len(more.source) - len(plain.source)
    assert added in {len(spans) // 2, (len(spans) + 1) // 2}
    kept = [t for t in more.source.tolist() if t != MASK]
    assert kept == [t for t in plain.source.tolist() if t != MASK]
    assert more.target.tolist() == plain.target.tolist()


@given(masked_passages(), DENOISINGS)
def test_nothing_masked_leaves_the_passage_and_no_target(drawn, how):
    passage, _ = drawn
    masked = denoising_pair(passage, as_spans([]), how, MASK)
    assert masked.source.tolist() == passage.tokens.tolist()
    assert (len(masked.target), masked.masked_tokens, masked.spans) == (0, 0, 0)
    assert not masked.excluded.any()


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


def test_masks_are_written_as_in_the_example_and_the_tests_of_t5():
    # Raffel et al. 2020, Figure 2: Thank you <X> me to your party <Y> week, of
    # Thank you for inviting me to your party last week
    passage = small.ids(np.arange(100, 110))
    found = denoising_pair(passage, as_spans([(2, 4), (8, 9)]), Denoising(), T5)
    assert found.source.tolist() == [100, 101, 99, 104, 105, 106, 107, 98, 109]
    assert found.target.tolist() == [99, 102, 103, 98, 108, 97]
    passage, spans = small.ids(range(10, 16)), as_spans([(0, 2), (4, 5)])  # preprocessors_test.py
    for how, marks, source in (
        (Denoising(), T5, [99, 12, 13, 98, 15]),
        (Denoising(), 99, [99, 12, 13, 99, 15]),
        (Denoising("token"), 99, [99, 99, 12, 13, 99, 15]),
        (Denoising("delete"), 99, [12, 13, 15]),
    ):
        assert denoising_pair(passage, spans, how, marks).source.tolist() == source
    dropped = denoising_pair(passage, spans, Denoising(join="none"), T5)
    assert dropped.target.tolist() == [10, 11, 14]


@given(masked_passages(least=1), DENOISINGS, st.integers(0, 5))
def test_sentinels_are_numbered_in_the_order_of_the_source_and_stand_for_masks(drawn, how, epoch):
    passage, spans = drawn
    many = denoising_pair(passage, spans, how, T5, 0, epoch)
    seen = list(dict.fromkeys(t for t in many.source.tolist() if t in IDS))
    assert seen == list(IDS[: len(seen)])
    if how.target == "spans" and how.join == "mask":
        hidden = parts(many.target)
        assert list(hidden) == list(IDS[: len(seen) + 1])
        words = [tuple(part) for part in hidden.values() if part]
        assert Counter(words) == Counter(tuple(passage.tokens[a:b].tolist()) for a, b in spans)
    elif how.target == "spans":
        assert many.target.tolist() == [t for a, b in spans for t in passage.tokens[a:b]]
    else:
        assert many.target.tolist() == passage.tokens.tolist()
    one = denoising_pair(passage, spans, how, 4, 0, epoch)
    same = np.where(np.isin(many.source, IDS), 4, many.source)
    assert same.tolist() == one.source.tolist()
    assert many.excluded.tolist() == one.excluded.tolist()
    if how.target == "spans" and not (how.permute_sentences or how.insert):
        ends = slice(1, -1) if how.join == "mask" else slice(None)  # a sentinel at either end
        joined = np.where(np.isin(many.target, IDS), 4, many.target)[ends]
        assert joined.tolist() == one.target.tolist()
    assert (many.spans, many.masked_tokens) == (one.spans, one.masked_tokens)


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
        source, target = found.sources[0].tolist(), found.targets[0].tolist()
        assert source.count(9) == source.count(8) == 1
        assert target[::2] == [9, 8, 7]
        kept |= {target[1], target[3]}
    assert kept == set(range(100, 120, 2))


@pytest.mark.parametrize(("marks", "masked"), [(Marks(MASK), 8), (T5, 6)])
def test_spans_that_exceed_a_target_are_counted_even_if_their_beginning_is_masked(marks, masked):
    passages = [small.ids(range(100, 120), name=name) for name in "abc"]
    spans = [as_spans(own) for own in ([(5, 20)], [(0, 3)], [(0, 9), (10, 20)])]
    found = denoising_pairs(passages, spans, Denoising(), marks, 0, [0] * 3, target_room=8)
    assert found.masked_tokens.tolist() == [masked, 3, masked]
    assert (found.without_room, found.left_out) == (3, 0)


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


MARKS = Marks(4, vocabulary=60, special=(0, 1, 4, 7))  # the tokens of passages begin at 100
BERT = Replacement(mask=0.8, random=0.1, keep=0.1)
REPLACED = replace(AT_POSITIONS, replacement=BERT)
SHARES = st.tuples(*[st.integers(0, 5)] * 3).filter(lambda parts: sum(parts[:2]) > 0)


def shares(parts):
    return Replacement(*(part / sum(parts) for part in parts))


def kinds(tokens, passage, spans):
    """Return the replacement of each span in an encoder's source: mask, random or keep."""
    found = []
    for a, b in spans.tolist():
        part = tokens[a:b]
        if (part == passage.tokens[a:b]).all():
            found.append("keep")
        elif (part == MARKS.mask).all():
            found.append("mask")
        else:
            assert np.isin(part, MARKS.words).all()
            found.append("random")
    return found


@given(masked_passages(least=1), SHARES, st.integers(0, 9))
def test_each_kind_has_its_share_of_the_spans_rounded_up_or_down(drawn, parts, epoch):
    passage, spans = drawn
    wanted = shares(parts)
    how = replace(AT_POSITIONS, replacement=wanted)
    found = denoising_pair(passage, spans, how, MARKS, 0, epoch)
    standing = kinds(found.source, passage, spans)
    for kind, share in vars(wanted).items():
        assert abs(standing.count(kind) - share * len(spans)) < 1
    hidden = np.zeros(len(passage.tokens), bool)
    for a, b in spans:
        hidden[a:b] = True
    assert (found.source[~hidden] == passage.tokens[~hidden]).all()
    assert found.target.tolist() == passage.tokens[hidden].tolist()
    assert found.masked_tokens == hidden.sum()


def test_the_shares_are_exact_on_average_for_one_span_too():
    passage, spans = small.ids(range(100, 104)), as_spans([(1, 3)])
    drawn = denoising_pairs([passage] * 3000, [spans] * 3000, REPLACED, MARKS, 0, range(3000))
    standing = [kinds(source, passage, spans)[0] for source in drawn.sources]
    for kind, share in vars(BERT).items():
        assert abs(standing.count(kind) / 3000 - share) < 4 * np.sqrt(share * (1 - share) / 3000)
    random = {t for source in drawn.sources for t in source[1:3].tolist()} - {4, 101, 102}
    assert random == set(range(60)) - {0, 1, 4, 7}


@given(masked_passages(least=1), SHARES, st.integers(0, 9))
def test_one_random_token_or_all_text_replaces_a_span(drawn, parts, epoch):
    """One for each span: BART's `mask_random`."""
    passage, spans = drawn
    how = Denoising(target="full", replacement=shares(parts))
    found = denoising_pair(passage, spans, how, MARKS, 0, epoch)
    token = denoising_pair(passage, spans, replace(how, corruption="token"), MARKS, 0, epoch)
    standing = kinds(token.source, passage, spans)
    whole = []
    for (_, end), (a, b), kind in zip(
        [(0, 0), *spans], [*spans, [len(passage.tokens)] * 2], [*standing, "keep"], strict=True
    ):
        whole += passage.tokens[end:a].tolist()
        whole += (
            passage.tokens[a:b].tolist() if kind == "keep" else token.source[a : a + 1].tolist()
        )
    assert found.source.tolist() == whole
    assert found.target.tolist() == passage.tokens.tolist()


HOWS = st.one_of(DENOISINGS, st.sampled_from([AT_POSITIONS, REPLACED]))


@pytest.mark.parametrize(
    "marks", [MARKS, replace(T5, vocabulary=60)], ids=["one mask", "sentinels"]
)
@given(st.lists(masked_passages(), min_size=1, max_size=5), HOWS, HOWS, st.integers(0, 9))
def test_what_is_written_does_not_depend_on_the_batch(marks, drawn, how, other, seed):
    passages = [replace(passage, id=str(i)) for i, (passage, _) in enumerate(drawn)]
    spans, epochs = [each for _, each in drawn], list(range(len(drawn)))
    hows = [other if i % 2 else how for i in epochs]
    together = denoising_pairs(passages, spans, how, marks, seed, epochs)
    mixed = mixed_pairs(Selection(passages, spans, hows, []), marks, seed, epochs)
    for i, (passage, each) in enumerate(zip(passages, spans, strict=True)):
        for found, one in ((pair_of(together, i), how), (pair_of(mixed, i), hows[i])):
            alone = denoising_pair(passage, each, one, marks, seed, i)
            for name in ("source", "target", "excluded"):
                assert getattr(found, name).tolist() == getattr(alone, name).tolist()
    if {how, other} <= {AT_POSITIONS, REPLACED}:
        assert mixed.masked.flat.tolist() == together.masked.flat.tolist()


THREE = Marks(99, None, tuple(range(99, 96, -1)))


@pytest.mark.parametrize("marks", [4, THREE], ids=["one mask", "sentinels"])
@given(masked_passages(least=1), st.booleans())
def test_deleted_tokens_leave_nothing_behind(marks, drawn, permute):
    passage, spans = drawn
    how = Denoising("delete", "full", permute_sentences=permute)
    found = denoising_pair(passage, spans, how, marks)
    ends = [0, *spans.ravel().tolist(), len(passage.tokens)]
    kept = [t for a, b in list(pairwise(ends))[::2] for t in passage.tokens[a:b].tolist()]
    assert (sorted(found.source.tolist()) if permute else found.source.tolist()) == kept
    assert found.target.tolist() == passage.tokens.tolist()
    assert (found.spans, found.masked_tokens) == (len(spans), len(passage.tokens) - len(kept))


def test_deleted_spans_take_no_sentinel_from_inserted_masks():
    passage, spans = small.ids(range(100, 120)), as_spans([(i, i + 1) for i in range(0, 10, 2)])
    found = denoising_pair(passage, spans, Denoising("delete", "full", insert=0.4), THREE)
    assert [t for t in found.source.tolist() if t < 100] == [99, 98]


def test_a_target_of_sentinels_needs_a_mask_for_every_span():
    passage, spans = small.ids(range(100, 104)), as_spans([(1, 3)])
    with pytest.raises(ConfigError, match="names each masked span by its sentinel"):
        denoising_pair(passage, spans, Denoising(replacement=BERT), THREE)
    kept = Denoising(target="full", replacement=Replacement(keep=0.5, mask=0.5))
    drawn = {tuple(denoising_pair(passage, spans, kept, THREE, 0, i).source) for i in range(20)}
    assert drawn == {(100, 101, 102, 103), (100, 99, 103)}
