"""Models that are built from scratch, and their tokenizers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.core.files import read_json
from maskpolicy.core.types import Json
from maskpolicy.data.corpus import passages
from maskpolicy.experiment.definition import CONFIG_FILE, SIZES, WIDTH, ModelBlock
from maskpolicy.experiment.model_and_corpus import check_weights

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


Algorithm: TypeAlias = Literal["bpe", "wordpiece", "unigram"]
Style: TypeAlias = Literal["bart", "bert", "bert-typed", "t5"]
"""The model whose special tokens a tokenizer has; typed: the second text has type 1."""
_POSITIONS = 512
_LARGEST = 2**20  # of the numbers in a configuration file, e.g. positions
_UNLIMITED = 2**31  # T5's positions are relative
SPECIAL = ("pad", "bos", "eos", "cls", "sep")
_LEFT_OUT = {  # keys of configuration files: those of the tokenizer and of saved weights
    *("vocab_size", "architectures", "transformers_version", "decoder_start_token_id"),
    *("dtype", "torch_dtype"),
    *(f"{name}_token_id" for name in SPECIAL),
}


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The shape of a model that is trained from scratch."""

    config: Mapping[str, Any]  # of its class of configurations in Transformers
    summary: str
    vocabulary: int = 8000  # size of the tokenizer, with special tokens
    positions: int = _POSITIONS  # most tokens of an input
    # of an architecture: its keys for each of `definition.SIZES` and for the standard deviation of
    # its first weights, and its tokenizer
    sizes: Mapping[str, tuple[str, ...]] | None = None
    algorithm: Algorithm = "bpe"
    style: Style = "bart"
    is_small: bool = False  # several threads would hardly speed up a step


_ENCODER = {
    "layers": ("num_hidden_layers",),
    "width": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "feed_forward": ("intermediate_size",),
    "deviation": ("initializer_range",),
}


def _architecture(name: str, sizes: Mapping[str, tuple[str, ...]], **more: Any) -> Preset:
    config = {"model_type": name, **more.pop("config", {"max_position_embeddings": _POSITIONS})}
    summary = f"{name} with layers, width, heads, .. of `model`, trained from scratch on your text"
    return Preset(config=config, summary=summary, sizes=sizes, **more)


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
            "init_std": 0.06,  # at BART's 0.02 it may never learn to copy (docs/development/log.md)
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
        },
        summary="2+2 layers of width 128, trained from scratch on the embedded world",
        is_small=True,
    ),
    "bart": _architecture(
        "bart",
        {
            "layers": ("encoder_layers", "decoder_layers"),
            "width": ("d_model",),
            "heads": ("encoder_attention_heads", "decoder_attention_heads"),
            "feed_forward": ("encoder_ffn_dim", "decoder_ffn_dim"),
            "deviation": ("init_std",),
        },
    ),
    "t5": _architecture(
        "t5",
        {
            "layers": ("num_layers", "num_decoder_layers"),
            "width": ("d_model",),
            "heads": ("num_heads",),
            "feed_forward": ("d_ff",),
        },
        config={},
        positions=_UNLIMITED,
        algorithm="unigram",
        style="t5",
    ),
}


def build_bart(preset: str, tokenizer: PreTrainedTokenizerBase, seed: int) -> Any:
    """Return a BART of a preset, its weights drawn from `seed`."""
    config = {"model_type": "bart", **BART_PRESETS[preset].config}
    model = build(config, tokenizer, seed, ("pad", "bos", "eos"))
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
        summary="12 layers of width 768, RoBERTa-base's shape, trained from scratch",
    ),
    "bert": _architecture("bert", _ENCODER, algorithm="wordpiece", style="bert-typed"),
    "modernbert": _architecture("modernbert", _ENCODER, style="bert"),
    "roberta": _architecture(
        "roberta",
        _ENCODER,
        config={
            "max_position_embeddings": _POSITIONS + _OFFSET,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
        },
    ),
}


PRESETS = {"seq2seq": BART_PRESETS, "encoder": ENCODER_PRESETS}


