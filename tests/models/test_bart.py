"""BART and its tokenizer: conventions, folders, and what cannot be loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import small
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartModel,
    BertConfig,
    BertModel,
)

from maskpolicy.config.budgets import Training
from maskpolicy.config.experiment import ModelBlock
from maskpolicy.errors import ConfigError
from maskpolicy.models import bart as models

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a small BART and its tokenizer."""
    small.bart().save_pretrained(tmp_path / "bart")
    small.tokenizer().save_pretrained(tmp_path / "bart")
    return tmp_path / "bart"


def test_the_special_tokens_have_the_ids_of_bart():
    tokenizer = small.tokenizer()
    names = ("bos", "pad", "eos", "unk", "mask")
    assert [getattr(tokenizer, f"{name}_token") for name in names] == list(models.SPECIALS)
    assert [getattr(tokenizer, f"{name}_token_id") for name in names] == [0, 1, 2, 3, 4]
    assert tokenizer.is_fast
    assert len(tokenizer) == 320


def test_a_preset_follows_the_conventions_of_bart():
    model = models.build("mini", small.tokenizer(), seed=0)
    config = model.config
    assert (config.bos_token_id, config.pad_token_id, config.eos_token_id) == (0, 1, 2)
    assert config.decoder_start_token_id == 2
    assert model.generation_config.forced_bos_token_id == 0
    assert model.generation_config.decoder_start_token_id == 2
    assert model.generation_config.forced_eos_token_id is None
    assert config.vocab_size == len(small.tokenizer())
    assert model.lm_head.weight is model.model.shared.weight


def test_an_answer_begins_with_bos_and_is_read_without_it():
    model = models.build("mini", small.tokenizer(), seed=0)
    output = model.generate(torch.tensor([[0, 9, 2]]), max_new_tokens=4, do_sample=False)
    assert output[0, :2].tolist() == [2, 0]


def test_a_seed_decides_the_weights_and_nothing_else_does():
    def first(seed):
        return models.build("mini", small.tokenizer(), seed).model.shared.weight

    torch.manual_seed(1)
    one = first(0)
    expected = torch.rand(2)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(first(0), one)
    assert not torch.equal(first(1), one)


@given(ANY)
def test_the_tokenizer_gives_back_every_text(text):
    tokenizer = small.tokenizer()
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) in (text, f" {text}")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    small.tokenizer().save_pretrained(path)
    return models.load_tokenizer(str(path))


@given(text=ANY)
def test_a_saved_tokenizer_is_the_same(saved, text):
    ours = small.tokenizer()(text, return_offsets_mapping=True)
    theirs = saved(text, return_offsets_mapping=True)
    assert ours["input_ids"] == theirs["input_ids"]
    assert ours["offset_mapping"] == theirs["offset_mapping"]


def test_an_answer_that_stands_alone_has_the_tokens_that_it_has_inside_a_sentence():
    tokenizer = small.tokenizer()
    alone = tokenizer("Rome", add_special_tokens=False)["input_ids"]
    inside = tokenizer("born in Rome", add_special_tokens=False)["input_ids"]
    assert inside[-len(alone) :] == alone


def test_training_a_tokenizer_twice_gives_the_same():
    first, second = (models.train_tokenizer(small.TEXTS, 300) for _ in range(2))
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()


def test_a_tokenizer_is_trained_on_the_beginning_of_a_word_of_megabytes():
    long = "abcdefghij" * 300_000
    texts = [*small.TEXTS, f"Anna met {long} in Rome", ("," + "ab" * 20) * 500]
    found = list(models.training_texts(texts))
    assert found[: len(small.TEXTS)] == list(small.TEXTS)
    first, last, *cut = found[len(small.TEXTS) :]
    assert (first, last) == ("Anna met " + long[:10_000], long[:10_000] + " in Rome")
    assert "".join(cut) == texts[-1]  # a word with breaks is kept whole, in pieces
    assert max(map(len, cut)) == 10_000
    made = models.train_tokenizer(texts, 300)
    assert len(made) == 300


def test_a_folder_loads_here_and_with_plain_transformers(folder):
    ours, theirs = models.load(str(folder)), AutoModelForSeq2SeqLM.from_pretrained(folder)
    expected = small.bart().state_dict()
    for found in (ours, theirs):
        assert all(torch.equal(expected[name], v) for name, v in found.state_dict().items())
    assert type(models.load_tokenizer(str(folder))) is type(AutoTokenizer.from_pretrained(folder))
    assert models.load_tokenizer(str(folder)).mask_token_id == 4


def test_a_folder_with_the_name_of_a_preset_is_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini").mkdir()
    models.check_folder(ModelBlock("mini"))
    assert "cannot be loaded" in refused(models.check_folder, ModelBlock(str(tmp_path / "mini")))


def test_weights_come_in_float32(folder):
    small.bart().half().save_pretrained(folder)
    assert models.load(str(folder)).dtype == torch.float32


