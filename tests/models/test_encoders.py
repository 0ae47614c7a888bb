"""Encoders of each family: loaded, and pre-trained by MLM and as MAE-LM."""

import json
import logging
from pathlib import Path

import encoders as tiny
import pytest
import small
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Denoising, Detection
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import ModelBlock
from maskpolicy.experiment.policy_blocks import AT_POSITIONS
from maskpolicy.models import encoders, scratch
from maskpolicy.models.families import FAMILIES, limits
from maskpolicy.models.loading import set_attention
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.models.training.batching import IGNORE
from maskpolicy.models.training.optimization import Weights
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.plugins.discovery import find_plugin

IDS = torch.tensor([[5, 8, 9, 12, 7], [6, 9, 8, 11, 5]])


def states(model):
    with torch.no_grad():
        return model(input_ids=IDS).last_hidden_state


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits


@pytest.mark.parametrize("family", tiny.EVERY)
def test_a_head_that_was_pre_trained_is_loaded_with_the_body(tmp_path, family):
    folder = tiny.saved(family, tmp_path)
    stock, found = AutoModelForMaskedLM.from_pretrained(folder), encoders.load(str(folder))
    assert encoders.is_masked_lm(found)
    assert type(found) is type(stock)
    assert torch.equal(logits(found), logits(stock))


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert", "roberta"])
def test_stock_classes_load_what_own_new_and_auto_keep_of_a_model(tmp_path, family):
    """`auto` keeps the head of all families but RoBERTa's three."""
    folder = str(tiny.saved(family, tmp_path / "it"))
    kept = family != "roberta"
    assert encoders.is_masked_lm(encoders.load(folder, head="auto")) == kept
    for head, factory in (("own", AutoModelForMaskedLM), ("new", AutoModel)):
        model = encoders.load(folder, head=head).eval()
        assert encoders.is_masked_lm(model) == (head == "own")
        model.save_pretrained(tmp_path / head)
        names = json.loads((tmp_path / head / "config.json").read_text())["architectures"]
        assert names == [type(model).__name__]
        again = factory.from_pretrained(tmp_path / head).eval()
        assert torch.equal(states(again.base_model), states(model.base_model))
        assert type(encoders.load(str(tmp_path / head))) is type(model)


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_a_pooler_that_was_pre_trained_is_kept_beside_the_head(tmp_path, family):
    folder = tiny.saved(family, tmp_path / "it")
    body = AutoModel.from_pretrained(folder)  # with a pooler of its own
    weights = load_file(folder / "model.safetensors")
    pooler = {f"{family}.{name}": t for name, t in body.state_dict().items() if "pooler" in name}
    assert pooler
    save_file({**weights, **pooler}, folder / "model.safetensors", {"format": "pt"})
    model = encoders.load(str(folder), head="auto")
    model.save_pretrained(tmp_path / "again")
    for found in (
        encoders.load(str(tmp_path / "again")),
        AutoModel.from_pretrained(tmp_path / "again"),
    ):
        for name, tensor in pooler.items():
            assert torch.equal(found.base_model.state_dict()[name.split(".", 1)[1]], tensor)


@pytest.mark.parametrize(
    ("family", "saved", "says"),
    [
        ("bert", AutoModel, ""),
        ("electra", AutoModelForPreTraining, " (they are a discriminator's)"),
    ],
)
def test_without_a_head_one_line_says_that_a_new_one_is_trained(
    tmp_path, family, saved, says, caplog
):
    saved.from_config(tiny.config(family)).save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = encoders.load(str(tmp_path), head="auto")
    assert not encoders.is_masked_lm(found)
    assert f"no head for masked language modelling{says}: a new one is trained" in caplog.text
    with pytest.raises(ConfigError, match="no head for masked language modelling: set"):
        encoders.load(str(tmp_path), head="own")


def test_the_head_of_a_released_deberta_is_found(tmp_path):
    model = tiny.model("deberta-v2", legacy=False)
    model.save_pretrained(tmp_path / "it")
    path = tmp_path / "it" / "config.json"  # as Microsoft released them: no word of `legacy`
    config = json.loads(path.read_text())
    del config["legacy"]
    path.write_text(json.dumps(config))
    found = encoders.load(str(tmp_path / "it"), head="auto")
    assert encoders.is_masked_lm(found)
    found.save_pretrained(tmp_path / "again")
    again = AutoModelForMaskedLM.from_pretrained(tmp_path / "again")
    assert torch.equal(logits(again), logits(model))
    assert encoders.is_masked_lm(encoders.load(str(tmp_path / "again")))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_the_head_of_an_untied_model_is_found_with_one_bias(tmp_path, family):
    model = tiny.model(family, tie_word_embeddings=False)
    for name, bias in model.named_parameters():
        bias.data += name.endswith(("predictions.bias", "head.bias", "decoder.bias"))
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    (once,) = (name for name in weights if name.endswith(".decoder.bias"))
    del weights[once]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    assert torch.equal(logits(encoders.load(str(tmp_path), head="own")), logits(model))


