"""Learned policies: the extractor, its windows, the tagger, and how often spans hold answers."""

import os
from collections import Counter
from dataclasses import replace
from itertools import combinations
from math import log

import numpy as np
import pytest
import small
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskpolicy.core.types import as_spans
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.experiment.budgets import Training
from maskpolicy.models.learned import extractor, hits, tagger, windows
from maskpolicy.models.learned.extractor import best, span_scores
from maskpolicy.models.learned.fit_tools import Context, Contexts
from maskpolicy.models.learned.windows import Window, WindowSteps, candidates, collate, cut, read
from maskpolicy.models.training.batching import Step
from maskpolicy.models.training.optimization import in_bf16
from maskpolicy.pipeline.graph.nodes import StageRun
from maskpolicy.pipeline.store.artifacts import Store
from tests.models import test_loop
from tests.models.test_waits import Waits


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
def test_the_best_spans_are_disjoint_and_in_order(lengths, most, seed, k):
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


def test_the_loss_is_minus_the_log_probability_of_all_places_of_the_answer():
    module = network()
    texts = collate([window([1, 2, 1], [[0, 1], [2, 0]]), window([1, 1], [[1, 0]])])
    total, units = extractor.loss(2)(module, texts)
    scores = span_scores(module(texts.tokens, texts.lengths), texts, 2)
    chances = scores.flatten(1).softmax(1).view_as(scores)
    wanted = -torch.log(chances[0, 0, 1] + chances[0, 2, 0]) - torch.log(chances[1, 1, 0])
    torch.testing.assert_close(total, wanted)
    assert units == 2


LONG = small.passage(" ".join(small.TEXTS))


@pytest.fixture
def narrow_network():
    embeddings = torch.randn(320, 6, generator=torch.Generator().manual_seed(1))
    return extractor.build(embeddings, 0, hidden=4).eval()


def answers(passage, *texts):
    found = [(passage.text.index(text), passage.text.index(text) + len(text)) for text in texts]
    return np.concatenate([passage.at([span]) for span in found])


