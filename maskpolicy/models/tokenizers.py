"""Tokenizers of models of any kind: trained on texts, or loaded from a folder or the Hub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskpolicy.corpus import passages
from maskpolicy.errors import ConfigError
from maskpolicy.models.loading import load_weights, read_config
from maskpolicy.training.specials import has_masks

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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


def load_tokenizer(name: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a folder or Hub name.

    Raises ConfigError if there is none, it is not a fast one, or it lacks a special token.
    """
    tokenizer: PreTrainedTokenizerBase = load_weights(_loader(name), name, revision)
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ConfigError(f"model {name}: has no tokenizer: save one to the same folder")
    if not tokenizer.is_fast:
        raise ConfigError(f"model {name}: its tokenizer is not a fast one (no character offsets)")
    if not has_masks(tokenizer):
        raise ConfigError(
            f"model {name}: its tokenizer has neither a mask token nor sentinels such as "
            "<extra_id_0>: name another model, or add a mask token to tokenizer and model"
        )
    for token, other in (("pad", "pad"), ("eos", "sep")):
        if all(getattr(tokenizer, f"{each}_token_id") is None for each in (token, other)):
            raise ConfigError(f"model {name}: its tokenizer has no {token} token")
    return tokenizer


def _loader(name: str) -> Any:
    """Return the class of Transformers that loads a tokenizer.

    AutoTokenizer imports PyTorch, which takes a second. So a folder without a model, as those of
    `train_tokenizer` are, is loaded by the class that saved it, if that is BART's.
    """
    import transformers

    trained = transformers.BartTokenizer  # RoBERTa's: Transformers has one class for both
    if not Path(name).is_dir() or (Path(name) / "config.json").exists():
        return transformers.AutoTokenizer
    saved = read_config(name, None, "tokenizer_config.json").get("tokenizer_class")
    return trained if saved == trained.__name__ else transformers.AutoTokenizer


def check_vocabulary(tokenizer: Any, model: Any, name: str = "the model") -> None:
    """Raise ConfigError for a tokenizer with more tokens than the model has embeddings."""
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ConfigError(
            f"{name}: has {rows} embeddings, but its tokenizer {len(tokenizer)} tokens: save its "
            "own tokenizer beside it, or call resize_token_embeddings on the model"
        )