def test_a_text_to_text_model_and_a_decoder_raise(tmp_path):
    small.bart().save_pretrained(tmp_path / "bart")
    with pytest.raises(ConfigError, match="bart is a text-to-text model: leave"):
        encoders.load(str(tmp_path / "bart"))
    config = AutoConfig.for_model("gpt2", vocab_size=9, n_embd=8, n_layer=1, n_head=1)
    AutoModel.from_config(config).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(ConfigError, match="gpt2 is not an encoder that AutoModelForMaskedLM loads"):
        encoders.load(str(tmp_path / "gpt2"))


@pytest.mark.parametrize(("family", "most"), [("bert", 66), ("roberta", 64), ("mpnet", 64)])
def test_the_longest_source_is_read_by_the_model(family, most):
    model = tiny.model(family)
    assert limits(model.config) == (most, most)
    ids = torch.full((1, most), 7)
    with torch.no_grad():
        assert model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.isfinite().all()


@pytest.mark.parametrize(("pad", "most"), [(0, 66), (1, 64)])
def test_a_family_without_a_row_has_the_limit_of_its_positions(pad, most):
    config = AutoConfig.for_model("longformer", max_position_embeddings=66, pad_token_id=pad)
    assert limits(config)[0] == most


@pytest.mark.parametrize("words", [3, 700])
def test_a_padding_at_the_end_of_the_vocabulary_leaves_as_many_positions(words):
    made = scratch.train_tokenizer(small.TEXTS, 400, "bpe", "bert")
    made.add_tokens([f"word{number}" for number in range(words)])
    made.add_special_tokens({"pad_token": "<own pad>"})
    block = ModelBlock(name="roberta", kind="encoder", width=32)
    config = scratch.config_of(block)
    assert limits(scratch.build(config, made, 0).config)[0] == 512


def test_the_docs_have_every_family():
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "development" / "models.md").read_text(encoding="utf-8")
    rows = [line.replace("`", "") for line in page.splitlines() if line.startswith("| ")]
    for row in FAMILIES:
        types = ", ".join(row.types) or "all others"
        facts = (types, row.masks) if row.kind == "encoder" else (row.masks, row.start)
        facts = (row.name, *facts, row.ends, row.positions, row.exclusion)
        assert f"| {' | '.join(facts)} |" in rows


SPEC = Training(batch_size=4, micro_tokens=400, max_source=40)
MLM, MAE = AT_POSITIONS, Denoising(**{**vars(AT_POSITIONS), "mask_exclusion": 1.0})
DEEP = Denoising(**{**vars(AT_POSITIONS), "shallow_decoder": True})
RTD = Denoising(**{**vars(AT_POSITIONS), "replaced_token_detection": Detection()})


def steps(family, how=MLM):
    """Return steps of masked passages."""
    made = tiny.tokenizer(family)
    policy = find_plugin("policy", "random").plugin(ratio=0.3)
    marks, passages = Specials.of_encoder(made), small.passages(made)
    return MaskedSteps(passages, policy, how, marks, SPEC, MODEL_KINDS["encoder"].pairs)


def batches(family, how=MLM):
    """Return the micro-batches of one step of masked passages."""
    return steps(family, how)(0).batches


def module_of(family, how=MLM, head="own", **settings):
    model = tiny.model(family, **settings)
    return encoders.training_module(model if head == "own" else model.base_model, how, 1, seed=0)


@pytest.mark.parametrize("family", tiny.EVERY)
def test_the_loss_equals_that_of_the_stock_model(family):
    module, model = module_of(family).eval(), tiny.model(family)
    for batch in batches(family):
        labels = batch.labels.long()
        with torch.no_grad():
            total, count = encoders.token_loss(module, batch)
            stock = model(input_ids=batch.source, attention_mask=batch.seen.long(), labels=labels)
        assert count == int((labels != IGNORE).sum())
        assert total.item() / count == pytest.approx(stock.loss.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("family", "how", "settings", "is_alone"),
    [
        *((family, MLM, {}, True) for family in ("bert", "distilbert", "modernbert", "eurobert")),
        ("albert", MLM, {}, False),  # its layers are one
        ("roberta", MAE, {}, True),
        ("bert", MLM, {"chunk_size_feed_forward": 5}, False),
        ("deberta-v2", MLM, {"conv_kernel_size": 3}, False),
    ],
)
def test_without_gradients_the_last_feed_forward_block_reads_labelled_tokens_alone(
    family, how, settings, is_alone
):
    module, (batch,) = module_of(family, how, **settings).eval(), batches(family, how)
    whole, read = module.label_logits(batch), []
    for part in (module.decoder or module.encoder).modules():
        if isinstance(part, torch.nn.Linear):
            part.register_forward_hook(
                lambda _, inputs, out: read.append(inputs[0][..., 0].numel())
            )
    with torch.no_grad():
        torch.testing.assert_close(module.label_logits(batch), whole, rtol=1e-5, atol=1e-5)
    assert (len(batch.places) in read) == is_alone
    assert batch.source.numel() in read or settings


