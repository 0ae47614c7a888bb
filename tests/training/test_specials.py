"""Special tokens by family: around texts, before the decoder's target, and for masks."""

from __future__ import annotations

import numpy as np
import pytest
import small
import text_to_text
from transformers import PreTrainedTokenizerFast

from maskpolicy.config.budgets import Training
from maskpolicy.errors import ConfigError
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.models.tokenizers import load_tokenizer
from maskpolicy.training.specials import Specials, added_ends, has_masks
from maskpolicy.training.steps import tokenize
from maskpolicy.types import Denoising

TEXT = "The cute dog walks in the park."


def names(name, ids):
    return text_to_text.tokenizer(name).convert_ids_to_tokens(list(ids))


@pytest.mark.parametrize("name", text_to_text.NAMES)
def test_a_source_is_what_the_tokenizer_makes_of_a_text(name):
    tokenizer = text_to_text.tokenizer(name)
    (row,) = Specials.of(tokenizer).wrap(tokenize([TEXT], tokenizer), 512)
    assert row.tolist() == tokenizer(TEXT)["input_ids"]


@pytest.mark.parametrize(
    ("name", "start", "before", "after"),
    [
        ("bart", "</s>", ["<s>"], ["</s>"]),
        ("mbart", "en_XX", [], ["</s>", "en_XX"]),  # decoder: en_XX text </s>
        ("mbart50", "</s>", ["en_XX"], ["</s>"]),  # decoder: </s> en_XX text
        ("nllb", "</s>", ["eng_Latn"], ["</s>"]),
        ("t5", "<pad>", [], ["</s>"]),
        ("pegasus", "<pad>", [], ["</s>"]),
        ("marian", "<pad>", [], ["</s>"]),
    ],
)
def test_a_target_and_the_decoders_start(name, start, before, after):
    specials = Specials.of(text_to_text.tokenizer(name))
    assert names(name, [specials.start]) == [start]
    (row,) = specials.wrap_targets(tokenize([TEXT], text_to_text.tokenizer(name)), 512)
    written = names(name, row)
    assert written[: len(before)] == before
    assert written[-len(after) :] == after
    assert specials.added("max_target") == len(before) + len(after)


@pytest.mark.parametrize("name", ["bart", "t5", "mbart", "mbart50", "nllb", "pegasus"])
def test_a_target_is_what_the_tokenizer_makes_of_one(name):
    tokenizer = text_to_text.tokenizer(name)
    (row,) = Specials.of(tokenizer).wrap_targets(tokenize([TEXT], tokenizer), 512)
    assert row.tolist() == tokenizer(text_target=TEXT)["input_ids"]


def test_a_target_ends_with_eos_and_does_not_repeat_the_start():
    tokenizer = text_to_text.tokenizer("t5gemma")
    specials = Specials.of(tokenizer, tokenizer.bos_token_id)
    (source,) = specials.wrap(tokenize([TEXT], tokenizer), 512)
    (target,) = specials.wrap_targets(tokenize([TEXT], tokenizer), 512)
    assert (names("t5gemma", source)[0], names("t5gemma", target)[-1]) == ("<bos>", "<eos>")
    assert source[1:].tolist() == target[:-1].tolist()


def test_a_language_code_follows_the_start_that_the_model_names():
    tokenizer = text_to_text.tokenizer("mbart")
    roman = tokenizer.convert_tokens_to_ids("ro_RO")
    specials = Specials.of(tokenizer, roman)
    assert specials.target_ends == ((), (2, roman))
    assert specials.source_ends == ((), (2, tokenizer.convert_tokens_to_ids("en_XX")))


def test_the_language_of_a_saved_tokenizer_stays(tmp_path):
    made = type(text_to_text.tokenizer("mbart50"))
    text_to_text.tokenizer("mbart50").save_pretrained(tmp_path / "one")
    made.from_pretrained(tmp_path / "one", src_lang="de_DE").save_pretrained(tmp_path / "two")
    tokenizer = load_tokenizer(str(tmp_path / "two"))
    german = tokenizer.convert_tokens_to_ids("de_DE")
    assert Specials.of(tokenizer).source_ends == ((german,), (2,))
    assert Specials.of(tokenizer).target_ends == ((german,), (2,))


