"""Loading of models and of tokenizers, also with saved padding, and the errors."""

import json
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import small
import torch
from refusals import refused
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from tokenizers.models import WordLevel
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    BigBirdConfig,
    BigBirdForMaskedLM,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from maskpolicy import MaskingCollator
from maskpolicy.core.errors import ConfigError
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.experiment.definition import ModelBlock
from maskpolicy.models import scratch, text_to_text
from maskpolicy.models.finetuning.encoder_tasks import TwoTexts
from maskpolicy.models.loading import load_tokenizer, load_weights, pads_or_truncates
from maskpolicy.models.model_kinds import check_folder
from maskpolicy.models.training import steps
from maskpolicy.models.training.specials import Specials, added_ends, check_vocabulary


def test_a_trained_tokenizer_is_loaded_as_by_autotokenizer_without_pytorch(tmp_path):
    small.tokenizer().backend_tokenizer.no_truncation()  # of another test
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


def test_the_weights_of_a_folder_are_loaded_without_a_progress_bar(tmp_path, capfd):
    logging.enable_progress_bar()  # as in a new process
    small.roberta().save_pretrained(tmp_path)
    capfd.readouterr()
    load_weights(AutoModel, str(tmp_path))
    assert not capfd.readouterr().err
    assert logging.is_progress_bar_enabled()


def test_a_tokenizer_with_more_tokens_than_embeddings_raises():
    check_vocabulary(small.tokenizer(), small.roberta())
    few = small.roberta(vocab_size=100)
    said = refused(check_vocabulary, small.tokenizer(), few)
    assert f"has 100 embeddings, but its tokenizer {len(small.tokenizer())} tokens" in said


def test_a_roberta_that_counts_positions_from_another_padding_raises():
    said = refused(check_vocabulary, small.tokenizer(), small.roberta(pad_token_id=0))
    assert "gives tokens of id 0 no position" in said and "pads with id 1" in said


def test_a_folder_loads_here_and_with_plain_transformers(tmp_path):
    small.saved(tmp_path, small.bart().half())
    ours = text_to_text.load(str(tmp_path))
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert ours.dtype == torch.float32
    assert all(torch.equal(ours.state_dict()[n], v) for n, v in theirs.float().state_dict().items())
    assert type(load_tokenizer(str(tmp_path))) is type(AutoTokenizer.from_pretrained(tmp_path))


@pytest.mark.parametrize("call", [text_to_text.load, load_tokenizer])
def test_a_missing_folder_and_a_hub_name_without_a_network_raise_one_line(
    tmp_path, monkeypatch, call
):
    def unreachable(*given, **more):
        raise OSError("We couldn't connect to 'https://huggingface.co'")

    assert refused(call, str(tmp_path / "no")) == f"model {tmp_path / 'no'}: no such folder"
    monkeypatch.setattr("transformers.utils.hub.cached_files", unreachable)
    assert refused(call, "facebook/bart-base").startswith(
        "model facebook/bart-base: cannot be loaded (give a folder, or a Hub name with a network)"
    )


def tokenizer_without(name, folder):
    """Save a fast tokenizer of two words that lacks a special token."""
    names = {"unk": "<unk>", "mask": "<mask>", "pad": "<pad>", "bos": "<s>", "eos": "</s>"}
    special = {f"{key}_token": token for key, token in names.items() if key != name}
    words = Tokenizer(WordLevel({"a": 0, "b": 1, "<unk>": 2}, "<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)


def bart_with(content, name, folder):
    """Save a small BART and its tokenizer, and overwrite one file."""
    small.saved(folder)
    (folder / name).write_bytes(content)


def bert(folder):
    size = {"hidden_size": 4, "num_attention_heads": 2, "intermediate_size": 4}
    BertModel(BertConfig(vocab_size=9, num_hidden_layers=1, **size)).save_pretrained(folder)


def bart_said_to_have(folder, **sizes):
    """Save a small BART whose configuration states other sizes than it has."""
    small.bart().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | sizes))


