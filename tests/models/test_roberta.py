"""The encoder of its own: MLM and MAE-LM, and the folder that is left."""

from __future__ import annotations

import json

import numpy as np
import pytest
import small
import torch
from transformers import AutoModel

from maskpolicy.config.budgets import Training
from maskpolicy.config.policy_blocks import AT_POSITIONS
from maskpolicy.models import encoders, masked_lm, roberta
from maskpolicy.models.encoder_exclusion import scattered
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.training.batching import IGNORE, Pair, Pairs, collate
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import MaskedSteps
from maskpolicy.types import Denoising

MASK, PAD = 4, 1
SPEC = Training(batch_size=4, micro_tokens=400)


def encoder(**settings):
    """Return an encoder of wide weights and no dropout."""
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return small.roberta(initializer_range=0.3, **plain | settings)


def learner(how, **settings):
    return masked_lm.training_module(encoder(**settings), how, layers=1, seed=0).eval()


def batch_of(*sources, shown=()):
    """A batch in which every <mask> is to be recovered (as 9), and all are excluded but `shown`."""
    pairs = []
    for source in sources:
        ids = np.asarray(source, np.int32)
        masks = ids == MASK
        excluded = masks & ~np.isin(np.arange(len(ids)), shown)
        pairs.append(Pair(ids, np.where(masks, 9, IGNORE), excluded))
    return collate(Pairs.of(pairs), PAD, None)


@pytest.mark.parametrize(
    "source",
    [
        [0, MASK, MASK, 8, 9, 10, 2],
        [0, 8, MASK, 9, MASK, 10, 2],
        [0, 8, 9, 10, MASK, MASK, 2],
    ],
    ids=["beginning", "middle", "end"],
)
def test_removing_equals_masking_out_of_the_attention(source):
    model, batch = encoder(), batch_of(source, [0, MASK, 5, 2])
    kept = batch.seen & ~batch.excluded
    with torch.no_grad():
        plain = model(input_ids=batch.source, attention_mask=kept.long()).last_hidden_state
        assert torch.allclose(scattered(model, batch)[kept], plain[kept], atol=1e-5)


def test_the_encoder_is_fed_a_shorter_sequence():
    model, widths = encoder(), []
    model.encoder.layer[0].register_forward_pre_hook(lambda _, args: widths.append(args[0].shape))
    scattered(model, batch_of([0, 8, MASK, 9, MASK, 10, 2], [0, 8, MASK, 2]))
    assert [tuple(shape[:2]) for shape in widths] == [(2, 5)]


def test_an_excluded_position_holds_the_masks_own_row():
    model = encoder()
    states = scattered(model, batch_of([0, 8, MASK, 9, 2]))
    row = model.embeddings.word_embeddings.weight[MASK]
    assert torch.equal(states[0, 2], row)
    assert not torch.equal(row, model.embeddings.word_embeddings.weight[0])


def test_gradients_reach_the_mask_row():
    model = encoder()
    states = scattered(model, batch_of([0, 8, MASK, 9, 2]))
    (states[0, 2] * torch.arange(16.0)).sum().backward()
    rows = model.embeddings.word_embeddings.weight.grad.abs().sum(1)
    assert rows[MASK] > 0
    assert rows.sum() == rows[MASK]


def test_masks_put_back_are_what_the_encoder_makes_of_them():
    model, source = encoder(), [0, 8, MASK, 9, MASK, 2]
    with torch.no_grad():
        some = scattered(model, batch_of(source, shown=[2]))
        none = scattered(model, batch_of(source))
    row = model.embeddings.word_embeddings.weight[MASK]
    assert not torch.allclose(some[0, 2], row, atol=1e-3)
    assert not torch.allclose(some[0, 1], none[0, 1], atol=1e-4)


@pytest.mark.parametrize("how", [Denoising(), Denoising(mask_exclusion=1.0)], ids=["MLM", "MAE-LM"])
def test_padding_changes_no_loss(how):
    module = learner(how)
    short, long = [0, 8, MASK, 2], [0, 8, 9, MASK, 11, 12, MASK, 14, 2]
    shown = range(9) if not how.mask_exclusion else ()
    with torch.no_grad():
        apart = [masked_lm.token_loss(module, batch_of(one, shown=shown)) for one in (short, long)]
        together = masked_lm.token_loss(module, batch_of(short, long, shown=shown))
    assert torch.allclose(apart[0][0] + apart[1][0], together[0], atol=1e-4)
    assert together[1] == 3


