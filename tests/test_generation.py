"""Answers written and chosen by a small model with weights of its own."""

from __future__ import annotations

import pytest

from maskpolicy import model as models
from maskpolicy.batching import Pair, collate
from maskpolicy.budgets import Training
from maskpolicy.errors import DataError
from maskpolicy.generation import generate, rank
from maskpolicy.objectives import Specials, tokenize
from maskpolicy.stages.answers import answer
from maskpolicy.types import Example

SOURCES = ["Where is Ulm?", "Which of the many towns on the river is it?", "Bonn", "more or less"]
CHOICES = [("in the south", "Ulm"), ("more", "less", "no effect"), ("a", "b"), ("less", "more")]
LIMITS = {"max_source": 32, "max_target": 16}


@pytest.fixture(scope="module")
def small():
    """Return a model of preset mini, drawn from a seed, and its tokenizer."""
    tokenizer = models.train_tokenizer([*SOURCES, *(c for given in CHOICES for c in given)], 300)
    return models.build("mini", tokenizer, 0).float().eval(), tokenizer


def mean_loss(model, tokenizer, source, choice):
    """Return the mean loss of one choice, by the loss that models are trained with."""
    import torch

    specials = Specials.of(tokenizer, model.config.decoder_start_token_id)
    ids = tokenize([source, choice], tokenizer)
    pair = Pair(specials.wrap(ids[0], 32), specials.wrap(ids[1], 16))
    with torch.inference_mode():
        total, count = models.token_loss(model, collate([pair], specials.pad, specials.start))
    return float(total) / count


def test_the_chosen_one_has_the_least_mean_training_loss(small):
    expected = [
        min(given, key=lambda choice: mean_loss(*small, source, choice))
        for source, given in zip(SOURCES, CHOICES, strict=True)
    ]
    assert rank(*small, SOURCES, CHOICES, **LIMITS) == expected


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batches_of_any_size_choose_the_same(small, batch):
    whole = rank(*small, SOURCES, CHOICES, **LIMITS)
    done = []
    chosen = rank(
        *small, SOURCES, CHOICES, **LIMITS, batch=batch, progress=lambda *at: done.append(at[:2])
    )
    assert chosen == whole
    assert done[-1] == (9, 9)


def test_of_equal_choices_the_first_one_is_taken(small):
    chosen = rank(*small, ["Bonn"], [("no effect", "no effect")], **LIMITS)
    assert chosen == ["no effect"]


def examples(choices=CHOICES):
    return [
        Example(f"q{n}", "g", source, ("more",), choices=given)
        for n, (source, given) in enumerate(zip(SOURCES, choices, strict=True))
    ]


def test_likelihood_answers_with_one_of_the_choices(small):
    params = {"metric": "multiple_choice", "keep": "start", "choose": "likelihood"}
    spec = Training(precision="fp32")
    predictions, scores = answer(*small, examples(), params, spec)
    assert all(given in of for given, of in zip(predictions, CHOICES, strict=True))
    assert scores == [float(prediction == "more") for prediction in predictions]


def test_likelihood_needs_choices(small):
    params = {"metric": "multiple_choice", "keep": "start", "choose": "likelihood"}
    bare = examples([*CHOICES[:3], ()])
    with pytest.raises(DataError, match="example 'q3' has no choices"):
        answer(*small, bare, params, Training(precision="fp32"))


def test_generated_answers_come_in_the_order_of_their_sources(small):
    model, tokenizer = small
    model.generation_config.max_new_tokens = 6
    together = generate(model, tokenizer, SOURCES, max_source=32)
    alone = [generate(model, tokenizer, [source], max_source=32)[0] for source in SOURCES]
    assert together == alone
