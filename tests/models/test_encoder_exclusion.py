"""MAE-LM's exclusion in each family: what is left out changes no state of what is left."""

from __future__ import annotations

import encoders as tiny
import numpy as np
import pytest
import torch

from maskpolicy.models.encoder_exclusion import scattered
from maskpolicy.models.families import family_of
from maskpolicy.training.batching import IGNORE, Pair, Pairs, collate

EVERY = (*tiny.FAMILIES, *tiny.LIKE_THEM)
REMOVED = tuple(
    family for family in EVERY if family_of(tiny.config(family), "encoder").exclusion == "removed"
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
    """Run the encoder on the whole source; nothing attends to what is left out."""
    with torch.no_grad():
        return encoder(input_ids=batch.source, attention_mask=kept.long()).last_hidden_state


@pytest.mark.parametrize(("shown", "attention"), [(0, "eager"), (2, "sdpa")])
@pytest.mark.parametrize("family", EVERY)
def test_visible_states_are_those_of_the_whole_source_without_attention_to_masks(
    family, shown, attention
):
    model = tiny.model(family).base_model
    if attention == "sdpa" and not model._supports_sdpa:
        pytest.skip("the family has no such attention")
    model.set_attn_implementation(attention)
    batch = batch_of(family, shown=shown)
    kept = batch.seen & ~batch.excluded
    plain = reference(model, batch, kept)
    with torch.no_grad():
        found = scattered(model, batch)
    assert torch.allclose(found[kept], plain[kept], atol=2e-5)
    everything = reference(model, batch, batch.seen)
    assert not torch.allclose(found[kept], everything[kept], atol=1e-3)


@pytest.mark.parametrize("family", REMOVED)
def test_the_layers_are_fed_a_shorter_source(family):
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


def test_only_families_without_a_way_to_give_positions_keep_masks_in_the_source():
    assert set(EVERY) - set(REMOVED) == {"mpnet", "deberta"}


def test_a_convolution_reads_the_whole_source():
    model = tiny.model("deberta-v2", conv_kernel_size=3, conv_act="gelu").base_model
    batch = batch_of("deberta-v2")
    kept = batch.seen & ~batch.excluded
    with torch.no_grad():
        found = scattered(model, batch)
    assert torch.allclose(found[kept], reference(model, batch, kept)[kept], atol=2e-5)


@pytest.mark.parametrize("settings", [{"position_buckets": -1}, {"relative_attention": False}])
def test_every_kind_of_position_of_deberta_is_that_of_the_whole_source(settings):
    if "relative_attention" in settings:
        settings = {**settings, "position_biased_input": True, "pos_att_type": None}
    model = tiny.model("deberta-v2", **settings).base_model
    batch = batch_of("deberta-v2")
    kept = batch.seen & ~batch.excluded
    with torch.no_grad():
        found = scattered(model, batch)
    assert torch.allclose(found[kept], reference(model, batch, kept)[kept], atol=2e-5)


@pytest.mark.parametrize("family", EVERY)
def test_an_excluded_position_holds_the_word_embedding_of_the_mask(family):
    model, batch = tiny.model(family).base_model, batch_of(family)
    with torch.no_grad():
        found = scattered(model, batch)[batch.excluded]
    assert found.shape[1] == model.config.hidden_size
    assert (found == found[0]).all()
    rows = model.get_input_embeddings().weight
    if rows.shape[1] == found.shape[1]:
        assert torch.equal(found[0], rows[tiny.tokenizer(family).mask_token_id])


@pytest.mark.parametrize("family", EVERY)
def test_padding_changes_no_state(family):
    model, batch = tiny.model(family).base_model, batch_of(family)
    with torch.no_grad():
        together = scattered(model, batch)
        for row, count in enumerate(batch.seen.sum(1).tolist()):
            alone = type(batch)(
                batch.source[row : row + 1, :count],
                batch.seen[row : row + 1, :count],
                None,
                batch.labels[row : row + 1, :count],
                batch.excluded[row : row + 1, :count],
            )
            assert torch.allclose(scattered(model, alone)[0], together[row, :count], atol=2e-5)
