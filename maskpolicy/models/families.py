"""Families of models: how each writes masks, what its decoder starts with, what it can do.

A row states facts of Transformers' own classes. Behaviour that a row does not decide follows from
the tokenizer (`training.specials`) and from the model's configuration.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from maskpolicy.config.experiment import RELATIVE, ModelKind
from maskpolicy.errors import ConfigError
from maskpolicy.types import Json

Exclusion = Literal["removed", "unattended", "no"]
"""How `mask_exclusion` hides a mask from the encoder: the mask leaves its input and the other
tokens keep their positions, or it stays and no token attends to it. Both give the same states."""

Head = Literal["linear", "capped", "own"]
"""How logits follow from the decoder's states: by a matrix and a bias (of states that a family may
scale before), by a matrix and a bound (T5Gemma), or as the model's own forward computes them."""

BASE = ("max_position_embeddings", "max_position_embeddings")

_INTERNAL = ("limits", "head", "head_layers", "new_head", "after_padding", "token_types")
"""Facts of a row that only code reads."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of models of Transformers."""

    name: str  # as in model cards
    kind: ModelKind
    types: tuple[str, ...]  # `model_type` of its configurations; (): all others of the kind
    example: str  # a name on the Hub
    masks: str  # the tokens that replace masked text
    start: str = ""  # the decoder's first input token; "": no decoder
    ends: str  # special tokens around a text
    positions: Literal["learned", "sinusoidal", "relative", "rotary", "by its configuration"]
    limits: tuple[str, ...] = BASE  # keys of most source and target tokens; (): no limit
    exclusion: Exclusion
    head: Head = "linear"
    head_layers: tuple[str, ...] = ()  # that make an encoder's logits of states; (): its forward
    new_head: bool = False  # model.head: auto means new
    after_padding: bool = False  # positions are counted from the padding's id on
    token_types: bool = True  # the second of two texts has type 1, if the model knows two types
    note: str = ""  # what else a user should know

    def to_json(self) -> Json:
        """Return what `maskpolicy list models --json` says of the family."""
        about = asdict(self)
        for key in _INTERNAL:
            del about[key]
        return about


