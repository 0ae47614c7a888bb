from __future__ import annotations

import numpy as np
import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.models import crossentropy
from maskpolicy.models.text_to_text_exclusion import encode
from maskpolicy.models.text_to_text_loss import token_loss
from maskpolicy.training.batching import Pair, Pairs, collate
from maskpolicy.training.specials import Specials
from maskpolicy.types import Denoising, Passage, as_spans

MASK, PAD, START = 4, 1, 2


@pytest.fixture(scope="module")
def model():
    return small.bart(encoder_layers=2, init_std=0.3, attn_implementation="eager").eval()


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


def test_the_decoder_attends_no_padding(model):
    short, long = [0, 8, MASK, 2], [0, 8, 9, MASK, 11, 12, MASK, 14, 2]
    with torch.no_grad():
        apart = sum(token_loss(model, batch_of(one))[0] for one in (short, long))
        together = token_loss(model, batch_of(short, long))[0]
    assert torch.allclose(apart, together, atol=1e-5)


def test_an_excluded_position_holds_the_input_layer_s_mask(model):
    batch = batch_of([0, 8, MASK, 9, 2])
    encoder = model.model.encoder
    with torch.no_grad():
        row = model.model.shared.weight[MASK] * encoder.embed_tokens.embed_scale
        expected = encoder.layernorm_embedding(row + encoder.embed_positions.weight[2 + 2])
        assert torch.allclose(encode(model, batch)[0, 2], expected, atol=1e-6)


def test_the_mask_of_an_excluded_position_gets_no_dropout(model):
    batch = batch_of([0, 8, MASK, 9, 2])
    encoder = model.model.encoder
    with torch.no_grad():
        plain = encode(model, batch)
        encoder.dropout = 0.5
        dropped = encode(model.train(), batch)
        encoder.dropout = 0.0
        model.eval()
    assert torch.equal(dropped[0, 2], plain[0, 2])
    assert not torch.equal(dropped[0, 1], plain[0, 1])


def test_gradients_reach_the_mask_row_through_excluded_positions(model):
    model.zero_grad()
    states = encode(model, batch_of([0, 8, MASK, 9, 2]))
    (states[0, 2] * torch.arange(16.0)).sum().backward()
    rows = model.model.shared.weight.grad.abs().sum(1)
    assert rows[MASK] > 0
    assert rows.sum() == rows[MASK]


def test_the_decoder_learns_from_excluded_positions(model):
    model.zero_grad()
    batch = batch_of([0, 8, MASK, 9, 2])
    states = encode(model, batch).detach().requires_grad_()
    model.model(
        encoder_outputs=(states,), attention_mask=batch.seen, decoder_input_ids=batch.decoder
    ).last_hidden_state.pow(2).sum().backward()
    assert (states.grad[0].abs().sum(1) > 0).all()


def test_masks_put_back_are_seen_by_the_encoder(model):
    source = [0, 8, MASK, 9, MASK, 2]
    with torch.no_grad():
        some = encode(model, batch_of(source, exclude=[4]))
        none = encode(model, batch_of(source))
    assert not torch.allclose(some[0, 1], none[0, 1], atol=1e-4)


def losses(model, share):
    """The losses of one masked passage: ours at a fraction, and of the model's own forward."""
    tokens = np.arange(5, 15, dtype=np.int32)
    pieces = as_spans(np.stack([np.arange(10), np.arange(1, 11)], 1))
    passage = Passage("p", "", tokens, as_spans([]), pieces, as_spans([[0, 10]]))
    how = Denoising(mask_exclusion=share)
    written = denoising_pairs([passage], [as_spans([[2, 4], [7, 8]])], how, MASK, 0, [0])
    specials = Specials(0, 2, PAD, MASK, START)
    batch = collate(specials.pairs(written, Training()), PAD, START)
    with torch.no_grad():
        states = model.model(
            input_ids=batch.source,
            attention_mask=batch.seen,
            decoder_input_ids=batch.decoder,
            use_cache=False,
        ).last_hidden_state[0]
        head, bias = model.lm_head.weight, model.final_logits_bias[0]
        plain = crossentropy.summed(states, head, bias, batch.labels[0])
        return token_loss(model, batch)[0], plain


def test_fraction_zero_is_the_plain_path_bit_for_bit(model):
    assert torch.equal(*losses(model, 0.0))
    assert not torch.equal(*losses(model, 1.0))


def test_with_no_token_excluded_the_shorter_path_is_the_plain_encoder(model):
    batch = batch_of([0, 8, MASK, 2], [0, 8, 9, MASK, 11, 12, MASK, 14, 2], exclude=[])
    assert batch.excluded is None
    encoder = model.model.encoder
    with torch.no_grad():
        plain = encoder(input_ids=batch.source, attention_mask=batch.seen.long())
        assert torch.equal(encode(model, batch)[batch.seen], plain.last_hidden_state[batch.seen])


def test_a_passage_hidden_whole_keeps_bos_and_eos(model):
    with torch.no_grad():
        states = encode(model, batch_of([0, MASK, MASK, 2]))
    assert torch.isfinite(states).all()
