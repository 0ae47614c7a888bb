"""Answers in batches by length are those of a plain loop; choices are ranked by their loss."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.errors import DataError
from maskpolicy.finetuning.generation import PairLimits, generate, rank
from maskpolicy.finetuning.head_params import AnswerParams
from maskpolicy.finetuning.text import answer
from maskpolicy.models import bart
from maskpolicy.models.text_to_text_loss import token_loss
from maskpolicy.models.tokenizers import train_tokenizer
from maskpolicy.training.batching import Pairs, collate
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import tokenize
from maskpolicy.types import Example

WORDS = " ".join(small.TEXTS).split()
SOURCES = ["Where is Ulm?", "Which of the many towns on the river is it?", "Bonn", "more or less"]
CHOICES = [("in the south", "Ulm"), ("more", "less", "no effect"), ("a", "b"), ("less", "more")]
LIMITS = PairLimits(max_source=32, max_target=16)


@pytest.fixture(scope="module")
def model():
    made = small.bart(init_std=0.6, encoder_layers=2, decoder_layers=2)
    made.generation_config.forced_bos_token_id = 0
    made.generation_config.forced_eos_token_id = None
    made.generation_config.max_new_tokens = 8
    return made.eval()


@pytest.fixture(scope="module")
def sources():
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 15))) for _ in range(40)] + ["", "x"]


def plain(model, sources, limit=64):
    """Return the answers of transformers' own loop, in file order."""
    tokenizer = small.tokenizer()
    answers = []
    for source in sources:
        ids = tokenizer(source, return_tensors="pt", truncation=True, max_length=limit)["input_ids"]
        with torch.no_grad():
            output = model.generate(input_ids=ids, num_beams=1, do_sample=False)
        answers.append(tokenizer.decode(output[0], skip_special_tokens=True).strip())
    return answers


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_answers_are_those_of_a_plain_loop_in_file_order(model, sources, batch):
    expected = plain(model, sources)
    assert generate(model, small.tokenizer(), sources, max_source=64, batch=batch) == expected
    assert len(set(expected)) > 10


def test_settings_for_summaries_change_no_answer(model, sources):
    expected = plain(model, sources)
    summarizing = copy.deepcopy(model)
    settings = {"num_beams": 4, "no_repeat_ngram_size": 1, "min_length": 8, "length_penalty": 2.0}
    for name, value in settings.items():
        setattr(summarizing.generation_config, name, value)
    assert plain(summarizing, sources) != expected
    assert generate(summarizing, small.tokenizer(), sources, max_source=64) == expected
    assert {name: getattr(summarizing.generation_config, name) for name in settings} == settings


def test_long_sources_are_cut_as_transformers_cuts_them(model, sources):
    expected = plain(model, sources, limit=10)
    assert generate(model, small.tokenizer(), sources, max_source=10) == expected


def test_the_end_of_a_source_can_be_what_stays(model):
    source = "Anna Kovar was born in Rome in 1901"
    ids = small.tokenizer()(source)["input_ids"]
    with torch.no_grad():
        (output,) = model.generate(torch.tensor([[0, *ids[-9:]]]), num_beams=1, do_sample=False)
    expected = small.tokenizer().decode(output, skip_special_tokens=True).strip()
    assert generate(model, small.tokenizer(), [source], max_source=10, keep="end") == [expected]
    assert generate(model, small.tokenizer(), [source], max_source=10) != [expected]


def test_no_sources_have_no_answers(model):
    assert generate(model, small.tokenizer(), [], max_source=10) == []


def test_progress_counts_the_answers(model, sources):
    seen = []
    generate(
        model,
        small.tokenizer(),
        sources[:5],
        max_source=10,
        batch=2,
        progress=lambda done, total, note: seen.append((done, total)),
    )
    assert seen == [(2, 5), (4, 5), (5, 5)]


@pytest.fixture(scope="module")
def chooser():
    """Return a model of preset mini, drawn from a seed, and its tokenizer."""
    tokenizer = train_tokenizer([*SOURCES, *(c for given in CHOICES for c in given)], 300)
    return bart.build("mini", tokenizer, 0).float().eval(), tokenizer


def mean_loss(model, tokenizer, source, choice):
    """Return the mean loss of one choice, by the loss that models are trained with."""
    import torch

    specials = Specials.of(tokenizer, model.config.decoder_start_token_id)
    sources, targets = (tokenize([text], tokenizer) for text in (source, choice))
    pairs = Pairs(specials.wrap(sources, 32), specials.wrap(targets, 16))
    with torch.inference_mode():
        total, count = token_loss(model, collate(pairs, specials.pad, specials.start))
    return float(total) / count


def test_the_chosen_one_has_the_least_mean_training_loss(chooser):
    model, tokenizer = chooser
    expected = [
        min(given, key=lambda choice: mean_loss(model, tokenizer, source, choice))
        for source, given in zip(SOURCES, CHOICES, strict=True)
    ]
    assert rank(model, tokenizer, SOURCES, CHOICES, LIMITS) == expected


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batches_of_any_size_choose_the_same(chooser, batch):
    model, tokenizer = chooser
    whole = rank(model, tokenizer, SOURCES, CHOICES, LIMITS)
    done = []
    limits = replace(LIMITS, batch=batch)
    chosen = rank(
        model, tokenizer, SOURCES, CHOICES, limits, progress=lambda *at: done.append(at[:2])
    )
    assert chosen == whole
    assert done[-1] == (9, 9)


def test_of_equal_choices_the_first_one_is_taken(chooser):
    model, tokenizer = chooser
    chosen = rank(model, tokenizer, ["Bonn"], [("no effect", "no effect")], LIMITS)
    assert chosen == ["no effect"]


def examples(choices=CHOICES):
    return [
        Example(f"q{n}", "g", source, ("more",), choices=given)
        for n, (source, given) in enumerate(zip(SOURCES, choices, strict=True))
    ]


def test_likelihood_answers_with_one_of_the_choices(chooser):
    model, tokenizer = chooser
    params = AnswerParams(keep="start", choose="likelihood")
    spec = Training(precision="fp32")
    predictions = answer(model, tokenizer, examples(), params, spec)
    assert all(given in of for given, of in zip(predictions, CHOICES, strict=True))


def test_likelihood_needs_choices(chooser):
    model, tokenizer = chooser
    params = AnswerParams(keep="start", choose="likelihood")
    bare = examples([*CHOICES[:3], ()])
    with pytest.raises(DataError, match="example 'q3' has no choices"):
        answer(model, tokenizer, bare, params, Training(precision="fp32"))
