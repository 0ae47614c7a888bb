"""The order of a training and its batches: complete, the same for all, and BART's own format."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import small
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.config.budgets import Training
from maskpolicy.models.text_to_text_loss import token_loss
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.ragged import Ragged
from maskpolicy.training.batching import IGNORE, Order, Pair, Pairs, collate, micro_batches
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import MaskedSteps
from maskpolicy.types import Denoising

PAD, START = 1, 2
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=30).map(np.asarray)
PAIRS = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 8)), max_size=20).map(
    lambda sizes: [Pair(np.full(n, 7, np.int32), np.full(m, 8, np.int32)) for n, m in sizes]
)


def content(pair):
    return pair.source.tobytes(), pair.target.tobytes()


def collated(pairs):
    return collate(Pairs.of(pairs), PAD, START)


@given(LENGTHS, st.integers(1, 12), st.integers(0, 5), st.integers(1, 3))
def test_every_item_comes_once_in_every_epoch(lengths, size, seed, window):
    order = Order(lengths, size, seed, window)
    steps = -(-3 * len(lengths) // size)
    places = [place for number in range(steps) for place in order.step(number)]
    assert all(len(order.step(number)) == size for number in range(steps))
    for epoch in range(3):
        items = [item for item, of in places if of == epoch]
        assert sorted(items) == list(range(len(lengths)))
    assert [epoch for _, epoch in places] == sorted(epoch for _, epoch in places)


@given(LENGTHS, st.integers(1, 12), st.integers(0, 5), st.lists(st.integers(0, 20), max_size=5))
def test_a_step_does_not_depend_on_the_steps_before(lengths, size, seed, numbers):
    walked = Order(lengths, size, seed)
    for number in numbers:
        assert walked.step(number) == Order(lengths, size, seed).step(number)


def test_seeds_and_epochs_order_differently():
    lengths = np.arange(64)
    first = Order(lengths, 8, 0)
    assert first.step(0) != Order(lengths, 8, 1).step(0)
    assert [item for item, _ in first.step(0)] != [item for item, _ in first.step(8)]


def test_items_of_like_length_meet_in_a_step():
    lengths = np.random.default_rng(0).integers(1, 100, 320)
    order = Order(lengths, 10, 0)
    spread = [np.ptp([lengths[item] for item, _ in order.step(n)]) for n in range(32)]
    assert np.mean(spread) < 15
    assert np.ptp([np.mean([lengths[i] for i, _ in order.step(n)]) for n in range(3)]) > 1


def test_a_step_sees_the_same_passages_under_every_policy():
    seen = {}
    for name in ("original", "random"):
        policy = find_plugin("policy", name)
        spec = Training(batch_size=4, micro_tokens=500)
        specials = Specials.of(small.tokenizer())
        steps = MaskedSteps(
            small.passages(), policy.plugin(ratio=0.3), Denoising(**policy.facts), specials, spec
        )
        seen[name] = [steps.order.step(number) for number in range(9)]
        assert all(steps(number).work["passages"] == 4 for number in range(9))
    assert seen["original"] == seen["random"]


@given(PAIRS, st.integers(1, 200))
def test_micro_batches_are_complete_and_within_the_budget(pairs, budget):
    cuts = micro_batches(Pairs.of(pairs), budget)
    cut = [content(pair) for batch in cuts for pair in batch]
    assert Counter(cut) == Counter(content(pair) for pair in pairs if len(pair.target))
    for batch in cuts:
        padded = max(len(p.source) for p in batch) + max(len(p.target) for p in batch)
        assert len(batch) == 1 or len(batch) * padded <= budget


@given(PAIRS, st.integers(1, 200), st.randoms())
def test_micro_batches_hold_the_same_sizes_whatever_the_order(pairs, budget, random):
    def shapes(given_):
        return [
            [(len(p.source), len(p.target)) for p in cut]
            for cut in micro_batches(Pairs.of(given_), budget)
        ]

    assert shapes(pairs) == shapes(random.sample(pairs, len(pairs)))


def pair(source, target, excluded=None):
    return Pair(
        np.asarray(source, np.int32),
        np.asarray(target, np.int32),
        None if excluded is None else np.asarray(excluded),
    )


def test_a_batch_follows_the_conventions_of_bart():
    batch = collated([pair([0, 9, 2], [0, 5, 6, 2]), pair([0, 9, 8, 7, 2], [0, 5, 2])])
    assert batch.source.tolist() == [[0, 9, 2, PAD, PAD], [0, 9, 8, 7, 2]]
    assert batch.seen.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert batch.labels.tolist() == [[0, 5, 6, 2], [0, 5, 2, IGNORE]]
    assert batch.decoder.tolist() == [[START, 0, 5, 6], [START, 0, 5, 2]]
    assert batch.excluded is None


def test_the_decoder_input_is_what_transformers_makes_of_the_labels():
    from transformers.models.bart.modeling_bart import shift_tokens_right

    batch = collated([pair([0, 2], [0, 5, 6, 7, 2]), pair([0, 2], [0, 2])])
    assert torch.equal(batch.decoder, shift_tokens_right(batch.labels, PAD, START))


def test_excluded_tokens_are_padded_with_false():
    batch = collated([pair([0, 4, 2], [0, 2], [False, True, False]), pair([0, 9, 9, 2], [0, 2])])
    assert batch.excluded is not None
    assert batch.excluded.tolist() == [[False, True, False, False], [False] * 4]


def test_bos_and_eos_stand_around_source_and_target():
    specials = Specials.of(small.tokenizer())
    assert specials == Specials(bos=0, eos=2, pad=1, mask=4, start=2)
    rows = Ragged.of([np.asarray([7, 8, 9]), np.zeros(0, np.int32)], np.int32)
    assert [row.tolist() for row in specials.wrap(rows, 10)] == [[0, 7, 8, 9, 2], [0, 2]]
    assert [row.tolist() for row in specials.wrap(rows, 4)] == [[0, 7, 8, 2], [0, 2]]


@pytest.mark.parametrize("seed", range(3))
def test_padding_never_changes_a_loss(seed):
    rng = np.random.default_rng(seed)
    model = small.bart(seed=seed).eval()
    pairs = [
        pair([0, *rng.integers(5, 300, n), 2], [0, *rng.integers(5, 300, m), 2])
        for n, m in rng.integers(0, 20, (6, 2))
    ]
    together, count = token_loss(model, collated(pairs))
    alone = [token_loss(model, collated([one])) for one in pairs]
    assert count == sum(number for _, number in alone) == sum(len(one.target) for one in pairs)
    assert together.item() == pytest.approx(sum(loss.item() for loss, _ in alone), rel=1e-5)


def test_the_loss_is_that_of_transformers():
    model = small.bart().eval()
    batch = collated([pair([0, 9, 2], [0, 5, 6, 2]), pair([0, 9, 8, 7, 2], [0, 5, 2])])
    with torch.no_grad():
        theirs = model(input_ids=batch.source, attention_mask=batch.seen, labels=batch.labels).loss
        ours, count = token_loss(model, batch)
    assert (ours / count).item() == pytest.approx(theirs.item(), rel=1e-5)
