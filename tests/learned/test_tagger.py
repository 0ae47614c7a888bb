"""The tagger of words: what it learns from, its loss, and its probabilities."""

from __future__ import annotations

from collections import Counter
from math import log

import numpy as np
import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.corpus.passages import Document, tokenize
from maskpolicy.errors import ConfigError
from maskpolicy.learned import extractor, tagger, windows
from maskpolicy.training.loop import train

PLACES = ("Rome", "Paris", "Oder", "Lindau")


def reader(seed=0):
    return extractor.build(small.bart().get_input_embeddings().weight, seed, hidden=8, dropout=0)


def test_every_window_of_a_text_is_cut_with_its_tagged_words(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW", 4)
    passage = small.words("a b c d e f")
    cuts = tagger.cut(passage, np.asarray([True, False, False, True, False, False]))
    assert [window.tokens.tolist() for window in cuts] == [[0, 1, 2, 3], [2, 3, 4, 5]]
    assert [window.gold[:, 0].tolist() for window in cuts] == [[0, 3], [1]]
    assert tagger.cut(small.ids([]), np.zeros(0, bool)) == []


def test_the_loss_is_the_mean_over_the_words_of_each_text():
    class Fixed:
        def __call__(self, tokens, lengths):
            chance = torch.tensor([0.25, 0.5, 0.75])[tokens]  # of being tagged
            return torch.stack([(1 - chance).log(), chance.log()], -1)

    one, two = small.ids([0, 1, 2]), small.ids([2])
    cuts = [
        *tagger.cut(one, np.asarray([True, False, False])),
        *tagger.cut(two, np.asarray([True])),
    ]
    found, texts = tagger.loss(Fixed(), windows.collate(cuts))
    by_hand = -(log(0.25) + log(0.5) + log(0.25)) / 3 - log(0.75)
    assert (found.item(), texts) == (pytest.approx(by_hand), 2)


def test_it_learns_which_words_are_tagged(tmp_path):
    documents = [Document(str(i), text) for i, text in enumerate(small.TEXTS)]
    passages = list(tokenize(documents, small.tokenizer()))
    marks = [np.asarray([word in PLACES for word in one.texts(one.words)]) for one in passages]
    cuts = [
        window
        for one, mark in zip(passages, marks, strict=True)
        for window in tagger.cut(one, mark)
    ]
    spec = Training(steps=100, batch_size=8, lr=3e-2, warmup=0, precision="fp32", micro_tokens=4096)
    module, steps = reader(), windows.WindowSteps(cuts, spec)
    assert steps(0).work == Counter(windows=8, tokens=sum(len(window.tokens) for window in cuts))

    class Nowhere:
        def save(self, step, write): ...
        def latest(self): ...

    train(module, steps, tagger.loss, spec, Nowhere(), lambda *given: None)
    (other,) = tokenize([Document("new", "Boats on the Oder.")], small.tokenizer())
    shares = tagger.probabilities(module, [*passages, small.ids([]), other])
    assert [(share > 0.5).tolist() for share in shares[: len(marks)]] == [m.tolist() for m in marks]
    assert len(shares[-2]) == 0
    words = other.texts(other.words)
    assert [word for word, p in zip(words, shares[-1], strict=True) if p > 0.5] == ["Oder"]
    tagger.save(module, passages, float(np.concatenate(marks).mean()), tmp_path)
    found = tagger.tag("it", tmp_path, [other])[0]
    assert other.texts(found) == ["Oder"]


def test_as_large_a_share_is_tagged_as_asked_for(tmp_path):
    documents = [Document(str(i), text) for i, text in enumerate(small.TEXTS)]
    passages = list(tokenize(documents, small.tokenizer()))
    words = sum(len(one.words) for one in passages)
    for share in (0.0, 0.1, 0.5, 1.0):
        least = tagger.save(reader(), passages, share, tmp_path)
        tagged = sum(map(len, tagger.tag("it", tmp_path, passages)))
        assert tagged == pytest.approx(share * words, abs=1)
        assert 0 < least < 1


def test_without_a_folder_it_is_refused():
    with pytest.raises(ConfigError, match="policy it: is learned and needs a fitted policy"):
        tagger.tag("it", None, [])
