"""MLM and MAE-LM on each family: one step of training, its loss and its gradients."""

from __future__ import annotations

import encoders as tiny
import pytest
import small
import torch

from maskpolicy.config.budgets import Training
from maskpolicy.config.policy_blocks import AT_POSITIONS
from maskpolicy.corpus.passages import Document, Passages, build_passages
from maskpolicy.errors import ConfigError
from maskpolicy.models import encoders, masked_lm
from maskpolicy.models.attention_and_dropout import set_dropout
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.training.batching import IGNORE
from maskpolicy.training.specials import Specials
from maskpolicy.training.steps import MaskedSteps
from maskpolicy.training.weights import Weights
from maskpolicy.types import Denoising

EVERY = (*tiny.FAMILIES, *tiny.LIKE_THEM)
SPEC = Training(batch_size=4, micro_tokens=400, max_source=40)
MLM, MAE = AT_POSITIONS, Denoising(**{**vars(AT_POSITIONS), "mask_exclusion": 1.0})
DEEP = Denoising(**{**vars(AT_POSITIONS), "shallow_decoder": True})


def batches(family, how=MLM):
    """Return the micro-batches of one step of masked passages."""
    made = tiny.tokenizer(family)
    documents = [Document(f"d{index}", text) for index, text in enumerate(small.TEXTS)]
    passages = Passages(build_passages(documents, made, words=12))
    policy = find_plugin("policy", "random").plugin(ratio=0.3)
    marks = Specials.of_encoder(made)
    return MaskedSteps(passages, policy, how, marks, SPEC, MODEL_KINDS["encoder"].pairs)(0).batches


def module_of(family, how=MLM, head="own", **settings):
    model = tiny.model(family, **settings)
    return masked_lm.training_module(model if head == "own" else model.base_model, how, 1, seed=0)


@pytest.mark.parametrize("family", EVERY)
def test_the_loss_is_that_of_the_stock_model_over_masked_positions(family):
    module, model = module_of(family).eval(), tiny.model(family)
    for batch in batches(family):
        labels = batch.labels.long()
        with torch.no_grad():
            total, count = masked_lm.token_loss(module, batch)
            stock = model(input_ids=batch.source, attention_mask=batch.seen.long(), labels=labels)
        assert count == int((labels != IGNORE).sum())
        assert total.item() / count == pytest.approx(stock.loss.item(), rel=1e-4)


@pytest.mark.parametrize("head", ["own", "new"])
@pytest.mark.parametrize("how", [MLM, MAE, DEEP], ids=["MLM", "MAE-LM", "delta 1"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_step_has_a_finite_loss_whose_gradient_reaches_body_and_head(family, how, head):
    module = module_of(family, how, head).train()
    module.set_attn_implementation("eager")
    for batch in batches(family, how):
        masked_lm.token_loss(module, batch)[0].backward()
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    assert {name for name, p in trained.items() if p.grad is None or not p.grad.any()} == set()
    assert all(p.grad.isfinite().all() for p in trained.values())


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_training_lowers_the_loss_and_its_model_opens_with_stock_classes(family, tmp_path):
    from transformers import AutoModel

    module = module_of(family).train()
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        total = sum(masked_lm.token_loss(module, batch)[0] for batch in batches(family))
        total.backward()
        optimizer.step()
        losses.append(total.item())
    assert losses[-1] < 0.9 * losses[0]
    model = module.eval().saved
    model.save_pretrained(tmp_path)
    ids = batches(family)[0].source
    with torch.no_grad():
        stock = AutoModel.from_pretrained(tmp_path).eval()(input_ids=ids).last_hidden_state
        assert torch.equal(stock, model.base_model(input_ids=ids).last_hidden_state)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_what_mae_lm_saves_is_the_body_alone(family):
    own, new = module_of(family, MAE), module_of(family, MAE, head="new")
    assert not encoders.is_masked_lm(own.saved)
    assert own.saved is own.encoder
    assert new.saved is new.encoder
    assert encoders.is_masked_lm(module_of(family).saved)


def test_a_pooler_is_neither_trained_nor_decayed():
    from transformers import AutoModel

    model = tiny.model("bert")
    model.bert.pooler = AutoModel.from_config(tiny.config("bert")).pooler
    module = masked_lm.training_module(model, MLM, 1, seed=0)
    assert not any("pooler" in name for name in Weights(module, bf16=False).names)
    assert any("pooler" in name for name in module.saved.state_dict())


def test_the_head_of_a_released_deberta_reads_masked_positions_alone():
    module = module_of("deberta-v2", legacy=False).eval()
    model, (batch, *_) = module.model, batches("deberta-v2")
    seen = []
    model.lm_predictions.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape))
    kept = batch.labels != IGNORE
    with torch.no_grad():
        found = module.scores(batch, kept)
        stock = model(input_ids=batch.source, attention_mask=batch.seen.long()).logits[kept]
    assert torch.allclose(found, stock, atol=1e-5)
    assert seen[0][:-1] == (int(kept.sum()),)
    assert encoders.is_masked_lm(module_of("deberta-v2", DEEP, legacy=False).model)


