"""Text-to-text models: folders that load, and what cannot be loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import small
import torch
from refusals import refused
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BartModel, BertConfig, BertModel

from maskpolicy.models import text_to_text
from maskpolicy.models.tokenizers import load_tokenizer


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a small BART and its tokenizer."""
    small.bart().save_pretrained(tmp_path / "bart")
    small.tokenizer().save_pretrained(tmp_path / "bart")
    return tmp_path / "bart"


def test_a_folder_loads_here_and_with_plain_transformers(folder):
    ours, theirs = text_to_text.load(str(folder)), AutoModelForSeq2SeqLM.from_pretrained(folder)
    expected = small.bart().state_dict()
    for found in (ours, theirs):
        assert all(torch.equal(expected[name], v) for name, v in found.state_dict().items())
    assert type(load_tokenizer(str(folder))) is type(AutoTokenizer.from_pretrained(folder))
    assert load_tokenizer(str(folder)).mask_token_id == 4


def test_weights_come_in_float32(folder):
    small.bart().half().save_pretrained(folder)
    assert text_to_text.load(str(folder)).dtype == torch.float32


def test_settings_reach_transformers(folder):
    for name in ("eager", "sdpa"):
        model = text_to_text.load(str(folder), attn_implementation=name)
        assert model.config._attn_implementation == name


def test_the_body_of_a_bart_loads_with_its_tied_head(folder):
    body = BartModel(small.bart().config)
    body.save_pretrained(folder)
    model = text_to_text.load(str(folder))
    assert torch.equal(model.lm_head.weight, body.shared.weight)


def test_a_folder_that_is_not_there_says_so(tmp_path):
    for call in (text_to_text.load, load_tokenizer):
        assert refused(call, str(tmp_path / "no")) == f"model {tmp_path / 'no'}: no such folder"


def test_an_empty_folder_is_refused(tmp_path):
    for call in (text_to_text.load, load_tokenizer):
        line = refused(call, str(tmp_path))
        assert f"model {tmp_path}: cannot be loaded (name a folder that holds a model" in line


def test_a_folder_of_another_architecture_is_refused(tmp_path):
    size = {"hidden_size": 4, "num_attention_heads": 2, "intermediate_size": 4}
    config = BertConfig(vocab_size=9, num_hidden_layers=1, **size)
    BertModel(config).save_pretrained(tmp_path / "bert")
    line = refused(text_to_text.load, str(tmp_path / "bert"))
    assert "bert is not text-to-text (an encoder needs model.kind: encoder;" in line


@pytest.mark.parametrize("content", [b"", b"\0" * 100])
def test_damaged_weights_are_refused(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    assert "cannot be loaded" in refused(text_to_text.load, str(folder))


def test_weights_of_another_shape_are_refused(folder):
    change(folder, vocab_size=999)
    assert "cannot be loaded" in refused(text_to_text.load, str(folder))


def test_a_configuration_of_the_wrong_type_is_refused(folder):
    change(folder, d_model="wide")
    assert "d_model" in refused(text_to_text.load, str(folder))


def change(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def test_missing_weights_are_refused_and_not_drawn(folder):
    change(folder, encoder_layers=2)
    assert "its weights lack model.encoder.layers.1." in refused(text_to_text.load, str(folder))


@pytest.mark.slow
def test_a_hub_name_is_refused_in_one_line_without_a_network(tmp_path):
    script = (
        "from maskpolicy.models.text_to_text import load\n"
        "from maskpolicy.models.tokenizers import load_tokenizer\n"
        "from maskpolicy.errors import ConfigError\n"
        "for load in (load, load_tokenizer):\n"
        "    try:\n"
        "        load('facebook/bart-base')\n"
        "    except ConfigError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stderr
    for line in lines:
        assert line.startswith("model facebook/bart-base: cannot be loaded (give a folder, or a")
