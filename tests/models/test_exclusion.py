"""MAE-LM: excluded masks change no state of the other tokens, in each family."""

import encoders as tiny
import numpy as np
import pytest
import small
import text_to_text
import torch
from small import MASK

from maskpolicy.core.types import Denoising
from maskpolicy.models import encoders, scratch
from maskpolicy.models.loading import set_attention
from maskpolicy.models.masked_encoder import scattered
from maskpolicy.models.text_to_text import encode
from maskpolicy.models.training.batching import IGNORE, Pair, Pairs, collate

DEBERTAS = (  # whose positions are those of the whole source
    ("deberta-v2", {"position_buckets": -1}),
    (
        "deberta-v2",
        {"relative_attention": False, "position_biased_input": True, "pos_att_type": None},
    ),
    ("deberta-v2", {"conv_kernel_size": 3, "conv_act": "gelu"}),
)


def batch_of(family, *, shown=0):
    """Three masked texts of other lengths; the first `shown` masks of each stay visible."""
    made = tiny.tokenizer(family)
    mask, rng, pairs = made.mask_token_id, np.random.default_rng(0), []
    for length in (23, 31, 9):
        ids = rng.integers(20, len(made), length).astype(np.int32)
        masks = np.sort(rng.choice(np.arange(1, length - 1), length // 2, replace=False))
        ids[[0, -1]] = made.cls_token_id, made.sep_token_id
        ids[masks] = mask
        hidden = np.isin(np.arange(length), masks[shown:])
        pairs.append(Pair(ids, np.where(ids == mask, 9, IGNORE), hidden))
    return collate(Pairs.of(pairs), made.pad_token_id, None)


def reference(encoder, batch, kept):
    """Run the encoder on the whole source; tokens attend to `kept` ones only."""
    with torch.no_grad():
        return encoder(input_ids=batch.source, attention_mask=kept.long()).last_hidden_state


@pytest.mark.parametrize(
    ("family", "settings", "shown", "attention"),
    [
        *((family, {}, 0, "eager") for family in tiny.EVERY),
        *((family, {}, 2, "sdpa") for family in ("bert", "roberta", "modernbert", "gte")),
        *((family, settings, 2, "eager") for family, settings in DEBERTAS),
    ],
)
def test_visible_states_equal_those_without_attention_to_masks(family, settings, shown, attention):
    model = tiny.model(family, **settings).base_model
    model.set_attn_implementation(attention)
    batch = batch_of(family, shown=shown)
    kept = batch.seen & ~batch.excluded
    plain = reference(model, batch, kept)
    with torch.no_grad():
        found = scattered(model, batch)
    assert torch.allclose(found[kept], plain[kept], atol=2e-5)
    everything = reference(model, batch, batch.seen)
    assert not torch.allclose(found[kept], everything[kept], atol=1e-3)


@pytest.mark.parametrize("family", ["bert", "albert", "deberta-v2", "modernbert"])
def test_the_layers_read_a_shorter_source(family):
    model, widths = tiny.model(family).base_model, []
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, given: widths.append(given[0].shape))
    batch = batch_of(family)
    scattered(model, batch)
    longest = int((batch.seen & ~batch.excluded).sum(1).max())
    inside = [shape for shape in widths if len(shape) == 3 and shape[0] == len(batch.source)]
    lengths = {shape[1] for shape in inside}
    assert longest in lengths
    projected = lengths - {longest}  # the word embeddings of all positions
    assert projected <= {batch.source.shape[1]}
    assert sum(shape[1] != longest for shape in inside) <= 1


@pytest.mark.parametrize("family", ["bert", "electra", "albert", "mpnet", "deberta"])
def test_an_excluded_position_holds_the_word_embedding_of_the_mask(family):
    model, batch = tiny.model(family).base_model, batch_of(family)
    with torch.no_grad():
        found = scattered(model, batch)[batch.excluded]
    assert found.shape[1] == model.config.hidden_size
    assert (found == found[0]).all()
    rows = model.get_input_embeddings().weight
    if rows.shape[1] == found.shape[1]:
        assert torch.equal(found[0], rows[tiny.tokenizer(family).mask_token_id])


@pytest.fixture(scope="module")
def model():
    return small.bart(encoder_layers=2, init_std=0.3, attn_implementation="eager").eval()


def bart_batch(*sources):
    """A batch in which every <mask> is excluded."""
    return small.batch([(ids, [0, 7, 2], small.excluding(ids)) for ids in sources], 2)


def test_barts_encoder_reads_a_shorter_source(model):
    widths = []
    layer = model.model.encoder.layers[0]
    hook = layer.register_forward_pre_hook(lambda module, args: widths.append(args[0].shape[1]))
    encode(model, bart_batch([0, 8, MASK, 9, MASK, 10, 2], [0, 8, MASK, 2]))
    hook.remove()
    assert widths == [5]


def test_the_mask_of_an_excluded_position_gets_no_dropout(model):
    batch = bart_batch([0, 8, MASK, 9, 2])
    encoder = model.model.encoder
    with torch.no_grad():
        plain = encode(model, batch)
        encoder.dropout = 0.5
        dropped = encode(model.train(), batch)
        encoder.dropout = 0.0
        model.eval()
    assert torch.equal(dropped[0, 2], plain[0, 2])
    assert not torch.equal(dropped[0, 1], plain[0, 1])


def test_an_attention_that_cannot_read_the_masks_of_a_model_is_replaced():
    relative = scratch.build_encoder("mini", small.tokenizer(), 0, relative_positions=True)
    windows = encoders.training_module(
        tiny.model("modernbert"), Denoising(mask_exclusion=1.0), 1, 0
    )
    for module, body in ((relative, relative), (windows, windows.encoder)):
        set_attention(module, "flex_attention")
        assert body.config._attn_implementation == "sdpa" and not body._supports_flash_attn


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_layers_that_are_dropped_may_be_the_first(share):
    model = text_to_text.model("nllb", encoder_layerdrop=share).train()
    hidden = np.array([False, False, True, False, False])
    batch = small.batch([([2, 5, 6, 7, 3], [5, 3], hidden)] * 2, 1)
    for seed in range(8):
        torch.manual_seed(seed)
        assert encode(model, batch).isfinite().all()