def test_a_family_without_a_row_is_trained_but_excludes_no_mask(tmp_path):
    from transformers import AutoConfig, AutoModelForMaskedLM

    shape = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32}
    config = AutoConfig.for_model("mobilebert", **shape, num_attention_heads=2, embedding_size=16)
    model = AutoModelForMaskedLM.from_config(config)
    module = masked_lm.training_module(model, MLM, 1, seed=0)
    assert encoders.is_masked_lm(module.saved)
    with pytest.raises(ConfigError, match="mobilebert models cannot do it: set it to 0"):
        masked_lm.training_module(model, MAE, 1, seed=0)


@pytest.mark.parametrize("family", ["modernbert", "eurobert"])
def test_rotary_angles_are_not_rounded_in_bf16(family):
    module = module_of(family)
    before = {name: b.clone() for name, b in module.named_buffers() if name.endswith("inv_freq")}
    weights = Weights(module, bf16=True)
    buffers = dict(module.named_buffers())
    assert before
    assert all(torch.equal(buffers[name], value) for name, value in before.items())
    assert {p.dtype for p in module.parameters()} == {torch.bfloat16}
    for batch in batches(family):
        assert masked_lm.token_loss(module, batch)[0].isfinite()
    weights.release()
    assert all(torch.equal(dict(module.named_buffers())[n], value) for n, value in before.items())


@pytest.mark.parametrize("how", [MLM, MAE], ids=["MLM", "MAE-LM"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_each_family_trains_in_bf16(family, how):
    module = module_of(family, how)
    Weights(module, bf16=True)
    for batch in batches(family, how):
        total, _ = masked_lm.token_loss(module, batch)
        total.backward()
        assert total.isfinite()


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_dropout_can_be_set(family):
    model = tiny.model(family)
    set_dropout(model, 0.5)
    torch.manual_seed(0)
    ids = batches(family)[0].source
    with torch.no_grad():
        one, other = (model.train().base_model(input_ids=ids).last_hidden_state for _ in "ab")
        assert not torch.allclose(one, other, atol=1e-3)
        model.eval()
        same = [model.base_model(input_ids=ids).last_hidden_state for _ in "ab"]
    assert torch.equal(*same)


@pytest.mark.parametrize("family", ["deberta-v2", "mpnet"])
def test_a_family_with_eager_attention_alone_says_so_once(family, caplog):
    module = module_of(family, MAE)
    with caplog.at_level("WARNING"):
        module.set_attn_implementation("sdpa")
    assert caplog.text.count("has no sdpa: eager is used") == 1
    assert module.encoder.config._attn_implementation == "eager"
    assert module.decoder.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("how", "head", "is_new"), [(MLM, "own", False), (MAE, "own", True), (MLM, "new", True)]
)
def test_a_model_with_its_own_head_can_guess_before_it_is_trained(how, head, is_new):
    model = tiny.model("bert") if head == "own" else tiny.model("bert").base_model
    assert MODEL_KINDS["encoder"].has_new_head(model, how) == is_new


def test_logits_of_labels_come_row_by_row():
    module, (batch, *_) = module_of("bert").eval(), batches("bert")
    with torch.no_grad():
        stock = module.model(input_ids=batch.source, attention_mask=batch.seen.long()).logits
        found = MODEL_KINDS["encoder"].label_logits(module, batch)
    assert torch.allclose(found, stock[batch.labels != IGNORE], atol=1e-5)
