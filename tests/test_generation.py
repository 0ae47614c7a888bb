"""Answers in batches by length are those of a plain loop, one question at a time."""

from __future__ import annotations

import random

import pytest
import small
import torch

from maskpolicy.generation import generate

WORDS = " ".join(small.TEXTS).split()


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
