"""Scores of pairs are those of a plain loop over Transformers, one masked copy at a time."""

from __future__ import annotations

import encoders
import numpy as np
import pytest
import small
import text_to_text
import torch

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.types import Example
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import AnswerParams
from maskpolicy.models.finetuning import pair_scores

SPEC = Training(max_source=64, micro_tokens=256)
TEXTS = [("", text) for text in small.TEXTS] + [(small.TEXTS[5], small.TEXTS[6])]


def likelihood(model, place, token, **inputs):
    with torch.no_grad():
        logits = model(**{name: torch.tensor([ids]) for name, ids in inputs.items()}).logits
    return logits[0, place].log_softmax(-1)[token].item()


def copies(tokenizer, before, text, mask, rest_of_word=False):
    """Yield (place, true token, masked copy) of a text, as minicons and BabyLM's pipeline do."""
    whole = f"{before} {text}" if before else text
    made = tokenizer(whole, return_offsets_mapping=True, return_special_tokens_mask=True)
    ids, words, special = made["input_ids"], made.word_ids(), made["special_tokens_mask"]
    for place, (_, end) in enumerate(made["offset_mapping"]):
        if not special[place] and (not before or end > len(before)):
            copy = list(ids)
            copy[place] = mask
            for later in range(place + 1, len(ids)):
                if rest_of_word and words[later] == words[place]:
                    copy[later] = mask
            yield place, ids[place], copy


@pytest.mark.parametrize("family", encoders.FAMILIES)
@pytest.mark.parametrize("choose", ["pll", "within_word_l2r"])
def test_pseudo_log_likelihoods_are_those_of_a_loop(family, choose):
    model, tokenizer = encoders.model(family), encoders.tokenizer(family)
    found = pair_scores.scores(model, tokenizer, TEXTS, choose, SPEC)
    for score, (before, text) in zip(found, TEXTS, strict=True):
        masked = copies(tokenizer, before, text, tokenizer.mask_token_id, choose != "pll")
        wanted = sum(likelihood(model, place, id, input_ids=ids) for place, id, ids in masked)
        assert score == pytest.approx(wanted, abs=1e-4)


def test_the_rest_of_a_word_is_masked_too():
    model, tokenizer = encoders.model("roberta"), encoders.tokenizer("roberta")
    whole, rest = (
        pair_scores.scores(model, tokenizer, TEXTS, choose, SPEC)
        for choose in ("pll", "within_word_l2r")
    )
    assert (np.abs(whole - rest) > 1e-3).any()


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_a_text_to_text_model_fills_a_mask_behind_bos(family):
    model, tokenizer = text_to_text.model(family), text_to_text.tokenizer(family)
    bos, mask = tokenizer.bos_token_id, tokenizer.mask_token_id
    if family == "t5":
        bos, mask = tokenizer.pad_token_id, tokenizer.convert_tokens_to_ids("<extra_id_0>")
    found = pair_scores.scores(model, tokenizer, TEXTS, "enc_dec_mask", SPEC)
    for score, (before, text) in zip(found, TEXTS, strict=True):
        wanted = sum(
            likelihood(model, 1, token, input_ids=ids, decoder_input_ids=[bos, mask])
            for _, token, ids in copies(tokenizer, before, text, mask)
        )
        assert score == pytest.approx(wanted, abs=1e-4)


def test_a_decoder_scores_what_goes_on_from_the_source():
    model, tokenizer = text_to_text.model("bart"), text_to_text.tokenizer("bart")
    mask, ends = tokenizer.mask_token_id, (tokenizer.cls_token_id, tokenizer.eos_token_id)
    found = pair_scores.scores(model, tokenizer, TEXTS, "enc_dec_prefix", SPEC)
    for score, (before, text) in zip(found, TEXTS, strict=True):
        prefix, tokens = (
            tokenizer(part, add_special_tokens=False)["input_ids"]
            for part in (before, f" {text}" if before else text)
        )
        decoder = [tokenizer.bos_token_id, mask, *tokens[:-1]]
        source = [ends[0], *prefix, mask, ends[1]]
        wanted = sum(
            likelihood(model, place, token, input_ids=source, decoder_input_ids=decoder)
            for place, token in enumerate(tokens, start=1)
        )
        assert score == pytest.approx(wanted, abs=1e-4)


def test_the_likelier_text_is_the_answer_and_of_equal_ones_the_second():
    model, tokenizer = encoders.model("bert"), encoders.tokenizer("bert")
    low, high = sorted(small.TEXTS[:2], key=lambda text: score_of(model, tokenizer, text))
    rows = [(low, high), (high, low), (low, f"{low} ")]
    examples = [
        Example(str(n), "", "", (good,), choices=(good, bad)) for n, (good, bad) in enumerate(rows)
    ]
    params = AnswerParams(keep="start", head="pairs", choose="pll")
    found = pair_scores.answer(model, tokenizer, examples, params, SPEC)
    assert found == [high, high, f"{low} "]


def score_of(model, tokenizer, text):
    return pair_scores.scores(model, tokenizer, [("", text)], "pll", SPEC)[0]


def test_texts_that_cannot_be_scored_are_one_line():
    model, tokenizer = encoders.model("bert"), encoders.tokenizer("bert")
    spec = Training(max_source=8, micro_tokens=64)
    with pytest.raises(DataError, match=r"the text 'Boats .*' has 9 tokens, and the model reads 8"):
        pair_scores.scores(model, tokenizer, [("", "Boats " * 7)], "pll", spec)
    with pytest.raises(DataError, match="has no token that could be scored: leave it out"):
        pair_scores.scores(model, tokenizer, [("", "\u200b")], "pll", spec)


def test_an_encoder_without_its_head_is_one_line(tmp_path):
    encoders.model("bert").base_model.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"no head for .*: set model.head: own"):
        pair_scores.load(tmp_path)