def preset(model: ModelBlock) -> Preset:
    """Return the preset or architecture that a model is built from.

    Raises DataError or ConfigError for a configuration file that cannot be used.
    """
    presets = PRESETS[model.kind]
    if not model.name.endswith(CONFIG_FILE):
        return presets[model.name]
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    written = read_json(Path(model.name), "correct it")
    name = str(written.get("model_type")) if isinstance(written, dict) else ""
    architectures = {each: row.sizes for each, row in presets.items() if row.sizes is not None}
    if name not in architectures:
        known = unknown("model_type", name, architectures)
        raise ConfigError(f"model {model.name}: {known} to build from scratch")
    config = {key: each for key, each in written.items() if key not in _LEFT_OUT}
    sizes = [[config.get(key) for key in architectures[name].get(size, ())] for size in SIZES]
    types = config.get("type_vocab_size", 1)
    _check_counts(model, types, *(each for row in sizes for each in row if each is not None))
    try:
        whole = AutoConfig.for_model(**config)
    except (StrictDataclassError, ArithmeticError, TypeError, ValueError, LookupError) as error:
        raise ConfigError(f"model {model.name}: {' '.join(str(error).split())}") from error
    is_limited = presets[name].positions != _UNLIMITED
    positions = [whole.max_position_embeddings] if is_limited else []
    _check_counts(model, *positions)
    layers, width, _, inner = (max(each or 1 for each in [1, *row]) for row in sizes)
    vectors = (model.vocabulary or presets[name].vocabulary) + sum(positions) + types
    check_weights(layers, width, inner, vectors, f"model {model.name}")
    limit = positions[0] - _OFFSET * (name == "roberta") if is_limited else _UNLIMITED
    return replace(presets[name], config=config, positions=limit, sizes={})


def _check_counts(model: ModelBlock, *counts: Any) -> None:
    for count in counts:
        if type(count) is not int or not 1 <= count <= _LARGEST:
            raise ConfigError(f"model {model.name}: {count!r} is not an integer in 1..{_LARGEST}")


def config_of(model: ModelBlock) -> dict[str, Json] | None:
    """Return the configuration of a model of an architecture; None for a preset."""
    shape = preset(model)
    if shape.sizes is None:
        return None
    width = model.width or WIDTH
    values = {
        "layers": model.layers or 4,
        "width": width,
        "heads": model.attention_heads,
        "feed_forward": model.feed_forward or 4 * width,
        # Nguyen and Salazar (2019); with 0.02 a narrow model learns later (docs/development/log.md)
        "deviation": round(math.sqrt(2 / (5 * width)), 4),
    }
    config = {key: values[name] for name in shape.sizes for key in shape.sizes[name]}
    if "d_ff" in config:  # T5 also states the width of a head
        config["d_kv"] = width // values["heads"]
    return {**shape.config, **config}


def build(
    config: Mapping[str, Any],
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    special: Sequence[str] = SPECIAL,
) -> Any:
    """Return the model of a configuration, its weights drawn from `seed`; an encoder has no head.

    The tokenizer decides the ids of the `special` tokens and the vocabulary size. Raises
    ConfigError for a configuration that Transformers cannot build.
    """
    import torch
    from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    t = tokenizer
    try:
        made = AutoConfig.for_model(**{**config, **_ids(t, special)})
        if made.model_type == "roberta":  # whose positions the file counts for the usual padding
            made.max_position_embeddings += t.pad_token_id + 1 - _OFFSET
        is_text = made.is_encoder_decoder
        if is_text:
            made.decoder_start_token_id = (
                t.pad_token_id if t.bos_token_id is None else t.eos_token_id
            )
            made.forced_eos_token_id = None
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            factory: Any = AutoModelForSeq2SeqLM if is_text else AutoModelForMaskedLM
            model = factory.from_config(made)
    except (TypeError, ValueError, LookupError, RuntimeError) as error:
        raise ConfigError(f"model: cannot be built: {str(error).splitlines()[0]}") from error
    return model if is_text else model.base_model


def _ids(tokenizer: PreTrainedTokenizerBase, special: Sequence[str]) -> dict[str, int]:
    names = [f"{name}_token_id" for name in special]
    return {"vocab_size": len(tokenizer), **{name: getattr(tokenizer, name) for name in names}}


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
    config = kinds[0](**_ids(tokenizer, ("pad", "bos", "eos")), **shape)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kinds[1](config, add_pooling_layer=False)