@pytest.mark.parametrize(
    ("family", "is_tied"), [*((name, True) for name in tiny.FAMILIES), ("roberta", False)]
)
def test_a_new_head_is_saved_with_the_body_unless_it_reads_a_decoder(family, is_tied, tmp_path):
    module = module_of(family, head="new", tie_word_embeddings=is_tied).eval()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight += 0.1 * torch.randn(weight.shape) if "encoder" not in name else 0
    module.saved.save_pretrained(tmp_path)
    stock, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    (batch,) = batches(family)
    seen, labels = batch.seen.long(), batch.labels != IGNORE
    with torch.no_grad():
        logits = stock.eval()(input_ids=batch.source, attention_mask=seen).logits[labels]
        assert torch.allclose(logits, module.label_logits(batch), atol=1e-5)
    for how in (MAE, RTD):
        assert not encoders.is_masked_lm(module_of(family, how, head="new").saved)


@pytest.mark.parametrize(
    ("family", "how", "head"),
    [
        *((family, how, "own") for family in tiny.FAMILIES for how in ("MLM", "MAE-LM", "ELECTRA")),
        *((family, "delta 1", "new") for family in ("roberta", "albert", "modernbert")),
    ],
)
def test_a_step_has_a_finite_loss_whose_gradient_reaches_body_and_head(family, how, head):
    how = {"MLM": MLM, "MAE-LM": MAE, "ELECTRA": RTD, "delta 1": DEEP}[how]
    module = module_of(family, how, head).train()
    set_attention(module, "eager")
    for batch in batches(family, how):
        encoders.token_loss(module, batch)[0].backward()
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    assert {name for name, p in trained.items() if p.grad is None or not p.grad.any()} == set()
    assert all(p.grad.isfinite().all() for p in trained.values())


def test_a_pooler_is_neither_trained_nor_decayed():
    model = tiny.model("bert")
    model.bert.pooler = AutoModel.from_config(tiny.config("bert")).pooler
    module = encoders.training_module(model, MLM, 1, seed=0)
    assert not any("pooler" in name for name in Weights(module, bf16=False).names)
    assert any("pooler" in name for name in module.saved.state_dict())


def test_longformers_global_projections_are_neither_trained_nor_decayed():
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    config = AutoConfig.for_model("longformer", **sizes, intermediate_size=16, attention_window=4)
    module = encoders.training_module(AutoModelForMaskedLM.from_config(config), MLM, 1, seed=0)
    names = Weights(module, bf16=False).names
    assert not any("_global" in name for name in names) and any("query" in name for name in names)


def test_a_family_without_a_row_is_trained_but_excludes_no_mask(tmp_path):
    shape = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32}
    config = AutoConfig.for_model("mobilebert", **shape, num_attention_heads=2, embedding_size=16)
    model = AutoModelForMaskedLM.from_config(config)
    module = encoders.training_module(model, MLM, 1, seed=0)
    assert encoders.is_masked_lm(module.saved)
    with pytest.raises(ConfigError, match="mobilebert models cannot do it: set it to 0"):
        encoders.training_module(model, MAE, 1, seed=0)


def test_rotary_angles_are_not_rounded_in_bf16():
    module = module_of("modernbert")
    before = {name: b.clone() for name, b in module.named_buffers() if name.endswith("inv_freq")}
    weights = Weights(module, bf16=True)
    buffers = dict(module.named_buffers())
    assert before
    assert all(torch.equal(buffers[name], value) for name, value in before.items())
    assert {p.dtype for p in module.parameters()} == {torch.bfloat16}
    for batch in batches("modernbert"):
        assert encoders.token_loss(module, batch)[0].isfinite()
    weights.release()
    assert all(torch.equal(dict(module.named_buffers())[n], value) for n, value in before.items())


def test_the_decoder_belongs_to_mae_lm_and_stays_at_delta_one():
    assert module_of("roberta").decoder is None
    for how in (Denoising(mask_exclusion=0.5), DEEP):
        decoder = module_of("roberta", how).decoder
        assert len(decoder.encoder.layer) == 1
        assert {m.p for m in decoder.modules() if isinstance(m, torch.nn.Dropout)} == {0.0}
