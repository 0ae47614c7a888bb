"""A model fine-tuned on a label task: probabilities of labels, and gradients of its loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy import hardware
from maskpolicy.config.budgets import Training
from maskpolicy.finetuning import TASK_HEADS, Head, label
from maskpolicy.finetuning.generation import PairLimits, likelihoods
from maskpolicy.finetuning.head_params import AnswerParams, HeadKind
from maskpolicy.models.position_limits import bounded
from maskpolicy.training.batching import Batch
from maskpolicy.training.steps import ExampleSteps
from maskpolicy.types import Example


@dataclass(frozen=True, eq=False)
class Classifier:
    """A model of either kind, fine-tuned on a label task.

    An encoder has a head for classification. A text-to-text model reads both texts of a pair as one
    source, two lines, and gives a label the likelihood of its text.
    """

    model: Any
    tokenizer: Any
    choices: tuple[str, ...]
    params: AnswerParams
    spec: Training

    @classmethod
    def load(
        cls, folder: Path, tokenizer: Any, choices: Sequence[str], spec: Training
    ) -> Classifier:
        """Load a model that the stage "finetune-classifier" made, on the device."""
        from transformers import AutoConfig

        from maskpolicy.models.loading import load_weights

        is_text = load_weights(AutoConfig, str(folder)).is_encoder_decoder
        params = AnswerParams(head="text" if is_text else "label", keep="start")
        model = TASK_HEADS[params.head].open(folder)
        spec = bounded(spec, model)
        model.to(hardware.device()).eval()
        return cls(model, tokenizer, tuple(choices), params, spec)

    @property
    def head(self) -> Head:
        """What fine-tunes such a model."""
        return TASK_HEADS[self.params.head]

    def log_probabilities(self, examples: Sequence[Example]) -> NDArray[np.float64]:
        """Return the log-probability of each label, (n, c); the labels' probabilities add up to 1.

        Only `source` and `context` of the examples are read.
        """
        if not examples:
            return np.zeros((0, len(self.choices)))
        if self.params.head == "label":
            found = np.stack(label.logits(self.model, self.tokenizer, examples, self.spec))
            return _normalised(found.astype(np.float64))
        made = readable(examples, "text")
        means = likelihoods(
            self.model,
            self.tokenizer,
            [example.source for example in made],
            [self.choices] * len(made),
            PairLimits(max_source=self.spec.max_source, max_target=self.spec.max_target),
        )
        return _normalised(np.stack([mean * lengths for mean, lengths in means]))

    def steps(self, examples: Sequence[Example]) -> ExampleSteps:
        """Return the steps over examples in a seeded order, as fine-tuning reads them."""
        made = readable(examples, self.params.head)
        return self.head.steps(self.model, self.tokenizer, made, self.spec, self.params)

    def gradients(self, batch: Batch) -> NDArray[np.float32]:
        """Return the gradient of each example's loss in the one-hot input of each token, (b, n).

        It is that of the entry that is 1: the embedding of the token times the gradient in it.
        Special tokens have one too; what padding has is undefined.
        """
        import torch

        is_text = self.params.head == "text"
        reader = self.model.get_encoder() if is_text else self.model
        found: list[Any] = []
        embedding = reader.get_input_embeddings()
        hook = embedding.register_forward_hook(lambda module, given, out: found.append(out))
        try:
            loss, _ = self.head.loss(self.model, batch.to(hardware.device()))
        finally:
            hook.remove()
        (gradient,) = torch.autograd.grad(loss, found[0])  # an encoder comes before its decoder
        values: NDArray[np.float32] = (gradient * found[0]).sum(-1).detach().float().cpu().numpy()
        return values


def readable(examples: Sequence[Example], head: HeadKind) -> list[Example]:
    """Return examples of a label task as a model with this head reads them.

    A text-to-text model reads both texts of a pair as two lines of its source.
    """
    if head != "text":
        return list(examples)
    return [
        one if one.context is None else replace(one, source=f"{one.source}\n{one.context}")
        for one in examples
    ]


def _normalised(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import log_softmax

    found: NDArray[np.float64] = log_softmax(scores, axis=1)
    return found
