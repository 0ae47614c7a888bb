"""Encoders of each family: their bodies, and the heads that were pre-trained with them."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import encoders as tiny
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM

from maskpolicy.errors import ConfigError
from maskpolicy.models import encoders
from maskpolicy.models.families import FAMILIES, family_of
from maskpolicy.models.position_limits import limits

IDS = torch.tensor([[5, 8, 9, 12, 7], [6, 9, 8, 11, 5]])
EVERY = (*tiny.FAMILIES, *tiny.LIKE_THEM)


def states(model):
    with torch.no_grad():
        return model(input_ids=IDS).last_hidden_state


@pytest.mark.parametrize("family", EVERY)
def test_a_head_that_was_pre_trained_is_loaded_with_the_body(tmp_path, family):
    folder = tiny.saved(family, tmp_path)
    stock, found = AutoModelForMaskedLM.from_pretrained(folder).eval(), encoders.load(str(folder))
    assert encoders.is_masked_lm(found)
    assert type(found) is type(stock)
    with torch.no_grad():
        assert torch.equal(found.eval()(input_ids=IDS).logits, stock(input_ids=IDS).logits)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_auto_keeps_the_head_of_all_but_robertas_three(tmp_path, family):
    folder = str(tiny.saved(family, tmp_path))
    kept = family not in ("roberta", "xlm-roberta", "camembert")
    assert encoders.is_masked_lm(encoders.load(folder, head="auto")) == kept
    assert encoders.is_masked_lm(encoders.load(folder, head="own"))
    assert not encoders.is_masked_lm(encoders.load(folder, head="new"))


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_what_is_saved_is_loaded_by_stock_classes_with_the_same_states(tmp_path, family):
    folder = tiny.saved(family, tmp_path / "it")
    for head, factory in (("own", AutoModelForMaskedLM), ("new", AutoModel)):
        model = encoders.load(str(folder), head=head).eval()
        model.save_pretrained(tmp_path / head)
        names = json.loads((tmp_path / head / "config.json").read_text())["architectures"]
        assert names == [type(model).__name__]
        again = factory.from_pretrained(tmp_path / head).eval()
        assert torch.equal(states(again.base_model), states(model.base_model))
        assert type(encoders.load(str(tmp_path / head))) is type(model)


@pytest.mark.parametrize("family", ["bert", "albert", "mpnet"])
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


def test_a_body_whose_weights_have_no_pooler_gets_none(tmp_path):
    body = encoders.load(str(tiny.saved("bert", tmp_path)), head="new")
    assert body.pooler is None
    assert not any("pooler" in name for name in body.state_dict())


@pytest.mark.parametrize("family", ["electra", "bert", "modernbert"])
def test_without_weights_of_a_head_one_line_says_that_a_new_one_is_trained(
    tmp_path, family, caplog
):
    AutoModel.from_config(tiny.config(family)).save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        found = encoders.load(str(tmp_path), head="auto")
    assert not encoders.is_masked_lm(found)
    assert "no head for masked language modelling: a new one is trained" in caplog.text
    with pytest.raises(ConfigError, match="no head for masked language modelling: set"):
        encoders.load(str(tmp_path), head="own")


def test_a_discriminator_of_electra_gets_a_new_head(tmp_path, caplog):
    from transformers import ElectraForPreTraining

    ElectraForPreTraining(tiny.config("electra")).save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert not encoders.is_masked_lm(encoders.load(str(tmp_path), head="auto"))
    assert "(they are a discriminator's): a new one is trained" in caplog.text


def released(folder, discriminator):
    """Save a DeBERTa-v2 as Microsoft released them: other names, and no word of `legacy`."""
    model = tiny.model("deberta-v2", legacy=False)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["legacy"]
    (folder / "config.json").write_text(json.dumps(config))
    if discriminator:
        weights = load_file(folder / "model.safetensors")
        weights |= {"mask_predictions.dense.weight": torch.zeros(16, 16)}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return model


def test_the_head_of_a_released_deberta_is_found(tmp_path):
    model = released(tmp_path / "it", discriminator=False)
    found = encoders.load(str(tmp_path / "it"), head="auto")
    assert encoders.is_masked_lm(found)
    found.save_pretrained(tmp_path / "again")
    again = AutoModelForMaskedLM.from_pretrained(tmp_path / "again").eval()
    with torch.no_grad():
        assert torch.equal(again(input_ids=IDS).logits, model(input_ids=IDS).logits)
    assert encoders.is_masked_lm(encoders.load(str(tmp_path / "again")))


def test_a_deberta_v3_which_detects_replaced_tokens_gets_a_new_head(tmp_path, caplog):
    released(tmp_path, discriminator=True)
    with caplog.at_level(logging.WARNING):
        assert not encoders.is_masked_lm(encoders.load(str(tmp_path), head="auto"))
    assert "(they are a discriminator's)" in caplog.text


def test_a_text_to_text_model_and_a_decoder_are_refused(tmp_path):
    import small
    from transformers import GPT2Config, GPT2Model

    small.bart().save_pretrained(tmp_path / "bart")
    with pytest.raises(ConfigError, match="bart is a text-to-text model: leave"):
        encoders.load(str(tmp_path / "bart"))
    config = GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=1)
    GPT2Model(config).save_pretrained(tmp_path / "gpt2")
    with pytest.raises(ConfigError, match="gpt2 is not an encoder that AutoModelForMaskedLM loads"):
        encoders.load(str(tmp_path / "gpt2"))


@pytest.mark.parametrize("family", EVERY)
def test_each_family_has_a_row_of_its_own(family):
    row = family_of(tiny.config(family), "encoder")
    assert row.types and family in row.types


@pytest.mark.parametrize(
    ("family", "most"),
    [("bert", 66), ("roberta", 64), ("mpnet", 64), ("modernbert", 66), ("deberta-v2", 66)],
)
def test_the_longest_source_is_read_by_the_model(family, most):
    model = tiny.model(family)
    assert limits(model.config) == (most, most)
    ids = torch.full((1, most), 7)
    with torch.no_grad():
        assert model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.isfinite().all()


@pytest.mark.parametrize("family", ["longformer", "big_bird", "esm"])
def test_a_family_without_a_row_reads_no_more_than_it_can(family):
    from transformers import AutoConfig

    for pad in (0, 1):
        config = AutoConfig.for_model(family, max_position_embeddings=66, pad_token_id=pad)
        assert limits(config)[0] == (64 if pad else 66)


def test_rows_name_the_special_tokens_that_tokenizers_write():
    rows = {name: row for row in FAMILIES if row.kind == "encoder" for name in row.types}
    for family in tiny.FAMILIES:
        made = tiny.tokenizer(family)
        text = made.convert_ids_to_tokens(made("x")["input_ids"])
        if family != "deberta":  # the test's tokenizer is not its own
            assert rows[family].ends == f"{text[0]} text {text[-1]}"
            assert rows[family].masks == made.mask_token


def test_the_docs_have_every_family_of_encoders():
    page = (Path(__file__).parents[2] / "docs" / "encoder.md").read_text(encoding="utf-8")
    rows = [line.replace("`", "") for line in page.splitlines() if line.startswith("| ")]
    for row in FAMILIES:
        if row.kind == "encoder":
            types = ", ".join(row.types) or "all others"
            facts = (row.name, types, row.masks, row.ends, row.positions, row.exclusion)
            assert f"| {' | '.join(facts)} |" in rows