def test_the_loss_is_over_masked_positions_alone():
    module, batch = learner(Denoising()), batch_of([0, 8, MASK, 9, 2], shown=[2])
    with torch.no_grad():
        states = module.encoder(input_ids=batch.source).last_hidden_state[0, 2]
        logits = module.logits(states[None])
        expected = torch.nn.functional.cross_entropy(logits, torch.tensor([9]))
        assert torch.allclose(masked_lm.token_loss(module, batch)[0], expected)


def test_the_decoder_belongs_to_mae_lm_and_stays_at_delta_one():
    assert learner(Denoising()).decoder is None
    for how in (Denoising(mask_exclusion=0.5), Denoising(shallow_decoder=True)):
        decoder = learner(how).decoder
        assert len(decoder.encoder.layer) == 1
        assert {m.p for m in decoder.modules() if isinstance(m, torch.nn.Dropout)} == {0.0}


def test_the_decoder_has_no_dropout_where_the_encoder_has():
    module = learner(Denoising(mask_exclusion=1.0), hidden_dropout_prob=0.5)
    rates = [
        {m.p for m in part.modules() if isinstance(m, torch.nn.Dropout)}
        for part in (module.encoder, module.decoder)
    ]
    assert 0.5 in rates[0]
    assert rates[1] == {0.0}


def test_labels_stand_at_the_masks_and_are_the_hidden_tokens():
    policy = find_plugin("policy", "random").plugin(ratio=0.3)
    marks = Specials.of_encoder(small.tokenizer())
    steps = MaskedSteps(
        small.passages(), policy, AT_POSITIONS, marks, SPEC, MODEL_KINDS["encoder"].pairs
    )
    for number in range(4):
        step = steps(number)
        for batch in step.batches:
            assert batch.decoder is None
            assert torch.equal(batch.labels != IGNORE, batch.source == MASK)
        assert step.units == step.work["hidden_tokens"] == step.work["target_tokens"]
        assert step.units == sum(int((b.labels != IGNORE).sum()) for b in step.batches)


def test_filling_the_labels_in_gives_the_passage():
    marks = Specials.of_encoder(small.tokenizer())
    policy = find_plugin("policy", "random").plugin(ratio=0.5)
    steps = MaskedSteps(
        small.passages(), policy, AT_POSITIONS, marks, SPEC, MODEL_KINDS["encoder"].pairs
    )
    texts = {tuple(passage.tokens.tolist()) for passage in small.passages()}
    for batch in steps(0).batches:
        filled = torch.where(batch.labels == IGNORE, batch.source, batch.labels)
        for row, seen in zip(filled, batch.seen, strict=True):
            assert tuple(row[seen][1:-1].tolist()) in texts


class Everything:
    def select(self, passage, rng):
        return passage.pieces


@pytest.mark.parametrize("how", [AT_POSITIONS, Denoising(mask_exclusion=1.0)])
def test_masks_everything_tells_a_policy_that_leaves_no_token(how):
    marks = Specials.of_encoder(small.tokenizer())
    half = find_plugin("policy", "random").plugin(ratio=0.5)
    for policy, every in ((Everything(), True), (half, False)):
        steps = MaskedSteps(small.passages(), policy, how, marks, SPEC)
        assert steps.masks_everything(steps.spec.steps) == every


def test_what_is_saved_is_the_encoder_alone(tmp_path):
    module = learner(Denoising(mask_exclusion=1.0))
    MODEL_KINDS["encoder"].kept(module).save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    ids = torch.tensor([[0, 8, 9, 2]])
    with torch.no_grad():
        assert torch.equal(loaded(ids).last_hidden_state, module.encoder(ids).last_hidden_state)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "roberta"
    assert not {"mask_exclusion", "decoder_layers", "shallow_decoder"} & set(config)
    assert torch.equal(
        encoders.load(str(tmp_path)).embeddings.word_embeddings.weight,
        module.encoder.embeddings.word_embeddings.weight,
    )


def test_a_preset_takes_its_layers_from_the_block():
    assert roberta.build("mini", small.tokenizer(), 0).config.num_hidden_layers == 4
    one, other = (roberta.build("mini", small.tokenizer(), 0, layers=1) for _ in range(2))
    assert one.config.num_hidden_layers == 1
    assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))
