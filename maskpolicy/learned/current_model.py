"""What a policy's `reannotate` gets: the model in training, and what it predicts.

A policy with feedback defines

    reannotate(self, passages: Sequence[Passage], current: Current) -> dict[str, list[NDArray]]

It returns columns, one array for each passage, which `select` reads until the next one. It runs
before the first step of the intermediate stage, and again after every `every` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.corpus.annotation import check_columns, named
from maskpolicy.errors import ConfigError, MaskpolicyError
from maskpolicy.models import guesses
from maskpolicy.models.guesses import Guesser, Guesses
from maskpolicy.plugins import hooks
from maskpolicy.plugins.plugin_errors import plugin_error, plugin_fault, plugin_name
from maskpolicy.types import Passage

RATE = 0.3  # share of a passage's tokens that are masked at a time


@dataclass(eq=False)
class Current:
    """The model in training, after `steps` steps of the intermediate stage."""

    vocabulary: int  # tokens
    steps: int = 0
    guesser: Guesser | None = None  # None: the model cannot predict tokens yet
    state: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Arrays by name that the policy hands on: those that the last `reannotate` left here."""
    fitted: Path | None = None  # the folder of a learned policy
    report: Callable[[int], None] = lambda passages: None
    tokens: int = 0  # of all sources and targets that the model has read so far

    @property
    def module(self) -> Any:
        """The training module on its device (a text-to-text model itself), or None.

        Leave its weights and its gradients as they are.
        """
        return None if self.guesser is None else self.guesser.module

    def guess(self, passages: Sequence[Passage], rate: float = RATE) -> Guesses:
        """Return loss and entropy of each token of passages, in nats, and the likeliest token.

        Each token is masked once, with a share of about `rate` of the others: the model reads a
        passage ceil(1 / rate) times. Masks and targets are those of the row's denoising objective.
        To a model whose head is new, as that of most encoders, all tokens are equally likely before
        the first step. Raises ConfigError for a rate outside (0, 1].
        """
        if not 0 < rate <= 1:
            raise ConfigError(f"guess: rate must be above 0 and at most 1, not {rate}")
        if self.guesser is None:
            return guesses.unknowing(passages, self.vocabulary)
        return self.guesser.guess(passages, rate, self.steps, self._count)

    def _count(self, passages: int, tokens: int) -> None:
        self.tokens += tokens
        self.report(passages)


def reannotated(
    policy: Any, passages: Sequence[Passage], current: Current
) -> dict[str, list[NDArray[Any]]]:
    """Return the columns of a policy's `reannotate`, checked; raises StageError."""
    try:
        columns: dict[str, list[NDArray[Any]]] = policy.reannotate(passages, current)
    except ConfigError as error:  # of a call of ours, which does not know the policy
        raise ConfigError(f"{plugin_name('policy', policy)}: reannotate: {error}") from error
    except MaskpolicyError:
        raise
    except Exception as error:
        doing = f"reannotate after {current.steps} steps"
        raise plugin_error("policy", policy, doing, error) from error
    check_columns(policy, hooks.REANNOTATE.name, columns, len(passages))
    if not named(policy, set(columns), passages):
        raise plugin_fault("policy", policy, "reannotate returned no column: return one at least")
    for key, value in current.state.items():
        if not isinstance(value, np.ndarray):
            kind = type(value).__name__
            raise plugin_fault(
                "policy", policy, f"current.state[{key!r}] must be a NumPy array, not {kind}"
            )
    return columns
