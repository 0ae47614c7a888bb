"""Models that are built from scratch, BART and RoBERTa-style encoders, and their tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from maskpolicy.data.corpus import passages

if TYPE_CHECKING:
    from transformers import BartForConditionalGeneration, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Preset:
    """The shape of a model that is trained from scratch."""

    vocabulary: int  # size of the byte-level BPE, with special tokens
    config: Mapping[str, Any]  # of BartConfig or RobertaConfig
    positions: int  # most tokens of an input
    summary: str
    is_small: bool = False  # several threads would hardly speed up a step


BART_PRESETS: Mapping[str, Preset] = {
    "mini": Preset(
        vocabulary=2000,
        config={
            "d_model": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512,
            "max_position_embeddings": 512,
            "activation_function": "relu",  # on a CPU, gelu's backward in bf16 takes 7% of a step
            "init_std": 0.06,  # at BART's 0.02 it may never learn to copy (docs/log.md)
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
        },
        positions=512,
        summary="2+2 layers of width 128, trained from scratch on the embedded world",
        is_small=True,
    )
}


def _ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {"vocab_size": len(tokenizer), **{name: getattr(tokenizer, name) for name in names}}


def build_bart(
    preset: str, tokenizer: PreTrainedTokenizerBase, seed: int
) -> BartForConditionalGeneration:
    """Return a BART of a preset, its weights drawn from `seed`."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        **_ids(tokenizer),
        decoder_start_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
        **BART_PRESETS[preset].config,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BartForConditionalGeneration(config)
    model.generation_config.forced_bos_token_id = tokenizer.bos_token_id
    return model


_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_OFFSET = 2  # RoBERTa's positions start at pad_token_id (1) + 1

ENCODER_PRESETS: Mapping[str, Preset] = {
    "mini": Preset(
        vocabulary=2000,
        config={
            "hidden_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "intermediate_size": 512,
            "max_position_embeddings": 512 + _OFFSET,
            "type_vocab_size": 1,
            "hidden_act": "relu",  # as in the mini BART
            "initializer_range": 0.06,
            **_NO_DROPOUT,
        },
        positions=512,
        summary="4 layers of width 128, trained from scratch on the embedded world",
        is_small=True,
    ),
    "base": Preset(
        vocabulary=50_265,
        config={
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "max_position_embeddings": 512 + _OFFSET,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
        },
        positions=512,
        summary="12 layers of width 768, RoBERTa-base's shape, trained from scratch",
    ),
}


def build_encoder(
    preset: str,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    *,
    layers: int | None = None,
    relative_positions: bool = False,
) -> Any:
    """Return an encoder of a preset, its weights drawn from `seed`.

    `layers` replaces the preset's number of layers. `relative_positions` adds a bias for each head
    and distance to the attention.
    """
    import torch
    from transformers import RobertaConfig, RobertaModel

    kinds: Any = (RobertaConfig, RobertaModel)
    if relative_positions:
        from maskpolicy.models.relative_positions import RelativeRobertaConfig, RelativeRobertaModel

        kinds = (RelativeRobertaConfig, RelativeRobertaModel)
    shape = dict(ENCODER_PRESETS[preset].config)
    if layers is not None:
        shape["num_hidden_layers"] = layers
    config = kinds[0](**_ids(tokenizer), **shape)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kinds[1](config, add_pooling_layer=False)


SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # BART's and RoBERTa's; their ids are 0 to 4


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE tokenizer with BART's special tokens.

    The first word of a text gets a leading blank like every other word, so that an answer has the
    same tokens alone as within a sentence.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import BartTokenizer

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator(training_texts(texts), trainer)
    learned = json.loads(raw.to_str())["model"]
    merges: Any = [tuple(pair) for pair in learned["merges"]]
    return BartTokenizer(vocab=learned["vocab"], merges=merges, add_prefix_space=True)


def training_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts for training a tokenizer, splitting words of megabytes into pieces.

    The time of a merge grows with the length of the words that contain it. So after the first piece
    of a text, pieces that are a single alphanumeric run (as in encoded files) are dropped.
    """
    for text in texts:
        for number, (first, last) in enumerate(passages.pieces(text)):
            piece = text[first:last]
            if number == 0 or not piece.isalnum():
                yield piece
