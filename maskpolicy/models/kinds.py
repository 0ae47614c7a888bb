"""What a model's kind decides: how it is made, what a masked passage becomes, what is learnt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from maskpolicy.config.blocks import AT_POSITIONS
from maskpolicy.config.budgets import Training
from maskpolicy.config.experiment import ENCODER, SEQ2SEQ
from maskpolicy.masking.denoising import DenoisingPairs
from maskpolicy.models import encoder, seq2seq
from maskpolicy.models.seq2seq import Preset
from maskpolicy.training.batching import Pairs
from maskpolicy.training.interfaces import Loss
from maskpolicy.training.objectives import Specials
from maskpolicy.types import Denoising, Json


@dataclass(frozen=True)
class Kind:
    """One kind of model; `params` are those of the stage that uses it."""

    family: str  # in words
    presets: Mapping[str, Preset]
    general: Denoising  # how passages are written in the general stage
    tasks: tuple[str, ...]  # kinds of tasks that it can be fine-tuned on
    build: Callable[[Json, Any], Any]  # (params, tokenizer) -> a fresh model
    load: Callable[[str, str | None], Any]  # (folder or name, revision)
    specials: Callable[[Any, Any], Specials]  # (tokenizer, model)
    learner: Callable[
        [Any, Denoising, Json], Any
    ]  # (model, how, params) -> the module under training
    kept: Callable[[Any], Any]  # what is saved of that module
    pairs: Callable[[Specials, DenoisingPairs, Training], Pairs]
    loss: Loss


MODEL_KINDS: Mapping[str, Kind] = {
    SEQ2SEQ: Kind(
        family="BART",
        presets=seq2seq.PRESETS,
        general=Denoising(target="full"),
        tasks=("text",),
        build=lambda params, tokenizer: seq2seq.build(
            params["preset"], tokenizer, params["spec"]["seed"]
        ),
        load=seq2seq.load,
        specials=lambda tokenizer, made: Specials.of(tokenizer, made.config.decoder_start_token_id),
        learner=lambda made, how, params: made,
        kept=lambda module: module,
        pairs=Specials.pairs,
        loss=seq2seq.token_loss,
    ),
    ENCODER: Kind(
        family="RoBERTa",
        presets=encoder.PRESETS,
        general=AT_POSITIONS,
        tasks=("label", "span"),
        build=encoder.build,
        load=encoder.load,
        specials=lambda tokenizer, made: Specials.of_encoder(tokenizer),
        learner=encoder.learner,
        kept=lambda module: module.encoder,
        pairs=Specials.at_positions,
        loss=encoder.token_loss,
    ),
}
