"""Tokenizers: BART's conventions, training, and what cannot be loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from maskpolicy.models.tokenizers import (
    SPECIALS,
    check_vocabulary,
    load_tokenizer,
    train_tokenizer,
    training_texts,
)

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def test_the_special_tokens_have_the_ids_of_bart():
    tokenizer = small.tokenizer()
    names = ("bos", "pad", "eos", "unk", "mask")
    assert [getattr(tokenizer, f"{name}_token") for name in names] == list(SPECIALS)
    assert [getattr(tokenizer, f"{name}_token_id") for name in names] == [0, 1, 2, 3, 4]
    assert tokenizer.is_fast
    assert len(tokenizer) == 320


@given(ANY)
def test_the_tokenizer_gives_back_every_text(text):
    tokenizer = small.tokenizer()
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) in (text, f" {text}")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    small.tokenizer().save_pretrained(path)
    return load_tokenizer(str(path))


@given(text=ANY)
def test_a_saved_tokenizer_is_the_same(saved, text):
    ours = small.tokenizer()(text, return_offsets_mapping=True)
    theirs = saved(text, return_offsets_mapping=True)
    assert ours["input_ids"] == theirs["input_ids"]
    assert ours["offset_mapping"] == theirs["offset_mapping"]


def test_a_trained_tokenizer_is_loaded_as_by_autotokenizer_without_pytorch(tmp_path):
    from transformers import AutoTokenizer

    small.tokenizer().save_pretrained(tmp_path)
    ours, auto = load_tokenizer(str(tmp_path)), AutoTokenizer.from_pretrained(str(tmp_path))
    assert type(ours) is type(auto)
    assert ours.backend_tokenizer.to_str() == auto.backend_tokenizer.to_str()
    assert repr(ours) == repr(auto)
    code = f"""
import sys
from maskpolicy.models.tokenizers import load_tokenizer

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


def test_training_a_tokenizer_twice_gives_the_same():
    first, second = (train_tokenizer(small.TEXTS, 300) for _ in range(2))
    assert first.backend_tokenizer.to_str() == second.backend_tokenizer.to_str()


def test_a_tokenizer_is_trained_on_the_beginning_of_a_word_of_megabytes():
    long = "abcdefghij" * 300_000
    texts = [*small.TEXTS, f"Anna met {long} in Rome", ("," + "ab" * 20) * 500]
    found = list(training_texts(texts))
    assert found[: len(small.TEXTS)] == list(small.TEXTS)
    first, last, *cut = found[len(small.TEXTS) :]
    assert (first, last) == ("Anna met " + long[:10_000], long[:10_000] + " in Rome")
    assert "".join(cut) == texts[-1]  # a word with breaks is kept whole, in pieces
    assert max(map(len, cut)) == 10_000
    made = train_tokenizer(texts, 300)
    assert len(made) == 300


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


def test_tokens_of_bert_stand_for_those_of_bart(tmp_path):
    names = {"unk": "<unk>", "mask": "[MASK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]"}
    bare(names).save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path)).cls_token == "[CLS]"


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
