"""Tokenizers and tiny random models of families of text-to-text models, for tests."""

import json
import sys
from functools import cache
from typing import Any

import small
import torch
import transformers as modules
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from maskpolicy.models.scratch import train_tokenizer

transformers: Any = modules

TEXTS = (*small.TEXTS, "The cute dog walks in the park.", "All dogs walk. Dogs are cute.")
SIZES = {"encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 16}
BART_LIKE = {**SIZES, **HEADS, "init_std": 0.2, "dropout": 0.0, "attention_dropout": 0.0}
T5_LIKE = {
    **{"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 1},
    **{"num_heads": 2, "dropout_rate": 0.0, "decoder_start_token_id": 0},
}
NAMES = (
    *("bart", "mbart", "mbart50", "t5", "t5 untied", "mt5", "umt5", "longt5", "t5gemma"),
    *("pegasus", "led", "blenderbot", "nllb", "marian", "bert2bert"),
)

TOKENIZERS = (
    *("bart", "mbart", "mbart50", "t5", "t5gemma"),
    *("pegasus", "blenderbot", "nllb", "marian", "bert2bert"),
)
"""Families whose tokenizers differ."""
T5S = {"t5": "T5", "t5 untied": "T5", "mt5": "MT5", "umt5": "UMT5", "longt5": "LongT5"}
"""Transformers' names of families with T5's tokenizer and settings."""


@cache
def pieces(texts: tuple[str, ...] = TEXTS, size: int = 200) -> tuple[tuple[str, float], ...]:
    """Return a Unigram vocabulary of the pieces of a BPE, which are the same in every process.

    It has no special tokens, and no piece with letters and punctuation. Few pieces score higher.
    """
    vocab, _ = _bpe([], texts, size)
    kept = (piece for piece in vocab if len(piece) == 1 or piece.strip("▁").isalnum())
    return tuple((piece, -10 - vocab[piece] / 1000) for piece in sorted(kept, key=vocab.get))


def specials(*names: str) -> list[tuple[str, float]]:
    """Return special tokens as entries of a Unigram vocabulary."""
    return [(name, 0.0) for name in names]


@cache
def tokenizer(name: str, texts: tuple[str, ...] = TEXTS, size: int = 200) -> Any:
    """Return a tokenizer of the family's own class, not to be changed.

    Those of T5, Pegasus, T5Gemma and BERT are trained on `texts`.
    """
    t = transformers
    if name in T5S:
        extra = specials(*(f"<extra_id_{i}>" for i in reversed(range(20))))
        vocab = [*specials("<pad>", "</s>", "<unk>"), *pieces(texts, size), *extra]
        return t.T5Tokenizer(vocab=vocab, extra_ids=20)
    if name == "pegasus":
        own = specials(
            "<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 5))
        )
        return t.PegasusTokenizer(vocab=[*own, *specials("<unk>"), *pieces(texts, size)], offset=5)
    if name in ("mbart", "mbart50"):
        made = t.MBartTokenizer if name == "mbart" else t.MBart50Tokenizer
        codes = sys.modules[made.__module__].FAIRSEQ_LANGUAGE_CODES
        own = specials("<s>", "<pad>", "</s>", "<unk>")
        vocab = [*own, *pieces(), *specials(*codes, "<mask>")]
        return made(vocab=vocab, src_lang="en_XX")
    if name == "nllb":
        return _nllb()
    if name == "t5gemma":
        return _gemma(texts, size)
    if name == "blenderbot":
        learned, merges = _byte_level(small.tokenizer())
        return adding(t.BlenderbotTokenizer(vocab=learned, merges=merges), "$A </s>")
    if name == "marian":
        made = t.T5Tokenizer(vocab=[*specials("<pad>", "</s>", "<unk>"), *pieces()], extra_ids=0)
        made.add_special_tokens({"mask_token": "<mask>"})
        return made
    if name == "bert2bert":
        return _wordpiece(texts, size)
    return small.tokenizer()


def adding(made: Any, template: str) -> Any:
    """Return a tokenizer that adds special tokens, as the file of the published one says."""
    names = [part for part in template.split() if part != "$A"]
    ids = [(part, made.convert_tokens_to_ids(part)) for part in names]
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single=template, pair=f"{template} $B", special_tokens=ids
    )
    return made


def _byte_level(made: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    model = json.loads(made.backend_tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def _bpe(
    own: list[str], texts: tuple[str, ...] = TEXTS, size: int = 260
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return a BPE of text in which blanks are ▁, with special tokens in front."""
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=own, show_progress=False)
    raw.train_from_iterator(texts, trainer)
    model = json.loads(raw.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def _nllb() -> Any:
    vocab, merges = _bpe(["<s>", "<pad>", "</s>", "<unk>"])
    return transformers.NllbTokenizer(
        vocab=vocab,
        merges=merges,
        src_lang="eng_Latn",
        additional_special_tokens=["eng_Latn", "fra_Latn"],
    )


def _gemma(texts: tuple[str, ...], size: int) -> Any:
    vocab, merges = _bpe(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"], texts, size + 60)
    return adding(transformers.GemmaTokenizer(vocab=vocab, merges=merges), "<bos> $A")


def _wordpiece(texts: tuple[str, ...], size: int) -> Any:
    learned: dict[str, int] = train_tokenizer(texts, size, "wordpiece", "bert").get_vocab()
    return transformers.BertTokenizer(vocab=learned, do_lower_case=False)


_CODED = {"scale_embedding": True}
_BARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("Bart", {}),
    "mbart": ("MBart", _CODED),
    "mbart50": ("MBart", {**_CODED, "decoder_start_token_id": 2}),
    "pegasus": ("Pegasus", _CODED),
    "led": (
        "LED",
        {
            **{"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 32},
            "attention_window": 8,
        },
    ),
    "blenderbot": (
        "Blenderbot",
        {"decoder_start_token_id": 0, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
    ),
    "nllb": ("M2M100", {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}),
    "marian": ("Marian", {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}),
}
"""Transformers' names of families with BART's settings, and their own settings."""


def model(name: str, seed: int = 0, **settings: Any) -> Any:
    """Return a tiny random model of a family, in evaluation mode."""
    t, size = transformers, {"vocab_size": len(tokenizer(name))}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name in _BARTS:
            family, own = _BARTS[name]
            most = {} if name == "led" else {"max_position_embeddings": 64}
            config = getattr(t, f"{family}Config")(**size | most | BART_LIKE | own | settings)
            kind = "MarianMTModel" if name == "marian" else f"{family}ForConditionalGeneration"
            made = getattr(t, kind)(config)
        elif name == "t5gemma":
            made = _t5gemma(size["vocab_size"], settings)
        elif name == "bert2bert":
            made = _bert2bert(size["vocab_size"])
        else:
            own = {"tie_word_embeddings": False} if name == "t5 untied" else {}
            config = getattr(t, f"{T5S[name]}Config")(**size, **T5_LIKE | own | settings)
            made = getattr(t, f"{T5S[name]}ForConditionalGeneration")(config)
    return made.eval()


def _t5gemma(vocabulary: int, settings: dict[str, Any]) -> Any:
    t = transformers
    part = {
        **{"vocab_size": vocabulary, "hidden_size": 16, "intermediate_size": 32},
        **{"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1},
        **{"head_dim": 8, "max_position_embeddings": 64, "initializer_range": 0.2},
        **{"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2},
    }
    config = t.T5GemmaConfig(encoder=part, decoder=dict(part), vocab_size=vocabulary, **settings)
    return t.T5GemmaForConditionalGeneration(config)


def _bert2bert(vocabulary: int) -> Any:
    t = transformers
    part = {
        **{"vocab_size": vocabulary, "hidden_size": 16, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 64},
    }
    both = t.EncoderDecoderConfig.from_encoder_decoder_configs(
        t.BertConfig(**part), t.BertConfig(**part)
    )
    both.decoder_start_token_id = tokenizer("bert2bert").cls_token_id
    both.pad_token_id = tokenizer("bert2bert").pad_token_id
    return t.EncoderDecoderModel(both)