def folder_of(model_type, files, folder):
    """Write the files of a tokenizer beside the configuration of a model."""
    for name, text in {"config.json": json.dumps({"model_type": model_type}), **files}.items():
        (folder / name).write_text(text)


LATER = {"tokenizer.json": '{"added_tokens": [], "model": {"type": "Later", "vocab": {}}}'}
SLOW = (  # they need sentencepiece, and sacremoses
    ("marian", {"source.spm": "x"}),
    ("flaubert", {"vocab.json": "{}", "merges.txt": ""}),
)


@pytest.mark.parametrize(
    ("call", "save", "says"),
    [
        (text_to_text.load, Path.exists, "cannot be loaded (name a folder that holds a model"),
        (load_tokenizer, Path.exists, "cannot be loaded (name a folder that holds a model"),
        (load_tokenizer, small.bart().save_pretrained, "has no tokenizer: save one"),
        (load_tokenizer, bert, "has no tokenizer: save one"),
        *((load_tokenizer, partial(folder_of, *slow), "is not a fast one") for slow in SLOW),
        (
            load_tokenizer,
            partial(folder_of, "mt5", {"spiece.model": "x"}),
            "cannot be loaded (pip install sentencepiece protobuf)",
        ),
        (
            load_tokenizer,
            partial(folder_of, "bert", LATER),
            "cannot be loaded (pip install -U tokenizers transformers)",
        ),
        (load_tokenizer, partial(bart_with, b"{", "tokenizer_config.json"), "cannot be loaded"),
        (load_tokenizer, partial(bart_with, b"[]", "tokenizer_config.json"), "cannot be loaded"),
        (load_tokenizer, partial(tokenizer_without, "mask"), "has neither a mask token nor"),
        (load_tokenizer, partial(tokenizer_without, "pad"), "has no pad token"),
        (load_tokenizer, partial(tokenizer_without, "eos"), "has no eos token"),
        (text_to_text.load, bert, "bert is not text-to-text (an encoder needs model.kind: encoder"),
        (text_to_text.load, partial(bart_with, b"", "model.safetensors"), "cannot be loaded"),
        (text_to_text.load, partial(bart_with, b"{}", "adapter_config.json"), "has an adapter"),
        (
            text_to_text.load,
            partial(bart_said_to_have, encoder_layers=2),
            "weights lack model.encoder.layers.1.",
        ),
        (
            text_to_text.load,
            partial(bart_said_to_have, vocab_size=9),
            "its config.json states other sizes than its weights have",
        ),
    ],
)
def test_a_damaged_folder_raises_one_line(tmp_path, call, save, says):
    save(tmp_path)
    line = refused(call, str(tmp_path))
    assert line.startswith(f"model {tmp_path}: ") and says in line


@pytest.mark.parametrize("name", ["mask", "pad", "eos", "bos"])
def test_the_collator_needs_the_special_tokens_that_a_folder_needs(tmp_path, name):
    tokenizer_without(name, tmp_path)
    says = f"^MaskingCollator: the tokenizer has no {name} token: add one"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    refused(MaskingCollator, "random", tokenizer, kind="encoder", match=says)


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


NAMES = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
TOKENS = list(NAMES.values())
GIVEN = {"special_tokens": TOKENS, "vocab_size": 160, "show_progress": False}
MODELS = {
    "WordPiece": (models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(**GIVEN)),
    "BPE": (models.BPE(unk_token="[UNK]"), trainers.BpeTrainer(**GIVEN)),
    "Unigram": (models.Unigram(), trainers.UnigramTrainer(unk_token="[UNK]", **GIVEN)),
}
POST = {
    "none": None,
    "template": processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    ),
    "end": processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 3)]),
    "bert": processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
    "roberta": processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2), add_prefix_space=False),
}
PADDING = {"none": None, "fixed": {"length": 128}, "multiple": {"pad_to_multiple_of": 8}}
TRUNCATION = {"none": None, "short": {"max_length": 4}, "long": {"max_length": 64}}
SAVED = [
    *(("fixed", "none", "right"), ("fixed", "short", "left")),
    *(("none", "short", "right"), ("multiple", "long", "left")),
]


