"""Masked diffusion: weights, the bound on the likelihood, orders; examples of entities."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import small
from maskpolicy.policies.diffusion import Diffusion
from maskpolicy.policies.frequency import Frequency
from maskpolicy.policies.salient_span import SalientFirst, SalientSpan

from maskpolicy.core.distribution import Distribution
from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import as_spans
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.policy_blocks import AT_POSITIONS, policy_block
from maskpolicy.masking.selection import Masker, select
from maskpolicy.models.training.collator import MaskingCollator
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.plugins.discovery import instance

TIMES = 4000


def drawn(text: str, ratio: Any = None, kind: str = "likelihood") -> tuple[Any, Any]:
    """Return how many tokens of a passage are masked, and its weight, in many epochs."""
    fields = {} if ratio is None else {"ratio": ratio}
    block = policy_block({"name": "diffusion", "loss_weight": kind, **fields}, "row", {}, "encoder")
    masker = Masker.of(block.policy, block.denoising)
    found = masker.select([[small.words(text)]], [0] * TIMES, 0, range(TIMES))
    return np.asarray([len(spans) for spans in found.spans]), np.asarray(found.weights)


@pytest.mark.parametrize(
    "ratio",
    [
        None,
        {"distribution": "uniform", "low": 0.2},
        {"distribution": "cosine", "low": 0.01},
        {"distribution": "beta", "mean": 0.5, "sd": 0.3, "low": 0.05},
        {"distribution": "bell", "mean": 0.5, "sd": 0.3, "low": 0.05, "high": 0.9},
    ],
    ids=str,
)
def test_each_token_has_the_same_mean_weight_in_all_distributions(ratio):
    masked, weights = drawn("a b c d e f g h", ratio)
    given = ratio or {"low": 0.001}
    expected = given.get("high", 1.0) - given["low"]  # of the integral over the rate
    assert (masked * weights).mean() / 8 == pytest.approx(expected, abs=0.06)


def test_the_loss_is_the_bound_on_the_likelihood():
    # a model whose loss of a token is 3 if both tokens are masked, and 1 if it sees the other
    masked, weights = drawn("a b")
    losses = np.asarray([0, 1, 2 * 3])[masked]
    # by the chain rule: 3 for the first token, in any order, and 1 for the second
    assert (losses * weights).mean() == pytest.approx(3 + 1, rel=0.08)


def test_a_weight_by_the_rate_is_its_inverse():
    bell = {"distribution": "bell", "mean": 0.3, "sd": 0.1}
    masked, weights = drawn("a b c d e f g h", bell, "rate")
    assert (masked * weights).mean() / 8 == pytest.approx(1, abs=0.04)
    assert (1 / weights).mean() == pytest.approx(0.3, abs=0.01)


def test_a_drawn_rate_is_the_mean_of_the_chances_of_frequency():
    text = small.words("a b c d", ranks=np.asarray([1, 2, 3, 9], np.float32))
    policy = Frequency(Distribution("uniform", 0.2, 0.6))
    masked = select(policy, [text] * TIMES, 0, range(TIMES))
    counts = np.bincount(np.concatenate(masked)[:, 0], minlength=4) / TIMES
    assert counts.mean() == pytest.approx(0.4, abs=0.02)
    assert counts[3] > 2 * counts[0]


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5, 0.7, 1.0])
def test_entities_are_masked_before_other_words(ratio):
    entities = as_spans([(0, 2), (5, 6), (8, 10)])
    text = small.words("w " * 12, entities=entities)
    tokens = 0
    for epoch in range(300):
        (spans,) = select(SalientFirst(ratio=ratio), [text], 0, [epoch])
        masked = {at for a, b in spans.tolist() for at in range(a, b)}
        inside = {at for a, b in entities.tolist() for at in range(a, b)}
        assert masked <= inside or masked >= inside
        tokens += len(masked)
    assert 12 * ratio <= tokens / 300 + 0.1 < 12 * ratio + 1.1  # the last entity is masked whole


def with_entities() -> Passages:
    """The passages of the small corpus, of which each has its number modulo 3 of entities."""
    passages = small.passages()
    found = [passage.words[: i % 3] for i, passage in enumerate(passages)]
    return Passages({**passages.arrays, "entities": Ragged.of_arrays(found)})


def steps(policy: Any, passages: Passages, size: int = 2) -> MaskedSteps:
    specials = Specials.of(small.tokenizer(), 2)
    spec = Training(batch_size=size, max_source=80, max_target=80)
    return MaskedSteps(passages, policy, AT_POSITIONS, specials, spec)


@pytest.mark.parametrize(
    ("examples", "without", "counts"),
    [
        ("each", "drop", (0, 1, 2)),
        ("each", "keep", (1, 1, 2)),
        ("one", "drop", (0, 1, 1)),
        ("one", "keep", (1, 1, 1)),
    ],
)
def test_passages_have_as_many_examples_as_entities(examples, without, counts):
    passages = with_entities()
    policy = SalientSpan(examples=examples, without=without)
    expected = [counts[i % 3] for i in range(len(passages))]
    made = steps(policy, passages, size=1)
    assert len(made.order.lengths) == sum(expected)  # of an epoch: budgets count what is trained on
    masked: Counter[tuple[str, Any]] = Counter()
    for number in range(sum(expected)):
        found = made._selected(number)
        assert made(number).work["passages"] == 1
        for passage, spans in zip(found.passages, found.spans, strict=True):
            masked[passage.id, tuple(map(tuple, spans.tolist()))] += 1
    found = Counter(id for id, _ in masked.elements())
    assert [found[passage.id] for passage in passages] == expected
    if examples == "each":  # every entity once
        assert set(masked.values()) == {1}


def test_a_corpus_without_any_example_is_one_line():
    passages = small.passages()
    none = Ragged.of_arrays([passage.words[:0] for passage in passages])
    made = steps(SalientSpan(without="drop"), Passages({**passages.arrays, "entities": none}))
    with pytest.raises(DataError, match="salient-span: gives no example of any passage"):
        made(0)


def test_examples_of_passages_do_not_go_with_mixtures_and_collators():
    each = {"name": "salient-span", "examples": "each"}
    with pytest.raises(ConfigError, match="decides how many examples a passage gives"):
        policy_block({"name": "mixture", "members": ["random", each]}, "row", {})
    with pytest.raises(ConfigError, match="decides how many examples a passage gives"):
        MaskingCollator(each, small.tokenizer())
    with pytest.raises(ConfigError, match="masks one entity at a time: leave spans out"):
        instance("policy", "salient-span", {"examples": "each", "spans": 2})


def test_the_default_of_diffusion_is_that_of_llada():
    assert Diffusion().ratio == Distribution("uniform", low=0.001)
