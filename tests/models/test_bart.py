"""A BART that is built from scratch: conventions, and weights of its seed."""

from __future__ import annotations

import small
import torch

from maskpolicy.models import bart


def test_a_preset_follows_the_conventions_of_bart():
    model = bart.build("mini", small.tokenizer(), seed=0)
    config = model.config
    assert (config.bos_token_id, config.pad_token_id, config.eos_token_id) == (0, 1, 2)
    assert config.decoder_start_token_id == 2
    assert model.generation_config.forced_bos_token_id == 0
    assert model.generation_config.decoder_start_token_id == 2
    assert model.generation_config.forced_eos_token_id is None
    assert config.vocab_size == len(small.tokenizer())
    assert model.lm_head.weight is model.model.shared.weight


def test_an_answer_begins_with_bos_and_is_read_without_it():
    model = bart.build("mini", small.tokenizer(), seed=0)
    output = model.generate(torch.tensor([[0, 9, 2]]), max_new_tokens=4, do_sample=False)
    assert output[0, :2].tolist() == [2, 0]


def test_a_seed_decides_the_weights_and_nothing_else_does():
    def first(seed):
        return bart.build("mini", small.tokenizer(), seed).model.shared.weight

    torch.manual_seed(1)
    one = first(0)
    expected = torch.rand(2)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(first(0), one)
    assert not torch.equal(first(1), one)
