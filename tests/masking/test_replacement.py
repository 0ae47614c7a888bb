"""What stands in place of a masked span: masks, random tokens and its text, in exact shares."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from strategies import masked_passages

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Denoising, Replacement, as_spans
from maskpolicy.experiment.policy_blocks import AT_POSITIONS
from maskpolicy.masking.denoising import denoising_pair, denoising_pairs, mixed_pairs
from maskpolicy.masking.sentinels import Marks

MARKS = Marks(4, vocabulary=60, special=(0, 1, 4, 7))  # the tokens of passages begin at 100
BERT = Replacement(mask=0.8, random=0.1, keep=0.1)
SHARES = st.tuples(*[st.integers(0, 5)] * 3).filter(lambda parts: sum(parts[:2]) > 0)


def shares(parts):
    return Replacement(*(part / sum(parts) for part in parts))


def kinds(tokens, passage, spans):
    """Return what stands for each span of an encoder's source: mask, random or keep."""
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
    how = replace(AT_POSITIONS, replacement=BERT)
    drawn = [denoising_pair(passage, spans, how, MARKS, 0, epoch) for epoch in range(3000)]
    standing = [kinds(found.source, passage, spans)[0] for found in drawn]
    for kind, share in vars(BERT).items():
        assert abs(standing.count(kind) / 3000 - share) < 4 * np.sqrt(share * (1 - share) / 3000)
    random = {t for found in drawn for t in found.source[1:3].tolist()} - {4, 101, 102}
    assert random == set(range(60)) - {0, 1, 4, 7}


@given(masked_passages(least=1), SHARES, st.integers(0, 9))
def test_of_a_span_stands_one_random_token_or_all_its_text(drawn, parts, epoch):
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


@given(st.lists(masked_passages(), min_size=1, max_size=5), st.integers(0, 9))
def test_what_stands_in_a_passage_does_not_depend_on_the_batch(drawn, seed):
    passages = [replace(passage, id=str(i)) for i, (passage, _) in enumerate(drawn)]
    spans, epochs = [each for _, each in drawn], [3] * len(drawn)
    how = replace(AT_POSITIONS, replacement=BERT)
    hows = [how if i % 2 else AT_POSITIONS for i in range(len(drawn))]
    together = denoising_pairs(passages, spans, how, MARKS, seed, epochs)
    mixed = mixed_pairs(passages, spans, hows, MARKS, seed, epochs)
    for i, (passage, each) in enumerate(zip(passages, spans, strict=True)):
        alone = [denoising_pair(passage, each, one, MARKS, seed, 3) for one in (how, hows[i])]
        assert together[i].source.tolist() == alone[0].source.tolist()
        assert mixed[i].source.tolist() == alone[1].source.tolist()
    assert mixed.masked.tolist() == together.masked.tolist()


T5 = Marks(99, None, tuple(range(99, 96, -1)))


@pytest.mark.parametrize("marks", [4, T5], ids=["one mask", "sentinels"])
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


def test_a_target_of_sentinels_needs_a_mask_for_every_span():
    passage, spans = small.ids(range(100, 104)), as_spans([(1, 3)])
    with pytest.raises(ConfigError, match="names each masked span by its sentinel"):
        denoising_pair(passage, spans, Denoising(replacement=BERT), T5)
    kept = Denoising(target="full", replacement=Replacement(keep=0.5, mask=0.5))
    drawn = {tuple(denoising_pair(passage, spans, kept, T5, 0, i).source) for i in range(20)}
    assert drawn == {(100, 101, 102, 103), (100, 99, 103)}
