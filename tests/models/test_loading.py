"""Loading: tokenizers and text-to-text models, and what cannot be loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import small
import torch
from refusals import refused
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BertConfig, BertModel

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import ModelBlock
from maskpolicy.models import scratch, text_to_text
from maskpolicy.models.families import bounded
from maskpolicy.models.loading import check_vocabulary, load_tokenizer, set_dropout
from maskpolicy.models.model_kinds import check_folder
from maskpolicy.models.scratch import SPECIALS


def test_the_special_tokens_have_the_ids_of_bart():
    tokenizer = small.tokenizer()
    names = ("bos", "pad", "eos", "unk", "mask")
    assert [getattr(tokenizer, f"{name}_token") for name in names] == list(SPECIALS)
    assert [getattr(tokenizer, f"{name}_token_id") for name in names] == [0, 1, 2, 3, 4]
    assert tokenizer.is_fast
    assert len(tokenizer) == 320


def test_a_trained_tokenizer_is_loaded_as_by_autotokenizer_without_pytorch(tmp_path):
    from transformers import AutoTokenizer

    small.tokenizer().save_pretrained(tmp_path)
    ours, auto = load_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(str(tmp_path))
    assert type(ours) is type(auto)
    assert ours.backend_tokenizer.to_str() == auto.backend_tokenizer.to_str()
    assert repr(ours) == repr(auto)
    code = f"""
import sys
from maskpolicy.models.loading import load_tokenizer

load_tokenizer({str(tmp_path)!r})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_damaged_configuration_of_a_tokenizer_is_one_line(tmp_path, content):
    small.tokenizer().save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(content)
    assert str(tmp_path) in refused(load_tokenizer, str(tmp_path))


def test_an_answer_that_stands_alone_has_the_tokens_that_it_has_inside_a_sentence():
    tokenizer = small.tokenizer()
    alone = tokenizer("Rome", add_special_tokens=False)["input_ids"]
    inside = tokenizer("born in Rome", add_special_tokens=False)["input_ids"]
    assert inside[-len(alone) :] == alone


def test_a_model_without_a_tokenizer_is_refused(tmp_path):
    small.bart().save_pretrained(tmp_path)
    assert "has no tokenizer: save one" in refused(load_tokenizer, str(tmp_path))


@pytest.mark.parametrize("missing", ["mask", "pad", "eos"])
def test_a_tokenizer_without_a_token_that_is_needed_is_refused(tmp_path, missing):
    names = {"unk": "<unk>", "mask": "<mask>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    del names[missing]
    bare(names).save_pretrained(tmp_path)
    line = refused(load_tokenizer, str(tmp_path))
    wanted = f"has no {missing} token"
    if missing == "mask":
        wanted = "has neither a mask token nor sentinels such as <extra_id_0>"
    assert wanted in line


def bare(names):
    """Return a fast tokenizer of two words and these special tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"a": 0, "b": 1, "<unk>": 2}, "<unk>"))
    special = {f"{name}_token": token for name, token in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def test_a_tokenizer_of_more_tokens_than_embeddings_is_refused():
    check_vocabulary(small.tokenizer(), small.roberta())
    few = small.roberta(vocab_size=100)
    said = refused(check_vocabulary, small.tokenizer(), few)
    assert f"has 100 embeddings, but its tokenizer {len(small.tokenizer())} tokens" in said


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
        "from maskpolicy.models.loading import load_tokenizer\n"
        "from maskpolicy.core.errors import ConfigError\n"
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


def test_a_folder_with_the_name_of_a_preset_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini").mkdir()
    check_folder(ModelBlock("mini"))
    with pytest.raises(ConfigError, match="cannot be loaded"):
        check_folder(ModelBlock(str(tmp_path / "mini")))


def test_a_preset_follows_the_conventions_of_bart():
    model = scratch.build_bart("mini", small.tokenizer(), seed=0)
    config = model.config
    assert (config.bos_token_id, config.pad_token_id, config.eos_token_id) == (0, 1, 2)
    assert config.decoder_start_token_id == 2
    assert model.generation_config.forced_bos_token_id == 0
    assert model.generation_config.decoder_start_token_id == 2
    assert model.generation_config.forced_eos_token_id is None
    assert config.vocab_size == len(small.tokenizer())
    assert model.lm_head.weight is model.model.shared.weight


def test_lengths_are_bounded_by_the_positions_of_the_model():
    model = small.bart(max_position_embeddings=48)
    assert bounded(Training(), model).max_source == 48
    assert bounded(Training(), model).max_target == 48
    assert bounded(Training(max_source=9), model).max_source == 9


def test_dropout_is_set_for_the_training_and_not_in_the_configuration():
    model = small.bart(dropout=0.3)
    set_dropout(model, None)
    assert model.model.encoder.dropout == 0.3
    set_dropout(model, 0.1)
    layer = model.model.decoder.layers[0]
    found = [model.model.encoder.dropout, layer.dropout, layer.activation_dropout]
    assert [*found, layer.self_attn.dropout] == [0.1] * 4
    assert model.config.dropout == 0.3