@cache
def trained(model):
    """Return a tokenizer without a post-processor as JSON."""
    raw = Tokenizer(MODELS[model][0])
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.train_from_iterator(small.TEXTS, MODELS[model][1])
    return raw.to_str()


def tokenizer(model, post, padding="none", truncation="none", side="right"):
    """Return a tokenizer of the `tokenizers` package, with saved settings."""
    raw = Tokenizer.from_str(trained(model))
    if POST[post] is not None:
        raw.post_processor = POST[post]
    if PADDING[padding] is not None:
        raw.enable_padding(direction=side, pad_id=1, pad_token="[PAD]", **PADDING[padding])
    if TRUNCATION[truncation] is not None:
        raw.enable_truncation(direction=side, **TRUNCATION[truncation])
    names = {f"{name}_token": token for name, token in NAMES.items()}
    ends = {"eos_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, **names, **ends)


def read(tokenizer):
    """Return all that is read of a tokenizer and of texts with it."""
    documents = [Document(str(place), text) for place, text in enumerate(small.TEXTS)]
    passages = [
        (each.tokens.tolist(), each.offsets.tolist()) for each in tokenize(documents, tokenizer)
    ]
    rows = steps.tokenize(small.TEXTS, tokenizer)
    sources = Specials.of(tokenizer).wrap(rows, 64)
    return passages, [row.tolist() for row in sources], Specials.of_encoder(tokenizer)


def settings(tokenizer):
    """Return how a tokenizer pads and truncates."""
    return tokenizer.backend_tokenizer.padding, tokenizer.backend_tokenizer.truncation


@pytest.mark.parametrize(
    ("model", "post"),
    [*(("WordPiece", post) for post in POST), ("BPE", "roberta"), ("Unigram", "end")],
)
def test_padding_and_truncation_change_nothing(model, post, tmp_path):
    def batch(tokenizer):
        collator = MaskingCollator("random", tokenizer, seed=3, max_source=24)
        return collator([{"text": text} for text in small.TEXTS])

    plain, has_pairs = tokenizer(model, post), post != "end"
    ends, expected, masked = added_ends(plain), read(plain), batch(plain)
    assert len(ends[0]) == (post not in ("none", "end"))
    assert len(ends[1]) == (post != "none")
    plain.save_pretrained(tmp_path / "plain")
    assert not pads_or_truncates(str(tmp_path / "plain"))
    for padding, truncation, side in SAVED:
        saved = tokenizer(model, post, padding, truncation, side)
        before = saved.backend_tokenizer.to_str()
        assert added_ends(saved) == ends
        assert not has_pairs or TwoTexts.of(saved) == TwoTexts.of(plain)
        assert read(saved) == expected
        assert all(torch.equal(tensor, masked[key]) for key, tensor in batch(saved).items())
        assert saved.backend_tokenizer.to_str() == before
        saved.save_pretrained(tmp_path)
        assert pads_or_truncates(str(tmp_path))
        loaded = load_tokenizer(str(tmp_path))
        assert settings(loaded) == (None, None)
        assert settings(load_tokenizer(str(tmp_path), as_saved=True)) == settings(saved)
        assert added_ends(loaded) == ends
        rows = (steps.tokenize(small.TEXTS, each).flat for each in (loaded, plain))
        assert np.array_equal(*rows)


def test_bigbird_attends_in_full_whatever_it_has_read_before(tmp_path):
    sizes = {"vocab_size": 90, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
    made = BigBirdForMaskedLM(BigBirdConfig(**sizes, num_attention_heads=2))
    assert made.config.attention_type == "block_sparse"
    made.save_pretrained(tmp_path)
    model = load_weights(AutoModelForMaskedLM, str(tmp_path))
    assert model.config.attention_type == model.bert.attention_type == "original_full"
