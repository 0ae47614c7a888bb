from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from maskpolicy.batching import Pair, Pairs, collate
from maskpolicy.budgets import Training
from maskpolicy.errors import ConfigError
from maskpolicy.exclusion import encode
from maskpolicy.masking import hide_all
from maskpolicy.model import token_loss
from maskpolicy.objectives import Specials
from maskpolicy.types import How, Passage, as_spans

MASK, PAD, START = 4, 1, 2


@pytest.fixture(scope="module")
def model():
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=30,
        d_model=16,
        encoder_layers=2,
        decoder_layers=1,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        max_position_embeddings=32,
        attn_implementation="eager",
        dropout=0.0,
        init_std=0.3,
    )
    return BartForConditionalGeneration(config).eval()


def batch_of(*sources, exclude=True):
    """A batch in which every <mask> is excluded, or those whose index is in `exclude`."""
    pairs = []
    for source in sources:
        ids = np.asarray(source, np.int32)
        masks = ids == MASK
        if exclude is not True:
            masks &= np.isin(np.arange(len(ids)), exclude)
        pairs.append(Pair(ids, np.asarray([0, 7, 2], np.int32), masks))
    return collate(Pairs.of(pairs), PAD, START)


def reference(model, batch):
    """Keep the excluded tokens, but hide them from the encoder's attention."""
    encoder = model.model.encoder
    kept = (batch.seen & ~batch.excluded).long()
    return encoder(input_ids=batch.source, attention_mask=kept).last_hidden_state


@pytest.mark.parametrize(
    "source",
    [
        [0, MASK, MASK, 8, 9, 10, 2],
        [0, 8, MASK, 9, MASK, 10, 2],
        [0, 8, 9, 10, MASK, MASK, 2],
    ],
    ids=["beginning", "middle", "end"],
)
def test_removing_equals_masking_out_of_the_attention(model, source):
    batch = batch_of(source)
    kept = batch.seen & ~batch.excluded
    with torch.no_grad():
        assert torch.allclose(encode(model, batch)[kept], reference(model, batch)[kept], atol=1e-5)


def test_the_encoder_is_fed_a_shorter_sequence(model):
    widths = []
    layer = model.model.encoder.layers[0]
    hook = layer.register_forward_pre_hook(lambda module, args: widths.append(args[0].shape[1]))
    encode(model, batch_of([0, 8, MASK, 9, MASK, 10, 2], [0, 8, MASK, 2]))
    hook.remove()
    assert widths == [5]


def test_padding_changes_no_state(model):
    short, long = [0, 8, MASK, 2], [0, 8, 9, MASK, 11, 12, MASK, 14, 2]
    with torch.no_grad():
        alone = encode(model, batch_of(short))
        together = encode(model, batch_of(short, long))
    assert torch.allclose(alone[0], together[0, : len(short)], atol=1e-5)


def test_an_excluded_position_holds_the_input_layer_s_mask(model):
    batch = batch_of([0, 8, MASK, 9, 2])
    encoder = model.model.encoder
    with torch.no_grad():
        row = model.model.shared.weight[MASK] * encoder.embed_tokens.embed_scale
        expected = encoder.layernorm_embedding(row + encoder.embed_positions.weight[2 + 2])
        assert torch.allclose(encode(model, batch)[0, 2], expected, atol=1e-6)


def test_gradients_reach_the_mask_row(model):
    model.zero_grad()
    token_loss(model, batch_of([0, 8, MASK, 9, 2]))[0].backward()
    assert model.model.shared.weight.grad[MASK].abs().sum() > 0


def test_masks_put_back_are_seen_by_the_encoder(model):
    source = [0, 8, MASK, 9, MASK, 2]
    with torch.no_grad():
        some = encode(model, batch_of(source, exclude=[4]))
        none = encode(model, batch_of(source))
    assert not torch.allclose(some[0, 1], none[0, 1], atol=1e-4)


def test_fraction_zero_is_the_plain_path_bit_for_bit(model):
    tokens = np.arange(5, 15, dtype=np.int32)
    pieces = as_spans(np.stack([np.arange(10), np.arange(1, 11)], 1))
    passage = Passage("p", "", tokens, as_spans([]), pieces, as_spans([[0, 10]]))
    spans = as_spans([[2, 4], [7, 8]])
    specials, spec = Specials(0, 2, PAD, MASK, START), Training()
    with torch.no_grad():
        losses = []
        for how in (How(), replace(How(), mask_exclusion=0.0)):
            pairs = specials.pairs(hide_all([passage], [spans], how, MASK, 0, [0]), spec)
            losses.append(token_loss(model, collate(pairs, PAD, START))[0])
        how = How(mask_exclusion=1.0)
        excluded = specials.pairs(hide_all([passage], [spans], how, MASK, 0, [0]), spec)
        other = token_loss(model, collate(excluded, PAD, START))[0]
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], other)


def test_a_passage_hidden_whole_keeps_bos_and_eos(model):
    with torch.no_grad():
        states = encode(model, batch_of([0, MASK, MASK, 2]))
    assert torch.isfinite(states).all()


def test_an_encoder_without_learned_positions_is_refused(model):
    class Other(torch.nn.Module):
        def get_encoder(self):
            return torch.nn.Linear(1, 1)

    with pytest.raises(ConfigError, match="no learned positions"):
        encode(Other(), batch_of([0, MASK, 2]))
