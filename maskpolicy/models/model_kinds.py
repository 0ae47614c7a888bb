"""The two kinds of models: how each is built, loaded, trained and saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskpolicy.core.schema import omitted
from maskpolicy.core.types import Denoising, Json
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import ENCODER, SEQ2SEQ, ModelBlock, ModelKind
from maskpolicy.experiment.policy_blocks import AT_POSITIONS
from maskpolicy.masking.denoising import DenoisingPairs
from maskpolicy.models import encoders, scratch, text_to_text
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.training.batching import Loss, Pairs
from maskpolicy.models.training.specials import Specials, check_tokens

IMPORTS = ("torch", "transformers.modeling_utils")
"""Modules that every model needs and that take seconds to import."""


@dataclass(frozen=True, kw_only=True)
class ModelParams:
    """Parameters of a model in a stage's key; none for a text-to-text model."""

    kind: ModelKind = omitted("seq2seq")
    decoder_layers: int = omitted(ModelBlock.decoder_layers, lambda own: own.kind == SEQ2SEQ)


@dataclass(frozen=True, kw_only=True)
class FreshParams(ModelParams):
    """Parameters of a model that is built from scratch."""

    preset: str
    layers: int | None = omitted(None, lambda own: own.kind == SEQ2SEQ)  # None: the preset's
    relative_positions: bool = omitted(False)
    config: Mapping[str, Json] | None = omitted(None)  # of an architecture, without the vocabulary


@dataclass(frozen=True)
class Kind:
    """One kind of model."""

    family: str  # the name of its architecture
    auto_class: str  # of Transformers, which loads the pre-trained model
    general: Denoising  # the objective of the general stage
    build: Callable[[FreshParams, Any, int], Any]  # (params of a preset, tokenizer, seed) -> model
    load: Callable[..., Any]  # (folder of a stage), or (folder or name, revision, model.head)
    specials: Callable[[Any, Any], Specials]  # (tokenizer, model)
    training_module: Callable[[Any, Denoising, int, int], Any]
    """(model, denoising, layers of a shallow decoder, seed) -> the training module"""
    kept: Callable[[Any, bool], Any]
    """(training module, whether with a head that was drawn for it) -> the model to save"""
    pairs: Callable[[Specials, DenoisingPairs, Training], Pairs]
    token_loss: Loss
    training_loss: Callable[[], Loss]  # `token_loss` for one training
    label_logits: Callable[[Any, Any], Any]  # (module, micro-batch) -> (k, v) of its k labels
    has_new_head: Callable[[Any, Denoising], bool]
    """(model, denoising) -> whether the head of the training module has random weights"""


MODEL_KINDS: Mapping[str, Kind] = {
    SEQ2SEQ: Kind(
        family="BART",
        auto_class="AutoModelForSeq2SeqLM",
        general=Denoising(target="full"),
        build=lambda params, tokenizer, seed: scratch.build_bart(params.preset, tokenizer, seed),
        load=lambda name, revision=None, head="": text_to_text.load(name, revision),
        specials=text_to_text.specials,
        training_module=text_to_text.training_module,
        kept=lambda module, keeps_head: module,
        pairs=Specials.pairs,
        token_loss=text_to_text.token_loss,
        training_loss=text_to_text.training_loss,
        label_logits=text_to_text.label_logits,
        has_new_head=lambda made, denoising: False,
    ),
    ENCODER: Kind(
        family="RoBERTa",
        auto_class="AutoModel",
        general=AT_POSITIONS,
        build=lambda params, tokenizer, seed: scratch.build_encoder(
            params.preset,
            tokenizer,
            seed,
            layers=params.layers,
            relative_positions=params.relative_positions,
        ),
        load=encoders.load,
        specials=lambda tokenizer, made: Specials.of_encoder(tokenizer),
        training_module=encoders.training_module,
        kept=lambda module, keeps_head: module.saved if keeps_head else module.encoder,
        pairs=Specials.at_positions,
        token_loss=encoders.token_loss,
        training_loss=encoders.training_loss,
        label_logits=lambda module, batch: module.label_logits(batch),
        has_new_head=encoders.has_new_head,
    ),
}


def check_folder(model: ModelBlock) -> None:
    """Raise ConfigError for a local folder whose tokenizer or architecture cannot be used.

    Reads no weights. Presets and names on the Hub are not checked.
    """
    if model.is_scratch or not Path(model.name).is_dir():
        return
    tokenizer = load_tokenizer(model.name)
    if model.kind == SEQ2SEQ:
        text_to_text.check_architecture(model.name)
    else:
        check_tokens(tokenizer, f"model {model.name}: its tokenizer", is_encoder=True)
