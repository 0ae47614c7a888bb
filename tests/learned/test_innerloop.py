"""Inner steps: both back ends have the gradient of differences, and leave the model alone."""

from __future__ import annotations

import numpy as np
import pytest
import small
import text_to_text
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.corpus.passages import Document, tokenize
from maskpolicy.errors import ConfigError
from maskpolicy.learned.innerloop import BACKENDS, Inner, Lesson, backend
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.models.text_to_text_loss import row_losses, token_loss
from maskpolicy.training.batching import IGNORE, collate
from maskpolicy.training.specials import Specials
from maskpolicy.types import Denoising

SPECIALS = Specials.of(small.tokenizer())
SPEC = Training()
SOFT = torch.tensor([0.1, 0.5, 0.15, 0.25], dtype=torch.float64)
HARD = torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=torch.float64)


def model():
    made = small.bart().double().eval()
    made.set_attn_implementation("eager")
    return made


def batch(texts, how=None):
    passages = [small.passage(text) for text in texts]
    spans = [each.words[1:2] for each in passages]
    written = denoising_pairs(
        passages, spans, how or Denoising(), SPECIALS.mask, 0, [0] * len(passages)
    )
    return collate(SPECIALS.pairs(written, SPEC), SPECIALS.pad, SPECIALS.start)


def lesson(**how):
    return Lesson(
        batch(small.TEXTS[:4], Denoising(**how)), batch(small.TEXTS[4:5]), batch(small.TEXTS[5:7])
    )


def gradient(name, w, inner, given=None):
    w = w.clone().requires_grad_()
    value = backend(name)(model(), given or lesson(), w, inner)
    (found,) = torch.autograd.grad(value, w)
    return value.detach(), found


def differences(w, inner, given=None, step=1e-5):
    """Return central finite differences of the outer loss."""
    outer, fixed = backend("functional"), model()
    given = given or lesson()
    rows = torch.eye(len(w), dtype=w.dtype) * step
    ends = [[outer(fixed, given, w + sign * row, inner) for sign in (1, -1)] for row in rows]
    return torch.stack([(up - down) / (2 * step) for up, down in ends])


def test_both_back_ends_agree_on_t5():
    tokenizer, made = text_to_text.tokenizer("t5"), text_to_text.model("t5").double()
    made.set_attn_implementation("eager")
    special = Specials.of(tokenizer)

    def rows(texts):
        documents = [Document(str(i), text) for i, text in enumerate(texts)]
        passages = list(tokenize(documents, tokenizer))
        spans = [each.words[1:2] for each in passages]
        epochs = [0] * len(passages)
        written = denoising_pairs(passages, spans, Denoising(), special.marks, 0, epochs)
        return collate(special.pairs(written, SPEC), special.pad, special.start)

    given = Lesson(rows(small.TEXTS[:4]), rows(small.TEXTS[4:5]), rows(small.TEXTS[5:7]))
    found = []
    for name in BACKENDS:
        w = SOFT.clone().requires_grad_()
        value = backend(name)(made, given, w, Inner("sgd", 1e-3, 1e-3, 1, 1))
        found.append((value.detach(), *torch.autograd.grad(value, w)))
    assert found[0][1].abs().min() > 0
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize(("steps", "query_steps"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("w", [SOFT, HARD], ids=["soft", "hard"])
def test_both_back_ends_have_the_same_outer_gradient(optimizer, steps, query_steps, w):
    inner = Inner(optimizer, 0.05, 0.03, steps, query_steps)
    if optimizer != "sgd":
        inner = Inner(optimizer, 1e-3, 2e-3, steps, query_steps)
    (value, found), (other, expected) = (gradient(name, w, inner) for name in BACKENDS)
    assert value == pytest.approx(other.item(), rel=1e-10)
    assert expected.abs().min() > 1e-9
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-11)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("steps", "query_steps"), [(1, 1), (2, 3)])
def test_the_gradient_is_that_of_central_differences(name, steps, query_steps):
    inner = Inner("sgd", 0.05, 0.03, steps, query_steps)
    _, found = gradient(name, SOFT, inner)
    torch.testing.assert_close(found, differences(SOFT, inner), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", BACKENDS)
def test_at_one_hot_weights_the_others_have_a_gradient_too(name):
    inner = Inner("sgd", 0.05, 0.03)
    _, found = gradient(name, HARD, inner)
    torch.testing.assert_close(found, differences(HARD, inner), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "how", [{"corruption": "token"}, {"target": "full", "permute_sentences": True, "insert": 1.0}]
)
def test_any_corruption_and_target_works(how):
    inner, given = Inner("sgd", 0.05, 0.03), lesson(**how)
    _, found = gradient("functional", SOFT, inner, given)
    torch.testing.assert_close(found, differences(SOFT, inner, given), rtol=1e-6, atol=1e-9)


def test_masks_that_the_encoder_does_not_see_are_for_the_functional_back_end():
    inner, given = Inner("sgd", 0.05, 0.03), lesson(mask_exclusion=1.0)
    assert given.candidates.excluded is not None
    _, found = gradient("functional", SOFT, inner, given)
    torch.testing.assert_close(found, differences(SOFT, inner, given), rtol=1e-6, atol=1e-9)
    with pytest.raises(ConfigError, match=r"^backend higher: cannot exclude masks"):
        gradient("higher", SOFT, inner, given)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_value_is_that_of_steps_by_torch_itself(name, optimizer):
    inner, given, trained = Inner(optimizer, 0.01, 0.02, 2, 2), lesson(), model()
    made = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer](trained.parameters())
    for batch, lr in [(given.candidates, 0.01)] * 2 + [(given.support, 0.02)] * 2:
        made.param_groups[0]["lr"] = lr
        losses = row_losses(trained, batch)
        made.zero_grad()
        (SOFT @ losses if batch is given.candidates else losses.mean()).backward()
        made.step()
    expected = row_losses(trained, given.query).mean().item()
    near = 1e-9 if optimizer == "sgd" else 1e-4  # `higher` adds Adam's eps before its correction
    for w in (SOFT, SOFT.clone().requires_grad_()):
        assert backend(name)(model(), given, w, inner).item() == pytest.approx(expected, rel=near)


@pytest.mark.parametrize("name", BACKENDS)
def test_the_model_keeps_its_weights_and_has_no_gradient(name):
    fixed = model()
    before = [p.detach().clone() for p in fixed.parameters()]
    backend(name)(fixed, lesson(), SOFT.clone().requires_grad_(), Inner()).backward()
    assert all(torch.equal(a, b) for a, b in zip(before, fixed.parameters(), strict=True))
    assert all(p.grad is None for p in fixed.parameters())


def test_an_unknown_back_end_is_one_line():
    with pytest.raises(ConfigError) as error:
        backend("functionl")
    assert str(error.value) == (
        "unknown backend 'functionl': did you mean 'functional'? choose from functional, higher"
    )


def test_row_losses_are_means_over_each_row():
    given = batch(small.TEXTS[:4])
    fixed = small.bart().eval()
    counts = (given.labels != IGNORE).sum(1)
    assert len(np.unique(counts)) > 1
    total, count = token_loss(fixed, given)
    assert count == counts.sum()
    assert (row_losses(fixed, given) * counts).sum().item() == pytest.approx(total.item(), rel=1e-5)
