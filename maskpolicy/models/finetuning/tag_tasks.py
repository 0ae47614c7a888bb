"""Tag tasks: an encoder with a head reads a text, and gives each word a tag."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maskpolicy.core.ragged import Ragged
from maskpolicy.core.types import Example
from maskpolicy.data.corpus.passages import encode
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import TAGS, TASK_KINDS, AnswerParams
from maskpolicy.models.finetuning.encoder_tasks import EncoderTask, Inputs, Logits
from maskpolicy.models.training.batching import IGNORE, Batch
from maskpolicy.models.training.specials import Specials

if TYPE_CHECKING:
    import torch


class TagTask(EncoderTask):
    """Each word of a text gets the tag of its first token; blanks separate the words.

    Words after the last token that the model reads get the tag "O".
    """

    auto_class = TASK_KINDS[TAGS].auto_class

    def start(self, folder: Path, examples: Sequence[Example], seed: int) -> Any:
        """Return the encoder with Transformers' head for the tags of the examples."""
        tags = sorted({tag for example in examples for tag in example.targets[0].split()})
        names = dict(enumerate(tags))
        numbers = {tag: number for number, tag in names.items()}
        return self._with_head(folder, seed, id2label=names, label2id=numbers)

    def inputs(self, tokenizer: Any, examples: Sequence[Example], spec: Training) -> Inputs:
        """Return the ids of each source, and the place of each word's first token there.

        The place is -1 for a word that is cut off or has no token.
        """
        marks = Specials.of_encoder(tokenizer)
        encoded = encode([example.source for example in examples], tokenizer)
        ids = Ragged.of((one.ids for one in encoded), np.int32)
        sources = marks.wrap(ids, spec.max_source)
        before, after = marks.ends()
        words = []
        for example, one, source in zip(examples, encoded, sources, strict=True):
            offsets = np.asarray(one.offsets, np.int64).reshape(-1, 2)
            tokens = offsets[: len(source) - len(before) - len(after), 0]
            ends = np.cumsum([len(word) + 1 for word in example.source.split(" ")])
            places = np.searchsorted(tokens, np.concatenate([[0], ends]))
            words.append(np.where(places[:-1] < places[1:], places[:-1] + len(before), -1))
        return Inputs(examples, sources, words)

    def labels(self, model: Any, inputs: Inputs) -> Ragged:
        """Return the tags at the first tokens of words."""
        rows = []
        for example, source, places in zip(*inputs, strict=True):
            tags = np.asarray([model.config.label2id[tag] for tag in example.targets[0].split()])
            row = np.full(len(source), IGNORE, np.int32)
            row[places[places >= 0]] = tags[places >= 0]
            rows.append(row)
        return Ragged.of(rows, np.int32)

    def logits_of_states(self, model: Any, states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the logits of the tags, from the body's last states, (b, n, d)."""
        return model.classifier(model.dropout(states)).float()

    def loss_of(self, logits: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
        """Return the summed cross-entropy of the words' tags."""
        from torch.nn.functional import cross_entropy

        labels = batch.labels.flatten()
        loss = cross_entropy(logits.flatten(0, 1), labels, reduction="sum", ignore_index=IGNORE)
        return loss, int((labels != IGNORE).sum())

    def answers(self, model: Any, inputs: Inputs, rows: Logits, params: AnswerParams) -> list[str]:
        """Return the most likely tags of each example's words, with blanks between them."""
        names, answers = model.config.id2label, []
        for places, row in zip(inputs.about, rows, strict=True):
            best = row.argmax(-1)
            tags = (names[int(best[place])] if place >= 0 else "O" for place in places)
            answers.append(" ".join(tags))
        return answers
