"""Effective ranks of a model's representations, by layer and token set (Meng et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.analyses.curves import steps_of
from maskpolicy.core.errors import DataError
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.seeding import generator
from maskpolicy.core.types import Passage
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.policy_blocks import AT_POSITIONS
from maskpolicy.leaderboard.results.cell import STEP, Result, Run
from maskpolicy.masking.denoising import denoising_pairs
from maskpolicy.masking.selection import draw
from maskpolicy.models.training.batching import Pairs, collate
from maskpolicy.models.training.specials import Specials

if TYPE_CHECKING:
    import torch

SETS = ("mask", "real_with", "real_without", "real", "all_with_masks", "all_without")
"""Token sets: `<mask>`; real tokens of masked input, of unmasked input, and of both; all tokens of
masked input, including masks, and of unmasked input. Only the last two include special tokens.
"""

_BATCH = 32
_NOTHING = 1e-12  # share of the sum of squares below which a squared value is rounding error


@dataclass(frozen=True, eq=False)
class Ranks:
    """Spectra of one model's representations; layer 0 is the input layer."""

    width: int
    tokens: dict[str, int]  # number of tokens in each set
    squares: list[dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]]
    """By layer and token set: the squared singular values (width,) of the states, uncentred and
    centred (less the mean of the set)."""

    def layers(self, tau: float = 0.9, centred: bool = False) -> list[dict[str, int]]:
        """Return the effective rank of each token set, and their `gap`, by layer.

        The gap is positive if masks use dimensions of their own.
        """
        found = []
        for layer in self.squares:
            ranks = {name: effective_rank(both[centred], tau) for name, both in layer.items()}
            found.append({**ranks, "gap": ranks["all_with_masks"] - ranks["all_without"]})
        return found


class Gram:
    """The Gram matrix (d, d) and the sum (d,) of rows added in batches, in float64."""

    def __init__(self) -> None:
        self.rows = 0
        self.products: Any = 0.0
        self.total: Any = 0.0

    def add(self, states: torch.Tensor) -> None:
        """Add a batch of rows, (k, d)."""
        wide = states.double()
        self.products = self.products + (wide.T @ wide).cpu()
        self.total = self.total + wide.sum(0).cpu()
        self.rows += len(states)

    def __add__(self, other: Gram) -> Gram:
        both = Gram()
        both.rows = self.rows + other.rows
        both.products, both.total = self.products + other.products, self.total + other.total
        return both

    def squares(self, centred: bool = False) -> NDArray[np.float64]:
        """Return the squared singular values (d,) of all rows, less their mean if `centred`."""
        import torch

        products = self.products
        if centred and self.rows:
            products = products - torch.outer(self.total, self.total) / self.rows
        values = torch.linalg.eigvalsh(products).numpy()
        return np.where(values > _NOTHING * float(self.products.trace()), values, 0.0)


def effective_rank(squares: NDArray[np.float64], tau: float) -> int:
    """Return the least k such that the k largest of `squares` sum to `tau` of their total.

    `squares` are squared singular values in any order. The rank is 0 if all are 0.
    """
    share = np.cumsum(np.sort(squares)[::-1])
    if not share[-1]:
        return 0
    return int(np.searchsorted(share, tau * share[-1] * (1 - 1e-12))) + 1


def load_encoder(folder: Path) -> Any:
    """Load the encoder of an encoder or encoder-decoder folder; raises ConfigError."""
    from transformers import AutoModel

    from maskpolicy.models.loading import load_reported

    found, _ = load_reported(AutoModel, str(folder), optional="pooler")
    return (found.get_encoder() if found.config.is_encoder_decoder else found).eval()


def measure(
    model: Any,
    tokenizer: Any,
    passages: Sequence[Passage],
    *,
    share: float = 0.15,
    seed: int = 0,
) -> Ranks:
    """Return the spectra of an encoder on unmasked and masked passages.

    `share` is the share of tokens to mask, each alone. No set includes padding.
    """
    marks = Specials.of_encoder(tokenizer)
    spec = Training(max_source=_positions(model.config))
    grams: list[dict[str, Gram]] = []
    for chosen in _batches(passages):
        for masked in (False, True):
            sources = _sources(chosen, marks, spec, share if masked else 0.0, seed)
            found, seen, real, at_masks = _states(model, sources, marks)
            grams = grams or [{name: Gram() for name in SETS} for _ in found]
            for layer, states in zip(grams, found, strict=True):
                layer["all_with_masks" if masked else "all_without"].add(states[seen])
                layer["real_with" if masked else "real_without"].add(states[real])
                layer["mask"].add(states[at_masks])
    for layer in grams:
        layer["real"] = layer["real_with"] + layer["real_without"]
    return Ranks(
        len(grams[0]["real"].total),
        {name: gram.rows for name, gram in grams[0].items()},
        [
            {name: (gram.squares(), gram.squares(centred=True)) for name, gram in layer.items()}
            for layer in grams
        ],
    )


