"""A tokenizer that is saved with padding or truncation is read as one with neither."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
import small
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from maskpolicy import MaskingCollator
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.models.finetuning.encoder_tasks import TwoTexts
from maskpolicy.models.loading import load_tokenizer, pads_or_truncates
from maskpolicy.models.training import steps
from maskpolicy.models.training.specials import Specials, added_ends

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
    each for each in product(PADDING, TRUNCATION, ("left", "right")) if each[:2] != ("none",) * 2
]


@cache
def trained(model):
    """Return a tokenizer without a post-processor as JSON."""
    raw = Tokenizer(MODELS[model][0])
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.train_from_iterator(small.TEXTS, MODELS[model][1])
    return raw.to_str()


def tokenizer(model, post, padding="none", truncation="none", side="right"):
    """Return a tokenizer of the `tokenizers` package, with what it would be saved with."""
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


@pytest.mark.parametrize("post", POST)
@pytest.mark.parametrize("model", MODELS)
def test_padding_and_truncation_change_nothing(model, post, tmp_path):
    plain = tokenizer(model, post)
    ends, expected, two = (
        added_ends(plain),
        read(plain),
        TwoTexts.of(plain) if post != "end" else None,
    )
    collator = {"seed": 3, "max_source": 24}
    batch = MaskingCollator("random", plain, **collator)([{"text": text} for text in small.TEXTS])
    assert len(ends[0]) == (post not in ("none", "end"))
    assert len(ends[1]) == (post != "none")
    plain.save_pretrained(tmp_path / "plain")
    assert not pads_or_truncates(str(tmp_path / "plain"))
    for padding, truncation, side in SAVED:
        saved = tokenizer(model, post, padding, truncation, side)
        before = saved.backend_tokenizer.to_str()
        assert added_ends(saved) == ends
        if two is not None:
            assert TwoTexts.of(saved) == two
        assert read(saved) == expected
        again = MaskingCollator("random", saved, **collator)(
            [{"text": text} for text in small.TEXTS]
        )
        assert all(torch.equal(again[key], batch[key]) for key in batch)
        assert saved.backend_tokenizer.to_str() == before
        saved.save_pretrained(tmp_path)
        assert pads_or_truncates(str(tmp_path))
        loaded = load_tokenizer(str(tmp_path))
        assert (loaded.backend_tokenizer.padding, loaded.backend_tokenizer.truncation) == (
            None,
            None,
        )
        kept = load_tokenizer(str(tmp_path), as_saved=True).backend_tokenizer
        assert (kept.padding, kept.truncation) == (
            saved.backend_tokenizer.padding,
            saved.backend_tokenizer.truncation,
        )
        assert added_ends(loaded) == ends
        assert np.array_equal(
            steps.tokenize(small.TEXTS, loaded).flat, steps.tokenize(small.TEXTS, plain).flat
        )
