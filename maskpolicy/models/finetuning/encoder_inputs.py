"""What an encoder reads of an example: one text or two, and batches of them for answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.ragged import Ragged
from maskpolicy.data.corpus.passages import backend_of
from maskpolicy.models.cpu import TrainingLoss
from maskpolicy.models.encoders import load_body
from maskpolicy.models.families import family_of
from maskpolicy.models.loading import load_whole
from maskpolicy.models.training.batching import Batch, Pairs, collate, in_batches
from maskpolicy.models.training.interfaces import Loss, Progress
from maskpolicy.models.training.specials import Specials

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

    from maskpolicy.models.cpu.roberta import TaskGradients


@dataclass(frozen=True)
class TwoTexts:
    """The special tokens of two texts in one input."""

    before: tuple[int, ...]
    middle: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase) -> TwoTexts:
        """Read them from a tokenizer.

        RoBERTa's reads <s> first </s></s> second </s>, and so is read what a tokenizer that adds
        nothing to texts has; BERT's reads [CLS] first [SEP] second [SEP].
        """
        backend, marks = backend_of(tokenizer), Specials.of_encoder(tokenizer)
        word = backend.encode(f"a {tokenizer.pad_token}", add_special_tokens=False)
        made = backend.post_process(word, word)
        is_special = np.asarray(made.special_tokens_mask) == 1
        if not is_special.any():
            return cls((marks.bos,), (marks.eos, marks.eos), (marks.eos,))
        texts = np.flatnonzero(~is_special)
        first, second = texts[: len(word.ids)], texts[len(word.ids) :]
        ids = made.ids
        return cls(
            tuple(ids[: first[0]]),
            tuple(ids[first[-1] + 1 : second[0]]),
            tuple(ids[second[-1] + 1 :]),
        )

    def __len__(self) -> int:
        """Return the number of special tokens."""
        return len(self.before) + len(self.middle) + len(self.after)

    def offset(self, first: NDArray[np.int32]) -> int:
        """Return the place of the second text's first token."""
        return len(self.before) + len(first) + len(self.middle)

    def joined(self, first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the ids of two texts in one input."""
        parts = (self.before, first, self.middle, second, self.after)
        return np.concatenate([np.asarray(part, np.int32) for part in parts])


def cut(
    first: NDArray[np.int32], second: NDArray[np.int32], room: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return two texts of at most `room` tokens together: the longer one is cut first."""
    half = room // 2
    if len(first) + len(second) > room:
        short = min(len(first), len(second), half)
        rest = room - short
        if len(first) <= len(second):
            first, second = first[:short], second[:rest]
        else:
            first, second = first[:rest], second[:short]
    return first, second


def outputs(model: Any, batch: Batch) -> Any:
    """Return what a model with a head makes of a batch.

    The second of two texts has token type 1 in models that know two types, as BERT.
    """
    given = {"input_ids": batch.source, "attention_mask": batch.seen.long()}
    has_types = family_of(model.config, "encoder").token_types
    if has_types and getattr(model.config, "type_vocab_size", 0) > 1:
        given["token_type_ids"] = token_types(batch)
    return model(**given)


def token_types(batch: Batch) -> torch.Tensor:
    """Return the token types, (b, n): 1 after the first of two special tokens that end a text."""
    last = batch.seen.sum(1, keepdim=True) - 1
    ends = (batch.source == batch.source.gather(1, last)).long()
    return (ends.cumsum(1) - ends).clamp(max=1) * batch.seen.long()


def batches(
    model: Any, sources: Ragged, marks: Specials, progress: Progress | None = None
) -> Iterator[tuple[list[int], Batch]]:
    """Yield (indices, batch) over sources of like length, on the device of `model`.

    The model is set to evaluation.
    """
    device = next(model.parameters()).device
    order = np.argsort(sources.lengths, kind="stable")
    for chosen in in_batches(model, order, progress=progress):
        nothing = Ragged(np.zeros(0, np.int32), np.zeros(len(chosen) + 1, np.int64))
        made = collate(Pairs(sources.take(chosen), nothing), marks.pad, None)
        yield chosen.tolist(), made.to(device)


def training_loss(
    loss: Loss, loss_of_states: Callable[[Any, torch.Tensor, Batch], tuple[torch.Tensor, int]]
) -> Callable[[], Loss]:
    """Return what makes a loss for one training, equal to `loss`.

    `loss_of_states` (model, last states (b, n, d), batch) is that of the head alone.
    """

    def gradients(model: Any) -> TaskGradients | None:
        from maskpolicy.models.cpu import roberta

        return roberta.task_gradients(model, partial(loss_of_states, model))

    return partial(TrainingLoss, loss, gradients)


def with_head(auto_class: str, folder: Path, seed: int, **settings: Any) -> Any:
    """Return the encoder of a folder with a fresh head, whose weights are drawn from `seed`.

    `auto_class` names one of Transformers' Auto classes. `settings` go to the configuration, e.g.
    num_labels. Raises ConfigError for a family without such a head.
    """
    import torch
    import transformers

    encoder = load_body(str(folder))
    for name, value in settings.items():
        setattr(encoder.config, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            model = getattr(transformers, auto_class).from_config(encoder.config)
        except ValueError as error:
            family = encoder.config.model_type
            raise ConfigError(f"model {folder}: {auto_class} knows no {family}") from error
    _copy(encoder, model.base_model, f"model {folder}")
    return model


def _copy(encoder: Any, body: Any, what: str) -> None:
    """Copy the weights of an encoder to the body of another model.

    Either may have a pooler that the other one lacks. Raises ConfigError for other differences.
    """
    left = body.load_state_dict(encoder.state_dict(), strict=False)
    odd = [key for key in (*left.missing_keys, *left.unexpected_keys) if "pooler" not in key]
    if odd:
        raise ConfigError(f"{what}: its body does not fit the model with a head: {min(odd)}")


def tuned(auto_class: str, folder: Path) -> Any:
    """Return a fine-tuned model, head and all; raises ConfigError where weights are missing."""
    import transformers

    return load_whole(getattr(transformers, auto_class), str(folder))