def test_a_long_text_is_cut_between_words_into_windows_that_hold_the_answers(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW", 30)
    wanted = ("Anna Kovar", "Berg & Sons", "1950")
    found = cut(LONG, answers(LONG, *wanted), 10)
    assert len(found) >= 3
    seen = set()
    for window in found:
        assert len(window.tokens) <= 30
        assert window.words[0, 0] == 0
        assert window.words[-1, 1] == len(window.tokens)
        own = window.tokens.tolist()
        at = next(i for i in LONG.words[:, 0] if LONG.tokens[i : i + len(own)].tolist() == own)
        for first, more in window.gold.tolist():
            span = window.words[first, 0] + at, window.words[first + more, 1] + at
            seen |= {*LONG.texts(as_spans([span]))}
    assert seen == set(wanted)


def test_a_word_longer_than_a_window_is_a_window_of_its_own(monkeypatch, narrow_network):
    monkeypatch.setattr(windows, "WINDOW", 4)
    passage = small.passage("Boats Donaudampfschifffahrt ran. Boats ran.")
    texts, logits = read(narrow_network, [passage])
    assert texts.words.shape[1] == len(passage.words)
    assert (logits.abs().sum(dim=-1) > 0).all()


def test_candidates_are_whole_words_best_first_and_do_not_overlap(narrow_network):
    passages = list(small.passages())
    found = candidates(narrow_network, passages, 6, 3)
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


def test_a_gpu_finds_the_candidates_of_all_passages_without_a_wait_for_each(narrow_network):
    with Waits() as mode:
        found = candidates(narrow_network, list(small.passages()), 6, 3)
    assert (len(found) > 8, mode.found) == (True, [])


def test_a_saved_network_is_loaded_once_and_trains_in_fp32_on_a_gpu(tmp_path):
    module, spec = network(), Training(precision="bf16")
    module.save(tmp_path)
    first = extractor.loaded(tmp_path)
    assert extractor.loaded(tmp_path) is first
    network(1).save(tmp_path)
    os.utime(tmp_path / "extractor.safetensors", ns=(1, 1))
    assert extractor.loaded(tmp_path) is not first
    kinds = [in_bf16(each, spec, on) for each in (module, small.bart()) for on in ("cuda", "cpu")]
    assert kinds == [False, True, True, True]


def test_a_step_has_its_windows_in_batches_of_similar_length():
    passages = list(small.passages())
    cuts = [cut(p, p.words[:1], 5)[0] for p in passages]
    spec = Training(batch_size=5, micro_tokens=40)
    step = WindowSteps(cuts, spec)(0)
    assert step.units == sum(len(batch.tokens) for batch in step.batches) == 5
    assert all(batch.tokens.numel() <= 40 or len(batch.tokens) == 1 for batch in step.batches)
    assert step.work["tokens"] == sum(int(batch.lengths.sum()) for batch in step.batches)
    again = WindowSteps(cuts, spec)(0)
    assert [b.tokens.tolist() for b in again.batches] == [b.tokens.tolist() for b in step.batches]


PLACES = ("Rome", "Paris", "Oder", "Lindau")


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
    embeddings = small.bart().get_input_embeddings().weight
    module = extractor.build(embeddings, 0, hidden=8, dropout=0)
    steps = windows.WindowSteps(cuts, spec)
    assert steps(0).work == Counter(windows=8, tokens=sum(len(window.tokens) for window in cuts))
    test_loop.run(spec, model=module, steps=steps, loss=tagger.loss)
    (other,) = tokenize([Document("new", "Boats on the Oder.")], small.tokenizer())
    shares = tagger.probabilities(module, [*passages, small.ids([]), other])
    assert [(share > 0.5).tolist() for share in shares[: len(marks)]] == [m.tolist() for m in marks]
    assert len(shares[-2]) == 0
    words = other.texts(other.words)
    assert [word for word, p in zip(words, shares[-1], strict=True) if p > 0.5] == ["Oder"]
    tagger.save(module, passages, float(np.concatenate(marks).mean()), tmp_path)
    found = tagger.tag("it", tmp_path, [other])[0][0]
    assert other.texts(found) == ["Oder"]


def context(text, *answers):
    passage = small.passage(text)
    places = [(text.index(answer), text.index(answer) + len(answer)) for answer in answers]
    return Context("i", "g", "q", tuple(answers), passage, passage.at(places))


RIVER = context("The river Oder runs through Lindau, and the Oder is long.", "Oder")


@pytest.mark.parametrize(
    ("guesses", "place"),
    [
        (("Oder",), 0),
        (("the Oder",), 0),
        (("Lindau", "river Oder", "Oder"), 2),
        (("Lindau",), float("inf")),
    ],
)
def test_a_span_is_an_answer_by_its_normalised_text(guesses, place):
    assert hits.rank(RIVER, answers(RIVER.passage, *guesses)) == place


@given(st.integers(1, 7), st.data())
def test_the_chance_of_drawing_a_hit_is_exact(n, data):
    good = data.draw(st.integers(0, n))
    found = hits._drawn([(n, good, n)])
    for k in hits.TOP:
        draws = list(combinations(range(n), min(k, n)))
        share = sum(any(i < good for i in draw) for draw in draws) / len(draws)
        assert found["hits"][str(k)] == pytest.approx(share)
        assert found["precision"][str(k)] == 1


def test_a_report_counts_contexts_and_compares_with_entities_and_random_spans():
    other = context("It rained.")
    wanted = context("Anna Kovar was born in Rome in 1901.", "1901")
    data = [Contexts("mine", (), (RIVER, other, wanted), {})]
    guesses = [[answers(RIVER.passage, "Oder"), answers(wanted.passage, "Rome", "1901")]]
    found = hits.report(data, guesses)["mine"]
    assert (found["contexts"], found["without_answer"]) == (2, 1)
    assert found["policy"]["hits"] == {"1": 0.5, "5": 1.0, "20": 1.0}
    assert found["policy"]["precision"] == {"1": 0.5, "5": 0.75, "20": 0.75}
    for name in ("hits", "precision"):
        assert 0 < found["random"][name]["1"] < found["salient-span"][name]["1"] < 1
    assert found["salient-span"]["hits"]["20"] == 1
    german = [replace(one, passage=replace(one.passage, language="de")) for one in data[0].dev]
    found = hits.report([replace(data[0], dev=tuple(german))], guesses)["mine"]
    assert found["salient-span"] is None and found["random"]["hits"]["1"] > 0


def test_a_random_span_is_an_answer_by_its_normalised_text_too():
    one = context('He saw the "Oder" (a river). The Oder!', "Oder")
    words = one.passage.words.tolist()
    spans = [[a, b] for i, (a, _) in enumerate(words) for _, b in words[i : i + hits.LONGEST]]
    share = sum(hits.rank(one, as_spans([span])) == 0 for span in spans) / len(spans)
    found = hits.report([Contexts("mine", (), (one,), {})], [[as_spans([])]])["mine"]["random"]
    assert found["hits"]["1"] == found["precision"]["1"] == pytest.approx(share)


def test_a_second_training_of_a_fit_does_not_resume_the_first(tmp_path):
    run = StageRun(Store(tmp_path).checkpoints("a" * 64))
    spec = Training(steps=9, lr=0.1, warmup=0, precision="fp32", checkpoint_every=1e-9)
    ends = []
    for wanted in (1.0, -1.0):
        module = torch.nn.Linear(1, 1)
        torch.nn.init.zeros_(module.weight)
        run.train(
            module,
            lambda number: Step([torch.ones(1, 1)], 1),
            lambda module, _, wanted=wanted: ((module.weight - wanted).square().sum(), 1),
            spec,
        )
        ends.append(module.weight.item())
    assert ends[0] == -ends[1] > 0
