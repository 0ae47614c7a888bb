"""Families of models: their masks, the first input of their decoders, and their abilities.

A row states facts of Transformers' own classes. All other behaviour depends on the tokenizer
(`training.specials`) and on the model's configuration.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Json
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import RELATIVE, ModelKind

Exclusion = Literal["removed", "unattended", "no"]
"""How `mask_exclusion` hides a mask from the encoder: it is removed from the input, where the other
tokens keep their positions, or it stays and no token attends to it. Both give the same states."""

Head = Literal["linear", "capped", "own"]
"""How logits are computed from the decoder's states: with a matrix and a bias, after a scale in
some families; with a matrix and a bound (T5Gemma); or by the model's own forward."""

BASE = ("max_position_embeddings", "max_position_embeddings")

_INTERNAL = ("limits", "head", "head_layers", "new_head", "after_padding", "token_types")
"""Facts of a row that only code reads."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of models of Transformers."""

    name: str  # as in model cards
    kind: ModelKind = "seq2seq"
    types: tuple[str, ...]  # `model_type` of its configurations; (): all others of the kind
    example: str  # a name on the Hub
    masks: str = "<mask>"  # the tokens that replace masked text
    start: str = ""  # the decoder's first input token; "": no decoder
    ends: str = "text </s>"  # special tokens around a text
    positions: Literal["learned", "sinusoidal", "relative", "rotary", "by its configuration"] = (
        "learned"
    )
    limits: tuple[str, ...] = BASE  # keys of most source and target tokens; (): no limit
    exclusion: Exclusion = "unattended"
    head: Head = "linear"
    head_layers: tuple[str, ...] = ()  # that make an encoder's logits of states; (): its forward
    new_head: bool = False  # model.head: auto means new
    after_padding: bool = False  # positions are counted from the padding's id on
    token_types: bool = True  # the second of two texts has type 1, if the model knows two types
    note: str = ""  # what else a user should know

    def to_json(self) -> Json:
        """Return the family's row of `maskpolicy list models --json`."""
        about = asdict(self)
        for key in _INTERNAL:
            del about[key]
        return about


_bert_like = partial(
    Family, kind="encoder", masks="[MASK]", ends="[CLS] text [SEP]", exclusion="removed"
)
_roberta_like = partial(
    Family,
    kind="encoder",
    ends="<s> text </s>",
    exclusion="removed",
    after_padding=True,
    head_layers=("lm_head",),
    token_types=False,
)
FAMILIES: tuple[Family, ...] = (
    Family(
        name="BART",
        types=("bart",),
        example="facebook/bart-base",
        start="</s>",
        ends="<s> text </s>",
        exclusion="removed",
    ),
    Family(
        name="mBART",
        types=("mbart",),
        example="facebook/mbart-large-50",
        start="the language code; mBART-50: </s>",
        ends="text </s> language code; mBART-50: language code text </s>",
        note="the tokenizer's src_lang is the language of all texts",
    ),
    Family(
        name="T5",
        types=("t5", "mt5", "umt5"),
        example="google-t5/t5-small",
        masks="<extra_id_0>, <extra_id_1>, ..",
        start="<pad>",
        positions="relative",
        limits=(),
        note="Flan-T5 and mT5 too; max_source and max_target alone bound the texts",
    ),
    Family(
        name="LongT5",
        types=("longt5",),
        example="google/long-t5-local-base",
        masks="<extra_id_0>, <extra_id_1>, ..",
        start="<pad>",
        positions="relative",
        limits=(),
        exclusion="no",
        note="its encoder sums up blocks of tokens, masks among them",
    ),
    Family(
        name="T5Gemma",
        types=("t5gemma",),
        example="google/t5gemma-s-s-ul2",
        start="<bos>",
        ends="<bos> text; targets: text <eos>",
        positions="rotary",
        head="capped",
    ),
    Family(
        name="Pegasus",
        types=("pegasus",),
        example="google/pegasus-large",
        masks="<mask_1> for whole sentences, else <mask_2>",
        start="<pad>",
        positions="sinusoidal",
    ),
    Family(
        name="LED",
        types=("led",),
        example="allenai/led-base-16384",
        start="</s>",
        ends="<s> text </s>",
        limits=("max_encoder_position_embeddings", "max_decoder_position_embeddings"),
    ),
    Family(
        name="Blenderbot",
        types=("blenderbot",),
        example="facebook/blenderbot-400M-distill",
        start="<s>",
    ),
    Family(
        name="M2M100",
        types=("m2m_100",),
        example="facebook/nllb-200-distilled-600M",
        start="</s>",
        ends="language code text </s>",
        positions="sinusoidal",
        note="NLLB's tokenizer has a mask token; M2M100's own gives no character offsets",
    ),
    Family(
        name="Marian",
        types=("marian",),
        example="Helsinki-NLP/opus-mt-en-de",
        masks="none of its own",
        start="<pad>",
        positions="sinusoidal",
        note="only with a tokenizer of yours: its own gives no character offsets",
    ),
    Family(
        name="other text-to-text models",
        types=(),
        example="google/bigbird-pegasus-large-arxiv",
        masks="the tokenizer's sentinels or mask token",
        start="decoder_start_token_id",
        ends="as the tokenizer writes them",
        positions="by its configuration",
        exclusion="no",
        head="own",
        note="whatever AutoModelForSeq2SeqLM loads",
    ),
    _roberta_like(
        name="RoBERTa",
        types=("roberta", "xlm-roberta", "camembert", RELATIVE),
        example="FacebookAI/roberta-base",
        new_head=True,
        note="XLM-R and CamemBERT too",
    ),
    _roberta_like(
        name="RoBERTa variants",
        types=("data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl"),
        example="facebook/data2vec-text-base",
    ),
    _bert_like(
        name="BERT",
        types=("bert", "ernie", "rembert", "megatron-bert"),
        example="google-bert/bert-base-uncased",
        head_layers=("cls",),
        note="ERNIE, RemBERT and Megatron-BERT too; its pooler is kept, not trained",
    ),
    _bert_like(
        name="ELECTRA",
        types=("electra",),
        example="google/electra-base-generator",
        head_layers=("generator_predictions", "generator_lm_head"),
        note="a discriminator gets a new head",
    ),
    _bert_like(
        name="ALBERT",
        types=("albert",),
        example="albert/albert-base-v2",
        head_layers=("predictions",),
        note="its pooler is kept, not trained",
    ),
    _bert_like(
        name="DistilBERT",
        types=("distilbert",),
        example="distilbert/distilbert-base-uncased",
        head_layers=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
        token_types=False,
    ),
    _roberta_like(
        name="MPNet",
        types=("mpnet",),
        example="microsoft/mpnet-base",
        positions="relative",
        exclusion="unattended",
        note="learned positions too; eager attention",
    ),
    _bert_like(
        name="DeBERTa-v2",
        types=("deberta-v2",),
        example="microsoft/deberta-v3-base",
        positions="relative",
        head_layers=("cls",),
        note="DeBERTa-v3 too, which gets a new head; eager attention; with a convolution "
        "(v2-xlarge) masks are unattended instead of removed",
    ),
    _bert_like(
        name="DeBERTa",
        types=("deberta",),
        example="microsoft/deberta-base",
        positions="relative",
        exclusion="unattended",
        head_layers=("cls",),
        note="eager attention",
    ),
    _bert_like(
        name="ModernBERT",
        types=("modernbert",),
        example="answerdotai/ModernBERT-base",
        positions="rotary",
        head_layers=("head", "decoder"),
        note="its windows of local attention are of original positions",
    ),
    _bert_like(
        name="rotary encoders",
        types=("eurobert", "nomic_bert", "gte"),
        example="EuroBERT/EuroBERT-210m",
        masks="the tokenizer's mask token",
        ends="as the tokenizer writes them",
        positions="rotary",
        head_layers=("cls", "lm_head"),
        note="EuroBERT, NomicBERT and GTE; only from folders that come without code",
    ),
    _bert_like(
        name="other encoders",
        types=(),
        example="google/bigbird-roberta-base",
        masks="the tokenizer's mask token",
        ends="as the tokenizer writes them",
        positions="by its configuration",
        exclusion="no",
        note="whatever AutoModelForMaskedLM loads",
    ),
)
"""Every family, the rows with `types=()` after the others of their kind."""