def test_settings_reach_transformers(folder):
    for name in ("eager", "sdpa"):
        model = models.load(str(folder), attn_implementation=name)
        assert model.config._attn_implementation == name


def test_the_body_of_a_bart_loads_with_its_tied_head(folder):
    body = BartModel(small.bart().config)
    body.save_pretrained(folder)
    model = models.load(str(folder))
    assert torch.equal(model.lm_head.weight, body.shared.weight)


def refused(call, *words):
    with pytest.raises(ConfigError) as error:
        call(*words)
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 500
    return str(error.value)


def test_a_folder_that_is_not_there_says_so(tmp_path):
    for call in (models.load, models.load_tokenizer):
        assert refused(call, str(tmp_path / "no")) == f"model {tmp_path / 'no'}: no such folder"


def test_an_empty_folder_is_refused(tmp_path):
    for call in (models.load, models.load_tokenizer):
        line = refused(call, str(tmp_path))
        assert f"model {tmp_path}: cannot be loaded (name a folder that holds a model" in line


def test_a_folder_of_another_architecture_is_refused(tmp_path):
    size = {"hidden_size": 4, "num_attention_heads": 2, "intermediate_size": 4}
    config = BertConfig(vocab_size=9, num_hidden_layers=1, **size)
    BertModel(config).save_pretrained(tmp_path / "bert")
    line = refused(models.load, str(tmp_path / "bert"))
    assert "bert is not text-to-text (an encoder needs model.kind: encoder;" in line


def test_a_model_without_a_tokenizer_is_refused(tmp_path):
    small.bart().save_pretrained(tmp_path)
    assert "has no tokenizer: save one" in refused(models.load_tokenizer, str(tmp_path))


@pytest.mark.parametrize("missing", ["mask", "pad", "eos"])
def test_a_tokenizer_without_a_token_that_is_needed_is_refused(tmp_path, missing):
    names = {"unk": "<unk>", "mask": "<mask>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    del names[missing]
    bare(names).save_pretrained(tmp_path)
    line = refused(models.load_tokenizer, str(tmp_path))
    wanted = f"has no {missing} token"
    if missing == "mask":
        wanted = "has neither a mask token nor sentinels such as <extra_id_0>"
    assert wanted in line


def test_tokens_of_bert_stand_for_those_of_bart(tmp_path):
    names = {"unk": "<unk>", "mask": "[MASK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]"}
    bare(names).save_pretrained(tmp_path)
    assert models.load_tokenizer(str(tmp_path)).cls_token == "[CLS]"


def bare(names):
    """Return a fast tokenizer of two words and these special tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"a": 0, "b": 1, "<unk>": 2}, "<unk>"))
    special = {f"{name}_token": token for name, token in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def test_a_tokenizer_of_more_tokens_than_embeddings_is_refused():
    models.check_vocabulary(small.tokenizer(), small.roberta())
    few = small.roberta(vocab_size=100)
    said = refused(models.check_vocabulary, small.tokenizer(), few)
    assert f"has 100 embeddings, but its tokenizer {len(small.tokenizer())} tokens" in said


@pytest.mark.parametrize("content", [b"", b"\0" * 100])
def test_damaged_weights_are_refused(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    assert "cannot be loaded" in refused(models.load, str(folder))


def test_weights_of_another_shape_are_refused(folder):
    change(folder, vocab_size=999)
    assert "cannot be loaded" in refused(models.load, str(folder))


def test_a_configuration_of_the_wrong_type_is_refused(folder):
    change(folder, d_model="wide")
    assert "d_model" in refused(models.load, str(folder))


def change(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def test_missing_weights_are_refused_and_not_drawn(folder):
    change(folder, encoder_layers=2)
    assert "its weights lack model.encoder.layers.1." in refused(models.load, str(folder))


@pytest.mark.slow
def test_a_hub_name_is_refused_in_one_line_without_a_network(tmp_path):
    script = (
        "from maskpolicy.models import bart as model\n"
        "from maskpolicy.errors import ConfigError\n"
        "for load in (model.load, model.load_tokenizer):\n"
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


def test_dropout_is_set_for_the_training_and_not_in_the_configuration():
    model = small.bart(dropout=0.3)
    models.set_dropout(model, None)
    assert model.model.encoder.dropout == 0.3
    models.set_dropout(model, 0.1)
    layer = model.model.decoder.layers[0]
    found = [model.model.encoder.dropout, layer.dropout, layer.activation_dropout]
    assert [*found, layer.self_attn.dropout] == [0.1] * 4
    assert model.config.dropout == 0.3


def test_lengths_are_bounded_by_the_positions_of_the_model():
    model = small.bart(max_position_embeddings=48)
    assert models.bounded(Training(), model).max_source == 48
    assert models.bounded(Training(), model).max_target == 48
    assert models.bounded(Training(max_source=9), model).max_source == 9
