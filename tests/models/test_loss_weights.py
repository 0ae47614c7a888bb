"""Weights of the losses of passages and tokens, by a policy's `weigh` and by the objective."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import small
import torch
from maskpolicy.policies.uniform import Uniform
from torch.nn.functional import cross_entropy

from maskpolicy.core.distribution import Distribution
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Denoising
from maskpolicy.experiment.budgets import Training
from maskpolicy.masking.selection import Masker
from maskpolicy.models.text_to_text import label_logits, token_loss
from maskpolicy.models.training.batching import IGNORE
from maskpolicy.models.training.collator import MaskingCollator
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps

SPEC = Training(batch_size=8, micro_tokens=10**6, max_source=60, max_target=60)
SPECIALS = Specials.of(small.tokenizer(), 2)
OBJECTIVES = [
    Denoising(target="full"),
    Denoising(),
    Denoising(join="none", permute_sentences=True),
    Denoising(corruption="token", insert=0.2),
]


@dataclass(frozen=True)
class ByToken:
    """Weigh each token by its id."""

    def select(self, passage, rng):
        return Uniform(0.3).select(passage, rng)

    def weigh(self, passage, spans):
        return passage.tokens / 100


@dataclass(frozen=True)
class ByPassage(ByToken):
    """Weigh each passage by one number."""

    given: Any = None

    def weigh(self, passage, spans):
        return len(spans) / 2 if self.given is None else self.given


def steps(policy, how=OBJECTIVES[0], **spec):
    return MaskedSteps(small.passages(), policy, how, SPECIALS, replace(SPEC, **spec))


@pytest.mark.parametrize("how", OBJECTIVES, ids=str)
def test_each_label_has_the_weight_of_its_token(how):
    made = steps(ByToken(), how)
    (batch,), weights = made(0).batches, []
    items = [item for item, _ in made.order.step(0)]
    means = np.asarray([small.passages()[item].tokens.mean() / 100 for item in items])
    for labels, own in zip(batch.labels, batch.weights, strict=True):
        for label, weight in zip(labels.tolist(), own.tolist(), strict=True):
            if label == IGNORE:
                assert weight == 0
            elif label not in SPECIALS.special:
                assert weight == pytest.approx(label / 100)
            else:
                assert np.abs(means - weight).min() < 1e-5
            weights.append(weight)
    assert made(0).units == pytest.approx(sum(weights), rel=1e-5)


def test_the_loss_is_the_weighted_mean():
    step, model = steps(ByPassage())(0), small.bart().eval()
    (batch,) = step.batches
    kept = batch.labels != IGNORE
    losses = cross_entropy(label_logits(model, batch), batch.labels[kept], reduction="none")
    expected = (losses * batch.weights[kept]).sum() / batch.weights[kept].sum()
    assert len(set(batch.weights[kept].tolist())) > 1
    assert token_loss(model, batch)[0].item() / step.units == pytest.approx(expected.item(), 1e-5)


def test_the_gradient_does_not_depend_on_the_micro_batches():
    gradients = []
    for budget in (10**6, 1):
        model = small.bart().eval()
        step = steps(ByToken(), micro_tokens=budget)(0)
        for batch in step.batches:
            (token_loss(model, batch)[0] / step.units).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        assert (len(step.batches) > 1) == (budget < 10**6)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)


def test_labels_of_weight_zero_alone_leave_no_trace():
    step = steps(ByPassage(given=0.0))(0)
    assert step.units == 0
    assert token_loss(small.bart().eval(), step.batches[0])[0].item() == 0


@pytest.mark.parametrize("kind", ["rate", "likelihood"])
def test_the_objective_weighs_a_passage_by_its_drawn_rate(kind):
    drawn = Distribution("bell", mean=0.3, sd=0.1)
    how = Denoising(target="full", loss_weight=kind)
    made = steps(Uniform(drawn), how)
    masker = Masker.of(Uniform(drawn), how)
    rows = [item for item, _ in made.order.step(0)]
    weights = masker.select([small.passages()], rows, 0, [0] * len(rows)).weights
    assert len(set(weights)) == len(rows)
    for weight, row in zip(weights, rows, strict=True):
        rate = 1 / weight if kind == "rate" else None
        spans = masker.select([small.passages()], [row], 0, [0]).spans[0]
        masked, tokens = int(np.diff(spans).sum()), len(small.passages()[row].tokens)
        if rate is not None:  # floor(rate * tokens + u)
            assert masked - 1 < rate * tokens < masked + 1
    tokens = sum(len(small.passages()[row].tokens) for row in rows)
    assert made(0).units == tokens  # masked or not


@pytest.mark.parametrize("given", [-1.0, float("nan"), np.ones(3), "much"], ids=str)
def test_weights_must_be_numbers_from_zero(given):
    with pytest.raises(ConfigError, match=r"policy ByPassage.*weigh"):
        steps(ByPassage(given=given))(0)


def test_a_collator_takes_drawn_rates_but_no_weights():
    drawn = Uniform(Distribution("uniform", 0.2, 0.9))
    batch = MaskingCollator(drawn, small.tokenizer())([{"text": "Anna Kovar was born in Rome."}])
    assert (batch["labels"] != IGNORE).any()
    with pytest.raises(ConfigError, match="ByToken weighs the losses"):
        MaskingCollator(ByToken(), small.tokenizer())


class ByChance(ByPassage):
    """Weigh each passage by chance, which a resumed training would not repeat."""

    def weigh(self, passage, spans):
        return np.random.default_rng().random()


def test_weights_that_are_all_zero_or_change_stop_a_training():
    assert steps(ByPassage(given=0.0)).masks_nothing(2)
    assert not steps(ByPassage()).masks_nothing(2)
    for policy in (ByPassage(), ByToken()):
        steps(policy).check_repeats(2)
    with pytest.raises(ConfigError, match=r"policy ByChance: .* `weigh` gives other weights"):
        steps(ByChance()).check_repeats(2)