_NAMES: Mapping[Style, Mapping[str, str]] = {
    "bart": {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"},
    "bert": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
    "t5": {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"},
}
_STYLES: Mapping[Style, Style] = {"bert-typed": "bert"}  # styles with the special tokens of another
_SENTINELS = 100  # of T5
_DIGITS = 3  # of the scores of a unigram model, whose last digits differ from process to process
_AT_A_TIME = 1000  # texts


def train_tokenizer(
    texts: Iterable[str], vocabulary: int, algorithm: Algorithm = "bpe", style: Style = "bart"
) -> PreTrainedTokenizerBase:
    """Train a cased tokenizer with the special tokens of BART, BERT or T5; BPE is byte-level.

    WordPiece and unigram models read `texts` more than once.
    The first word of a text gets a leading blank like every other word, so an answer has the same
    tokens alone and within a sentence.
    """
    from tokenizers import processors
    from transformers import BartTokenizer, PreTrainedTokenizerFast

    names = _NAMES[_STYLES.get(style, style)]
    sentinels = [f"<extra_id_{n}>" for n in range(_SENTINELS)] if style == "t5" else []
    raw = _trained(texts, algorithm, vocabulary, [*names.values(), *sentinels], names["unk"])
    if (algorithm, style) == ("bpe", "bart"):
        learned = json.loads(raw.to_str())["model"]
        merges: Any = [tuple(pair) for pair in learned["merges"]]
        return BartTokenizer(vocab=learned["vocab"], merges=merges, add_prefix_space=True)
    first, last = names.get("cls", names.get("bos")), names.get("sep", names.get("eos"))
    typed = ":1" if style == "bert-typed" else ""  # the type of the second text
    ended = ["$A", last], ["$A", last, f"$B{typed}", f"{last}{typed}"]
    one, two = (" ".join(filter(None, [first, *tokens])) for tokens in ended)
    ends = [(name, raw.token_to_id(name)) for name in (first, last) if name]
    raw.post_processor = processors.TemplateProcessing(single=one, pair=two, special_tokens=ends)
    given: dict[str, Any] = {f"{name}_token": token for name, token in names.items()}
    if typed:
        given["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, additional_special_tokens=sentinels or None, **given
    )


def _trained(
    texts: Iterable[str], algorithm: Algorithm, vocabulary: int, special: list[str], unknown: str
) -> Any:
    """Return a trained tokenizer, the same in every process, without what surrounds a text.

    The trainers of `tokenizers` read words in an order that differs from process to process, on
    which vocabularies of WordPiece and scores of unigram models depend.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    settings: dict[str, Any] = {
        "vocab_size": vocabulary,
        "special_tokens": special,
        "show_progress": False,
    }
    if algorithm == "bpe":
        raw = Tokenizer(models.BPE())
        raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        raw.decoder = decoders.ByteLevel()
        settings["initial_alphabet"] = sorted(pre_tokenizers.ByteLevel.alphabet())
        raw.train_from_iterator(training_texts(texts), trainers.BpeTrainer(**settings))
        return raw
    if algorithm == "wordpiece":
        raw = Tokenizer(models.WordPiece(unk_token=unknown))
        raw.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
        raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        raw.decoder = decoders.WordPiece()
        alphabet, inner = _alphabet(raw, texts, (vocabulary - len(special)) // 2)
        settings |= {"special_tokens": [*special, *inner], "initial_alphabet": alphabet}
        settings["limit_alphabet"] = len(alphabet)
        pieces = _learned(raw, texts, trainers.WordPieceTrainer(**settings))
        raw.model = models.WordPiece(pieces, unk_token=unknown)
    else:
        raw = Tokenizer(models.Unigram())
        raw.normalizer = normalizers.NFKC()
        raw.pre_tokenizer = pre_tokenizers.Metaspace()
        raw.decoder = decoders.Metaspace()
        learned = _learned(raw, texts, trainers.UnigramTrainer(**settings, unk_token=unknown))
        rest = sorted((piece, round(score, _DIGITS)) for piece, score in learned[len(special) :])
        first, unk = [(token, 0.0) for token in special], special.index(unknown)
        raw.model = models.Unigram([*first, *rest], unk)
        counts: Counter[str] = Counter()
        every = training_texts(texts)
        while batch := list(islice(every, _AT_A_TIME)):
            for encoded in raw.encode_batch(batch):
                counts.update(encoded.tokens)
        scores = [(piece, math.log((counts[piece] + 1) / counts.total())) for piece, _ in rest]
        raw.model = models.Unigram([*first, *sorted(scores, key=lambda p: (-p[1], p[0]))], unk)
    raw.add_special_tokens(special)
    return raw


def _learned(raw: Any, texts: Iterable[str], trainer: Any) -> Any:
    """Return the vocabulary that a copy of a tokenizer learns."""
    copy = type(raw).from_str(raw.to_str())
    copy.train_from_iterator(training_texts(texts), trainer)
    return json.loads(copy.to_str())["model"]["vocab"]


def _alphabet(raw: Any, texts: Iterable[str], most: int) -> tuple[list[str], list[str]]:
    """Return the `most` frequent characters, and the pieces of those that go on a word.

    The normalizer puts blanks around a Chinese character, which is then a word.
    """
    counts: Counter[str] = Counter()
    for text in training_texts(texts):
        counts.update(text)
    normal = raw.normalizer.normalize_str
    known = [char for char in sorted(counts) if normal(char).strip() == char]
    alphabet = sorted(sorted(known, key=counts.__getitem__, reverse=True)[:most])
    goes_on = [len(raw.pre_tokenizer.pre_tokenize_str(normal(f"a{char}"))) for char in alphabet]
    return alphabet, [f"##{char}" for char, n in zip(alphabet, goes_on, strict=True) if n == 1]


def training_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts to train a tokenizer on, without words of megabytes.

    The time of a merge grows with the length of words. So texts are split into pieces, and after
    the first piece, those that are one alphanumeric run (as in encoded files) are dropped.
    """
    for text in texts:
        for number, (first, last) in enumerate(passages.pieces(text)):
            piece = text[first:last]
            if number == 0 or not piece.isalnum():
                yield piece
