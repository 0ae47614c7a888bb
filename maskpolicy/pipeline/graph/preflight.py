"""What trainings take on stated GPUs, by stated rates: hours, memory and disk."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Denoising
from maskpolicy.experiment.budgets import TRAININGS, Training
from maskpolicy.experiment.definition import ENCODER, ModelBlock
from maskpolicy.models import scratch
from maskpolicy.models.loading import body_factory, load_config
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.pipeline.graph.costs import on_their_own
from maskpolicy.pipeline.graph.nodes import Stage

CARDS = {"a100": (312e12, 80e9), "h100": (989e12, 80e9), "h200": (989e12, 141e9)}
"""FLOP/s in bf16 and bytes of memory, as the maker says (SXM)."""
SHARE = 0.3  # of a card's FLOP/s in a training: BART-base on an H100 with large steps
_OF_LAYER = 0.005  # seconds for the calls of a layer and step there, however small the step is
BART, MLM, MAE_LM = 0.40e9, 0.60e9, 0.70e9
"""FLOP for a token at the base size; MAE-LM's decoder counts as much as ELECTRA's generator."""
_BASE = {BART: 139.4e6, MLM: 124.1e6}  # weights of models of that size
_EXAMPLE = 50  # tokens of an example of a task, with its target
_OF_WORD = 4 / 3  # tokens
_TARGET = {"spans": 0.2, "full": 1.0}  # tokens of a target for each one of the source
_TRAINED, _CHECKPOINT, _MODEL = 20, 12, 4  # bytes of a weight: in training (bf16), and on disk


@dataclass(frozen=True)
class Machine:
    """GPUs that share the trainings of a run."""

    name: str
    gpus: int
    flops: float  # of one GPU
    memory: float  # bytes of one GPU

    @classmethod
    def of(cls, text: str) -> Machine:
        """Return the GPUs that a text such as h100x8 names; raises ConfigError."""
        match = re.fullmatch(r"([a-z0-9]+?)(?:x([1-9]\d*))?", text.lower())
        if match is None or match[1] not in CARDS:
            raise ConfigError(
                f"--hardware: {text!r} must be one of {', '.join(CARDS)}, or as h100x8"
            )
        return cls(text.lower(), int(match[2] or 1), *CARDS[match[1]])

    def hours(self, flop: float) -> float:
        """Return the hours of all GPUs at SHARE of their FLOP/s."""
        return flop / (self.gpus * self.flops * SHARE) / 3600


def flop(spec: Training, how: Denoising | None, corpus: Mapping[str, Any], kind: str) -> float:
    """Return the FLOP of a training at the base size: of masked text if `how` is given.

    `corpus` has the words or tokens of a passage, `kind` is that of the model.
    """
    of_token = BART
    if kind == ENCODER:
        more = how and (how.mask_exclusion or how.shallow_decoder or how.replaced_token_detection)
        of_token = MAE_LM if more else MLM
    tokens: float = _EXAMPLE
    if how is not None:
        tokens = min(corpus.get("tokens") or corpus["words"] * _OF_WORD, spec.max_source)
        tokens *= 1.0 if kind == ENCODER else 1 + _TARGET[how.target]
    return spec.steps * spec.batch_size * tokens * of_token


def size(model: ModelBlock) -> tuple[int, int]:
    """Return the numbers of weights and of layers of a model by its configuration."""
    import torch
    from transformers import AutoConfig

    if model.is_scratch:
        shape = scratch.preset(model)
        values = dict(scratch.config_of(model) or shape.config)
        family = values.pop("model_type", MODEL_KINDS[model.kind].family.lower())
        values["vocab_size"] = model.vocabulary or shape.vocabulary
        ids = {f"{name}_token_id": 0 for name in scratch.SPECIAL}  # the defaults may be larger
        config = AutoConfig.for_model(family, **values | ids)
    else:
        config = load_config(model.name, model.revision)
    with torch.device("meta"):
        made = body_factory(config).from_config(config)
    return sum(each.numel() for each in made.parameters()), _layers(made)


def _layers(module: Any) -> int:
    """Return the number of modules in lists that are in no other list."""
    import torch

    lists = torch.nn.ModuleList
    return sum(
        len(each) if isinstance(each, lists) else _layers(each) for each in module.children()
    )


@dataclass(frozen=True)
class Preflight:
    """What the trainings of a run take on a machine."""

    machine: Machine
    trainings: Mapping[str, int]  # by kind
    base: float  # FLOP for a token at the base size
    weights: int
    hours: float
    kept: int  # bytes of models that stay

    @property
    def lines(self) -> list[str]:
        """The figures in words."""
        card, named = self.machine, ", ".join(f"{n} {kind}" for kind, n in self.trainings.items())
        return [
            f"{card.name}: {self.hours:,.1f} hours, {self.hours * card.gpus:,.1f} GPU-hours, for "
            f"{named or 'no training'} (at {SHARE:.0%} of {card.flops / 1e12:.0f} TFLOP/s, "
            f"{self.base / 1e9:g} GFLOP for a token of the base size, and at least "
            f"{_OF_LAYER * 1e3:g} ms for a layer and step; without annotation and answers)",
            f"memory: {self.weights * _TRAINED / 1e9:.1f} of {card.memory / 1e9:.0f} GB for "
            f"{self.weights / 1e6:,.0f} million weights in training; micro-batches get the rest",
            f"disk: {self.kept / 1e9:,.1f} GB of models that stay, and up to "
            f"{card.gpus * self.weights * _CHECKPOINT / 1e9:.1f} GB of checkpoints",
        ]


def preflight(machine: Machine, rest: Sequence[Stage], model: ModelBlock) -> Preflight:
    """Return what the stages of `rest` take."""
    (weights, layers), base = size(model), MLM if model.kind == ENCODER else BART
    least = layers * _OF_LAYER * machine.flops * SHARE  # FLOP in the time of a step's calls
    runs: Counter[str] = Counter()
    work, kept, trained = 0.0, 0, {stage.key for stage in on_their_own(rest)}
    for stage in rest:
        kind, _, role = stage.kind.partition("-")
        params: Any = stage.params
        if kind not in TRAININGS or role == "feedback" or not params.spec.steps:
            continue
        kept += not stage.transient
        if stage.key not in trained:
            continue
        runs[kind] += role != "part"  # of a training that is cut into parts
        steps = (getattr(params, "until", 0) or params.spec.steps) - getattr(params, "first", 0)
        text = stage.inputs.get("corpus")  # a learned policy is fitted on examples
        how, corpus = (params.how, text.keyed["corpus"]) if text is not None else (None, {})
        found = flop(replace(params.spec, steps=steps), how, corpus, model.kind)
        work += max(found * weights / _BASE[base], steps * least)
    hours = machine.hours(work)
    return Preflight(machine, runs, base, weights, hours, kept * weights * _MODEL)