def family_of(config: Any) -> Family:
    """Return the family of a model's configuration."""
    return family_of_type(config.model_type, "seq2seq" if config.is_encoder_decoder else "encoder")


def family_of_type(model_type: str, kind: str) -> Family:
    """Return the family of models of a type and kind."""
    rows = [row for row in FAMILIES if row.kind == kind]
    return next((row for row in rows if model_type in row.types), rows[-1])


def freeze_constants(model: Any) -> None:
    """Keep weights that get no gradient out of training: they would still decay.

    These are sinusoidal positions (Pegasus, Marian, RoFormer) and the weights of Longformer and LED
    for global attention, which no token here has.
    """
    for module in model.modules():
        if "SinusoidalPositionalEmbedding" in type(module).__name__:
            module.requires_grad_(False)
    for name, weight in model.named_parameters():
        if "_global." in name:
            weight.requires_grad_(False)


def check_exclusion(model_type: str, kind: ModelKind) -> None:
    """Raise ConfigError if mask_exclusion is not supported for models of a type."""
    row = family_of_type(model_type, kind)
    if row.exclusion == "no":
        reason = f" ({row.note})" if row.types else ""
        raise ConfigError(f"mask_exclusion: {model_type} models cannot do it{reason}: set it to 0")


def limits(config: Any) -> tuple[int | None, int | None]:
    """Return the most tokens of a source and of a target for a model of this configuration.

    None: the positions set no limit, as with T5's relative ones; max_source and max_target do.
    """
    if not config.is_encoder_decoder:
        return _of_encoder(config), _of_encoder(config)
    if config.model_type == "encoder-decoder":  # of two models with families of their own
        return _of_encoder(config.encoder), _of_encoder(config.decoder)
    keys = family_of(config).limits
    if not keys:
        return None, None
    both = getattr(config, "encoder", config), getattr(config, "decoder", config)
    found = [getattr(part, key, None) for part, key in zip(both, keys, strict=True)]
    return found[0], found[1]


def _of_encoder(config: Any) -> int | None:
    most: int | None = getattr(config, BASE[0], None)
    row = family_of(config)
    # relatives of RoBERTa that have no row count from the padding on, whose id is 1
    after_padding = row.after_padding or (not row.types and config.pad_token_id == 1)
    return most - config.pad_token_id - 1 if most is not None and after_padding else most


def reads_types(config: Any) -> bool:
    """Return whether an encoder reads the second of two texts with token type 1."""
    types: int = getattr(config, "type_vocab_size", 0)
    return family_of(config).token_types and types > 1


def bounded(spec: Training, model: Any) -> Training:
    """Return `spec` with max_source and max_target limited to the model's positions."""
    return within(spec, limits(model.config))


def within(spec: Training, most: tuple[int | None, int | None]) -> Training:
    """Return `spec` with max_source and max_target limited to `most`; None: no limit."""
    source, target = most
    return replace(
        spec,
        max_source=spec.max_source if source is None else min(spec.max_source, source),
        max_target=spec.max_target if target is None else min(spec.max_target, target),
    )
