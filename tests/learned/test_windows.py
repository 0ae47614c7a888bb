"""Windows of texts for training, and the best spans of passages."""

from __future__ import annotations

import numpy as np
import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.learned import extractor, windows
from maskpolicy.learned.windows import WindowSteps, candidates, cut, read
from maskpolicy.types import as_spans

LONG = small.passage(" ".join(small.TEXTS))


@pytest.fixture
def network():
    embeddings = torch.randn(320, 6, generator=torch.Generator().manual_seed(1))
    return extractor.build(embeddings, 0, hidden=4).eval()


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW", 30)


def answers(passage, *texts):
    found = [(passage.text.index(text), passage.text.index(text) + len(text)) for text in texts]
    return np.concatenate([passage.at([span]) for span in found])


def text(passage, span):
    return passage.text[passage.offsets[span[0], 0] : passage.offsets[span[1] - 1, 1]].strip()


def test_a_short_text_is_one_window_with_its_answers_as_words():
    passage = small.passage(small.TEXTS[0])
    (window,) = cut(passage, answers(passage, "Anna Kovar", "1901"), 10)
    assert window.tokens.tolist() == passage.tokens.tolist()
    assert window.words.tolist() == passage.words.tolist()
    (first, more), (year, none) = window.gold.tolist()
    assert (first, more, none) == (0, 1, 0)
    assert text(passage, passage.words[year]) == "1901"


def test_an_answer_of_too_many_words_is_left_out():
    passage = small.passage(small.TEXTS[0])
    assert cut(passage, answers(passage, "The Red River"), 2) == []
    assert len(cut(passage, answers(passage, "The Red River", "Rome"), 2)[0].gold) == 1
    assert cut(passage, as_spans([]), 2) == []


def test_a_long_text_is_cut_between_words_into_windows_that_hold_the_answers(narrow):
    wanted = ("Anna Kovar", "Berg & Sons", "1950")
    found = cut(LONG, answers(LONG, *wanted), 10)
    assert len(found) >= 3
    seen = set()
    for window in found:
        assert len(window.tokens) <= 30
        assert window.words[0, 0] == 0
        assert window.words[-1, 1] == len(window.tokens)
        at = next(i for i in LONG.words[:, 0] if is_at(window, i))
        for first, more in window.gold.tolist():
            span = window.words[first, 0] + at, window.words[first + more, 1] + at
            seen.add(text(LONG, span))
    assert seen == set(wanted)


def is_at(window, begin):
    return LONG.tokens[begin : begin + len(window.tokens)].tolist() == window.tokens.tolist()


def test_a_word_longer_than_a_window_is_a_window_of_its_own(monkeypatch, network):
    monkeypatch.setattr(windows, "WINDOW", 4)
    passage = small.passage("Boats Donaudampfschifffahrt ran. Boats ran.")
    texts, logits = read(network, [passage])
    assert texts.words.shape[1] == len(passage.words)
    assert (logits.abs().sum(dim=-1) > 0).all()


def test_windows_of_a_long_text_meet_where_both_know_as_much(narrow, network):
    _, logits = read(network, [LONG, small.passage(small.TEXTS[5])])
    assert (logits[0].abs().sum(dim=-1) > 0).all()
    alone = read(network, [small.passage(small.TEXTS[5])])[1]
    torch.testing.assert_close(logits[1, : alone.shape[1]], alone[0])


def test_candidates_are_whole_words_best_first_and_do_not_overlap(network):
    passages = list(small.passages())
    found = candidates(network, passages, 6, 3)
    for passage, (spans, scores) in zip(passages, found, strict=True):
        assert 1 <= len(spans) == len(scores) <= 6
        assert scores.dtype == np.float32
        assert (np.diff(scores) <= 0).all()
        ordered = spans[np.argsort(spans[:, 0])]
        assert (ordered[1:, 0] >= ordered[:-1, 1]).all()
        first = np.searchsorted(passage.words[:, 0], spans[:, 0])
        last = np.searchsorted(passage.words[:, 1], spans[:, 1])
        assert (passage.words[first, 0] == spans[:, 0]).all()
        assert (passage.words[last, 1] == spans[:, 1]).all()
        assert (last - first < 3).all()


def test_a_passage_without_a_word_has_no_candidate(network):
    empty = small.ids([])
    found = candidates(network, [empty, small.passages()[0]], 2, 3)
    assert [len(spans) for spans, _ in found] == [0, 2]


def test_a_step_has_its_windows_in_batches_of_like_length():
    passages = list(small.passages())
    cuts = [cut(p, p.words[:1], 5)[0] for p in passages]
    spec = Training(batch_size=5, micro_tokens=40)
    step = WindowSteps(cuts, spec)(0)
    assert step.units == sum(len(batch.tokens) for batch in step.batches) == 5
    assert all(batch.tokens.numel() <= 40 or len(batch.tokens) == 1 for batch in step.batches)
    assert step.work["tokens"] == sum(int(batch.lengths.sum()) for batch in step.batches)
    again = WindowSteps(cuts, spec)(0)
    assert [b.tokens.tolist() for b in again.batches] == [b.tokens.tolist() for b in step.batches]
