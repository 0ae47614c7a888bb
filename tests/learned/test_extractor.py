"""The extractor: what it scores, which spans are best, what its loss is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskpolicy.learned import extractor
from maskpolicy.learned.extractor import best, span_scores
from maskpolicy.learned.windows import Window, collate
from maskpolicy.types import as_spans


def network(seed=0):
    embeddings = torch.randn(40, 6, generator=torch.Generator().manual_seed(9))
    return extractor.build(embeddings, seed, hidden=5).eval()


def window(lengths, gold=(), first=7):
    """Return a window of words of so many tokens each."""
    ends = np.cumsum(lengths)
    tokens = np.arange(first, first + ends[-1]) % 40
    words = as_spans(np.stack([ends - lengths, ends], axis=1))
    return Window(tokens.astype(np.int32), words, as_spans(list(gold)))


def logits_of(module, texts):
    with torch.inference_mode():
        return module(texts.tokens, texts.lengths)


def test_the_padding_beside_a_text_changes_nothing():
    one, long = window([1, 2, 1]), window([3, 2, 4, 1], first=20)
    alone = logits_of(network(), collate([one]))[0]
    beside = logits_of(network(), collate([long, one]))[1, :4]
    torch.testing.assert_close(alone, beside)


@pytest.mark.parametrize("changed", [0, 5])
def test_every_token_sees_the_text_on_both_sides(changed):
    texts = collate([window([1] * 6)])
    before = logits_of(network(), texts)
    texts.tokens[0, changed] = 39
    assert (before != logits_of(network(), texts)).all()


def test_embeddings_are_frozen_and_a_seed_gives_the_weights():
    module = network(seed=3)
    assert "embeddings" not in dict(module.named_parameters())
    for name, tensor in network(seed=3).state_dict().items():
        assert torch.equal(tensor, module.state_dict()[name])
    assert not torch.equal(network(seed=4).heads.weight, module.heads.weight)


def test_what_is_saved_reads_the_same(tmp_path):
    module, texts = network(), collate([window([2, 1])])
    module.save(tmp_path)
    loaded = extractor.Extractor.load(tmp_path)
    assert torch.equal(logits_of(module, texts), logits_of(loaded, texts))
    assert not loaded.training


LENGTHS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=6), min_size=1, max_size=3)


def scored(lengths, most, seed):
    windows = [window(one) for one in lengths]
    texts = collate(windows)
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(*texts.tokens.shape, 2, generator=rng, dtype=torch.float64)
    return windows, logits, span_scores(logits, texts, most)


@settings(max_examples=50)
@given(LENGTHS, st.integers(1, 4), st.integers(0, 99))
def test_a_span_scores_its_first_tokens_start_and_its_last_tokens_end(lengths, most, seed):
    windows, logits, scores = scored(lengths, most, seed)
    for row, one in enumerate(windows):
        for i in range(scores.shape[1]):
            for more in range(most):
                if i + more >= len(one.words):
                    assert scores[row, i, more] == -torch.inf
                    continue
                first, last = one.words[i, 0], one.words[i + more, 1] - 1
                assert scores[row, i, more] == logits[row, first, 0] + logits[row, last, 1]


@settings(max_examples=50)
@given(LENGTHS, st.integers(1, 4), st.integers(0, 99), st.integers(1, 7))
def test_the_best_spans_are_taken_one_after_the_other_and_do_not_overlap(lengths, most, seed, k):
    _, _, scores = scored(lengths, most, seed)
    found, values = best(scores, k)
    for row in range(len(lengths)):
        left = {
            (i, i + more + 1): float(scores[row, i, more])
            for i in range(len(lengths[row]))
            for more in range(min(most, len(lengths[row]) - i))
        }
        for (begin, more), value in zip(found[row].tolist(), values[row].tolist(), strict=True):
            if not left:
                assert value == -np.inf
                continue
            assert left[begin, begin + more + 1] == value == max(left.values())
            left = {s: v for s, v in left.items() if s[1] <= begin or s[0] > begin + more}


@settings(max_examples=50)
@given(LENGTHS, st.integers(1, 4), st.integers(0, 99), st.integers(1, 30))
def test_spans_that_may_overlap_are_the_best_of_all(lengths, most, seed, k):
    _, _, scores = scored(lengths, most, seed)
    found, values = best(scores, k, overlap=True)
    for row, one in enumerate(scores):
        kept = [value for value in values[row].tolist() if value > -np.inf]
        finite = sorted(one[one.isfinite()].tolist(), reverse=True)
        assert kept == finite[:k]
        spans = found[row, : len(kept)].tolist()
        assert len({*map(tuple, spans)}) == len(spans)
        assert [float(one[first, more]) for first, more in spans] == kept


def chance(logits, row, tokens, kind, length):
    """Return the probability that a softmax over a text's tokens gives to some of them."""
    chances = logits[row, :length, kind].softmax(0)
    return chances[list(tokens)].sum()


def test_the_papers_loss_has_a_softmax_over_starts_and_one_over_ends():
    module = network()
    # words of 1, 2, 1 tokens; two answers begin at the first word: its token counts once
    texts = collate([window([1, 2, 1], [[0, 0], [0, 1], [2, 0]]), window([1, 1], [[1, 0]])])
    total, units = extractor.start_end_loss(module, texts)
    logits = module(texts.tokens, texts.lengths)
    wanted = (
        *(chance(logits, 0, {0, 3}, 0, 4), chance(logits, 0, {0, 2, 3}, 1, 4)),
        *(chance(logits, 1, {1}, 0, 2), chance(logits, 1, {1}, 1, 2)),
    )
    torch.testing.assert_close(total, -torch.stack(wanted).log().sum())
    assert units == 2


def test_both_losses_teach_where_answers_stand():
    windows = [window([1, 2, 1, 1], [[1, 1]], first) for first in range(4)]
    for taught in (extractor.loss(3), extractor.start_end_loss):
        module, texts = network().train(), collate(windows)
        module.dropout.p = 0.0
        optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
        for _ in range(40):
            total, _ = taught(module, texts)
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
        scores = span_scores(module.eval()(texts.tokens, texts.lengths), texts, 3)
        assert best(scores, 1)[0].tolist() == [[[1, 1]]] * 4


def test_the_loss_is_minus_the_log_probability_of_all_places_of_the_answer():
    module = network()
    texts = collate([window([1, 2, 1], [[0, 1], [2, 0]]), window([1, 1], [[1, 0]])])
    total, units = extractor.loss(2)(module, texts)
    scores = span_scores(module(texts.tokens, texts.lengths), texts, 2)
    chances = scores.flatten(1).softmax(1).view_as(scores)
    wanted = -torch.log(chances[0, 0, 1] + chances[0, 2, 0]) - torch.log(chances[1, 1, 0])
    torch.testing.assert_close(total, wanted)
    assert units == 2