def real_states(
    model: Any, tokenizer: Any, passages: Sequence[Passage]
) -> list[NDArray[np.float32]]:
    """Return the states (t, d) of all t tokens of passages at each layer, in order, without masks.

    Raises DataError for a passage that is longer than the model's input.
    """
    marks = Specials.of_encoder(tokenizer)
    spec = Training(max_source=_positions(model.config))
    layers: list[list[NDArray[np.float32]]] = []
    for chosen in _batches(passages):
        found, _, real, _ = _states(model, _sources(chosen, marks, spec, 0.0, 0), marks)
        if int(real.sum()) < sum(len(passage.tokens) for passage in chosen):
            raise DataError(f"a passage has more than the {spec.max_source} tokens of the model")
        layers = layers or [[] for _ in found]
        for kept, states in zip(layers, found, strict=True):
            kept.append(states[real].float().cpu().numpy())
    return [np.concatenate(kept) for kept in layers]


def _batches(passages: Sequence[Passage]) -> Iterator[list[Passage]]:
    for begin in range(0, len(passages), _BATCH):
        yield [passages[i] for i in range(begin, min(begin + _BATCH, len(passages)))]


def _sources(
    passages: Sequence[Passage], marks: Specials, spec: Training, share: float, seed: int
) -> Ragged:
    """Return the token ids of passages with BOS, EOS and masks."""
    spans = [
        draw(passage.pieces, share, generator(seed, 0, passage.id, "rank")) for passage in passages
    ]
    written = denoising_pairs(passages, spans, AT_POSITIONS, marks, seed, [0] * len(passages))
    return marks.wrap(written.sources, spec.max_source)


def _states(
    model: Any, sources: Ragged, marks: Specials
) -> tuple[Sequence[torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each layer's states (b, n, d), and masks (b, n) of all, real and `<mask>` tokens."""
    import torch

    nothing = Ragged(np.zeros(0, np.int32), np.zeros(len(sources) + 1, np.int64))
    device = next(model.parameters()).device
    batch = collate(Pairs(sources, nothing), marks.pad, None).to(device)
    with torch.inference_mode():
        found = model(
            input_ids=batch.source,
            attention_mask=batch.seen.long(),
            output_hidden_states=True,
        ).hidden_states
    places = torch.arange(batch.source.shape[1], device=device)
    before, after = map(len, marks.ends())
    inside = (places >= before) & (places < batch.seen.sum(1, keepdim=True) - after)
    masked = inside & (batch.source == marks.mask)
    return found, batch.seen, inside & ~masked, masked


def _positions(config: Any) -> int:
    """Return the maximum length of an input, including special tokens."""
    most = getattr(config, "max_position_embeddings", None) or 512
    return min(512, int(most) - 2)  # RoBERTa's positions begin at 2


KINDS = ("intermediate", "general", "pretrained")
"""Kinds of stages that give a pre-trained model; a result's model is from the first it has."""


@dataclass(frozen=True, eq=False)
class PretrainedModel:
    """A model of one row: at the end of its pre-training, or a checkpoint of it."""

    run: Run
    policy: str  # label of the row
    stage: int  # number of its intermediate run, or of its general model if it has none
    kept_at: int  # steps of the intermediate stage, for a checkpoint; 0: all
    key: str
    result: Result  # of a fine-tuning that started from it

    @property
    def has_stage(self) -> bool:
        """Whether its row has an intermediate stage."""
        return "intermediate" in self.result.config

    @property
    def steps(self) -> int:
        """The steps of its intermediate stage; 0 for a row without one."""
        return steps_of(self.result)


def pretrained_models(run: Run) -> Iterator[PretrainedModel]:
    """Yield each model of each row once, in the order of rows, runs and steps."""
    places = {label: place for place, label in enumerate(run.rows)}
    found: dict[tuple[str, str], PretrainedModel] = {}
    for result in (*run.early, *run.results):
        key = next(filter(None, map(result.stage_key, KINDS)), None)
        if key is not None:
            stage, kept_at = model_number(result)[1], int(result.config.get(STEP, 0))
            made = PretrainedModel(
                run=run, policy=result.policy, stage=stage, kept_at=kept_at, key=key, result=result
            )
            found.setdefault((result.policy, key), made)
    yield from sorted(
        found.values(), key=lambda each: (places[each.policy], each.stage, each.steps)
    )


def model_number(result: Result) -> tuple[str, int]:
    """Return ("run", its number), or without an intermediate stage ("general model", its number).

    Each row has one model for each such number.
    """
    number = result.config.get("intermediate_seed")
    if number is None:
        return "general model", result.config.get("general_seed", 0)
    return "run", number