FAMILIES: tuple[Family, ...] = (
    Family(
        name="BART",
        kind="seq2seq",
        types=("bart",),
        example="facebook/bart-base",
        masks="<mask>",
        start="</s>",
        ends="<s> text </s>",
        positions="learned",
        exclusion="removed",
    ),
    Family(
        name="mBART",
        kind="seq2seq",
        types=("mbart",),
        example="facebook/mbart-large-50",
        masks="<mask>",
        start="the language code; mBART-50: </s>",
        ends="text </s> language code; mBART-50: language code text </s>",
        positions="learned",
        exclusion="unattended",
        note="the tokenizer's src_lang is the language of all texts",
    ),
    Family(
        name="T5",
        kind="seq2seq",
        types=("t5", "mt5", "umt5"),
        example="google-t5/t5-small",
        masks="<extra_id_0>, <extra_id_1>, ..",
        start="<pad>",
        ends="text </s>",
        positions="relative",
        limits=(),
        exclusion="unattended",
        note="Flan-T5 and mT5 too; max_source and max_target alone bound the texts",
    ),
    Family(
        name="LongT5",
        kind="seq2seq",
        types=("longt5",),
        example="google/long-t5-local-base",
        masks="<extra_id_0>, <extra_id_1>, ..",
        start="<pad>",
        ends="text </s>",
        positions="relative",
        limits=(),
        exclusion="no",
        note="its encoder sums up blocks of tokens, masks among them",
    ),
    Family(
        name="T5Gemma",
        kind="seq2seq",
        types=("t5gemma",),
        example="google/t5gemma-s-s-ul2",
        masks="<mask>",
        start="<bos>",
        ends="<bos> text; targets: text <eos>",
        positions="rotary",
        exclusion="unattended",
        head="capped",
    ),
    Family(
        name="Pegasus",
        kind="seq2seq",
        types=("pegasus",),
        example="google/pegasus-large",
        masks="<mask_1> for whole sentences, else <mask_2>",
        start="<pad>",
        ends="text </s>",
        positions="sinusoidal",
        exclusion="unattended",
    ),
    Family(
        name="LED",
        kind="seq2seq",
        types=("led",),
        example="allenai/led-base-16384",
        masks="<mask>",
        start="</s>",
        ends="<s> text </s>",
        positions="learned",
        limits=("max_encoder_position_embeddings", "max_decoder_position_embeddings"),
        exclusion="unattended",
    ),
    Family(
        name="Blenderbot",
        kind="seq2seq",
        types=("blenderbot",),
        example="facebook/blenderbot-400M-distill",
        masks="<mask>",
        start="<s>",
        ends="text </s>",
        positions="learned",
        exclusion="unattended",
    ),
    Family(
        name="M2M100",
        kind="seq2seq",
        types=("m2m_100",),
        example="facebook/nllb-200-distilled-600M",
        masks="<mask>",
        start="</s>",
        ends="language code text </s>",
        positions="sinusoidal",
        exclusion="unattended",
        note="NLLB's tokenizer has a mask token; M2M100's own gives no character offsets",
    ),
    Family(
        name="Marian",
        kind="seq2seq",
        types=("marian",),
        example="Helsinki-NLP/opus-mt-en-de",
        masks="none of its own",
        start="<pad>",
        ends="text </s>",
        positions="sinusoidal",
        exclusion="unattended",
        note="only with a tokenizer of yours: its own gives no character offsets",
    ),
    Family(
        name="other text-to-text models",
        kind="seq2seq",
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
    Family(
        name="RoBERTa",
        kind="encoder",
        types=("roberta", "xlm-roberta", "camembert", RELATIVE),
        example="FacebookAI/roberta-base",
        masks="<mask>",
        ends="<s> text </s>",
        positions="learned",
        after_padding=True,
        exclusion="removed",
        head_layers=("lm_head",),
        new_head=True,
        token_types=False,
        note="XLM-R and CamemBERT too",
    ),
    Family(
        name="RoBERTa variants",
        kind="encoder",
        types=("data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl"),
        example="facebook/data2vec-text-base",
        masks="<mask>",
        ends="<s> text </s>",
        positions="learned",
        after_padding=True,
        exclusion="removed",
        head_layers=("lm_head",),
        token_types=False,
    ),
    Family(
        name="BERT",
        kind="encoder",
        types=("bert", "ernie", "rembert", "megatron-bert"),
        example="google-bert/bert-base-uncased",
        masks="[MASK]",
        ends="[CLS] text [SEP]",
        positions="learned",
        exclusion="removed",
        head_layers=("cls",),
        note="ERNIE, RemBERT and Megatron-BERT too; its pooler is kept, not trained",
    ),
    Family(
        name="ELECTRA",
        kind="encoder",
        types=("electra",),
        example="google/electra-base-generator",
        masks="[MASK]",
        ends="[CLS] text [SEP]",
        positions="learned",
        exclusion="removed",
        head_layers=("generator_predictions", "generator_lm_head"),
        note="a discriminator gets a new head",
    ),
    Family(
        name="ALBERT",
        kind="encoder",
        types=("albert",),
        example="albert/albert-base-v2",
        masks="[MASK]",
        ends="[CLS] text [SEP]",
        positions="learned",
        exclusion="removed",
        head_layers=("predictions",),
        note="its pooler is kept, not trained",
    ),
    Family(
        name="DistilBERT",
        kind="encoder",
        types=("distilbert",),
        example="distilbert/distilbert-base-uncased",
        masks="[MASK]",
        ends="[CLS] text [SEP]",
        positions="learned",
        exclusion="removed",
        head_layers=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
        token_types=False,
    ),
    Family(
        name="MPNet",
        kind="encoder",
        types=("mpnet",),
        example="microsoft/mpnet-base",
        masks="<mask>",
        ends="<s> text </s>",
        positions="relative",
        after_padding=True,
        exclusion="unattended",
        head_layers=("lm_head",),
        token_types=False,
        note="learned positions too; eager attention",
    ),
    Family(
        name="DeBERTa-v2",
        kind="encoder",
        types=("deberta-v2",),
        example="microsoft/deberta-v3-base",
        masks="[MASK]",
        ends="[CLS] text [SEP]",
        positions="relative",
        exclusion="removed",
        head_layers=("cls",),
        note="DeBERTa-v3 too, which gets a new head; eager attention; with a convolution "
        "(v2-xlarge) masks are unattended instead of removed",
    ),
    Family(
        name="DeBERTa",
        kind="encoder",
        types=("deberta",),
        example="microsoft/deberta-base",
        masks="[MASK]",
        ends="[CLS] text [SEP]",
        positions="relative",
        exclusion="unattended",
        head_layers=("cls",),
        note="eager attention",
    ),
    Family(
        name="ModernBERT",
        kind="encoder",
        types=("modernbert",),
        example="answerdotai/ModernBERT-base",
        masks="[MASK]",
        ends="[CLS] text [SEP]",
        positions="rotary",
        exclusion="removed",
        head_layers=("head", "decoder"),
        note="its windows of local attention are of original positions",
    ),
    Family(
        name="rotary encoders",
        kind="encoder",
        types=("eurobert", "nomic_bert", "gte"),
        example="EuroBERT/EuroBERT-210m",
        masks="the tokenizer's mask token",
        ends="as the tokenizer writes them",
        positions="rotary",
        exclusion="removed",
        head_layers=("cls", "lm_head"),
        note="EuroBERT, NomicBERT and GTE; only from folders that come without code",
    ),
    Family(
        name="other encoders",
        kind="encoder",
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


def family_of(config: Any, kind: ModelKind = "seq2seq") -> Family:
    """Return the family of a model's configuration."""
    return _row(config.model_type, kind)


def _row(model_type: str, kind: ModelKind) -> Family:
    rows = [row for row in FAMILIES if row.kind == kind]
    return next((row for row in rows if model_type in row.types), rows[-1])


def check_exclusion(model_type: str, kind: ModelKind) -> None:
    """Raise ConfigError if mask_exclusion is not supported for models of a type."""
    row = _row(model_type, kind)
    if row.exclusion == "no":
        reason = f" ({row.note})" if row.types else ""
        raise ConfigError(f"mask_exclusion: {model_type} models cannot do it{reason}: set it to 0")