def test_sentinels_are_found_in_order():
    tokenizer = text_to_text.tokenizer("t5")
    found = Specials.of(tokenizer)
    assert names("t5", found.sentinels) == [f"<extra_id_{i}>" for i in range(20)]
    assert found.mask == found.sentinels[0]
    assert found.marks.most == 19


def test_sentinels_may_be_pieces_as_in_mt5():
    from tokenizers import Tokenizer, models

    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocab += [(f"▁<extra_id_{i}>", -1.0) for i in (2, 1, 0)]
    raw = Tokenizer(models.Unigram(vocab, unk_id=2))
    own = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **own)
    assert Specials.of(tokenizer).sentinels == (5, 4, 3)
    assert has_masks(tokenizer)


def test_pegasus_has_two_masks():
    found = Specials.of(text_to_text.tokenizer("pegasus"))
    assert names("pegasus", [found.mask, found.sentence_mask]) == ["<mask_2>", "<mask_1>"]
    assert Specials.of(small.tokenizer()).sentence_mask is None


def test_an_encoder_masks_with_a_mask_token_alone():
    tokenizer = text_to_text.tokenizer("bert2bert")
    found = Specials.of_encoder(tokenizer)
    assert (found.mask, found.start, found.sentinels) == (tokenizer.mask_token_id, None, ())
    with pytest.raises(ConfigError, match="has no mask token"):
        Specials.of_encoder(text_to_text.tokenizer("t5"))


def test_a_tokenizer_that_adds_nothing_gets_both_ends():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = Tokenizer(WordLevel({"a": 0, "<s>": 1, "</s>": 2, "<pad>": 3, "<mask>": 4}, "a"))
    own = {"bos": "<s>", "eos": "</s>", "pad": "<pad>", "mask": "<mask>"}
    tokens = {f"{name}_token": token for name, token in own.items()}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **tokens)
    assert added_ends(tokenizer) == ((), ())
    assert Specials.of(tokenizer) == Specials(bos=1, eos=2, pad=3, mask=4, start=2)
    del tokens["bos_token"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **tokens)
    assert Specials.of(tokenizer).source_ends == ((), (2,))
    assert Specials.of(tokenizer).start == 3


@pytest.mark.parametrize("name", ["t5", "mbart", "bart"])
def test_long_texts_keep_their_ends(name):
    tokenizer = text_to_text.tokenizer(name)
    specials = Specials.of(tokenizer)
    rows = tokenize([TEXT, "dog"], tokenizer)
    for limit in (4, 5, 9):
        for keep in ("start", "end"):
            row = specials.wrap(rows, limit, keep)[0].tolist()
            before, after = specials.source_ends or ((0,), (2,))
            inside = row[len(before) : len(row) - len(after)]
            room = limit - specials.added("max_source")
            assert len(row) == limit
            assert (tuple(row[: len(before)]), tuple(row[-len(after) :])) == (before, after)
            assert inside == (rows[0][:room] if keep == "start" else rows[0][-room:]).tolist()


def test_excluded_marks_stay_aligned_with_the_ends_of_the_source():
    tokenizer = text_to_text.tokenizer("t5")
    specials = Specials.of(tokenizer)
    passage = small.ids(np.arange(10, 20))
    spans = [np.asarray([[2, 4], [6, 7]], np.int32)]
    how = Denoising(mask_exclusion=1.0)
    written = denoising_pairs([passage], spans, how, specials.marks, 0, [0])
    pair = specials.pairs(written, Training())[0]
    assert pair.excluded is not None
    assert set(pair.source[pair.excluded].tolist()) == set(specials.sentinels[:2])
    assert pair.target.tolist() == [*written[0].target.tolist(), 1]
