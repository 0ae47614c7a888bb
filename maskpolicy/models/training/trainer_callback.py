"""The callback by which a Transformers Trainer tells a `MaskingCollator` the step of each batch."""

from __future__ import annotations

import math
from typing import Any

from torch.utils.data import IterableDataset
from transformers import TrainerCallback, TrainerState, TrainingArguments

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.definition import ENCODER


class MaskingCallback(TrainerCallback):
    """Gives the DataLoader of each epoch a collator that begins with the epoch's first step.

    The collator counts batches, because the Trainer, accelerate and DataLoader workers read ahead
    of the current step. Other DataLoaders, e.g. for evaluation, keep the Trainer's collator.
    """

    def __init__(self, collator: Any) -> None:
        self.collator = collator  # a MaskingCollator
        self.first_epoch = True  # of the present training, which may be resumed

    def on_init_end(self, args: TrainingArguments, *_: Any, **more: Any) -> None:
        """Keep the rows' text for the collator; from now on, its plain calls are evaluations."""
        args.remove_unused_columns = False
        self.collator.has_callback = True

    def on_train_begin(self, args: TrainingArguments, *_: Any, **more: Any) -> None:
        """Raise ConfigError for a Trainer whose batches the collator cannot count or mask."""
        self.first_epoch = True
        self.on_init_end(args)  # `add_callback` comes after it
        loader, model = more["train_dataloader"], more["model"]
        is_encoder = not getattr(getattr(model, "config", None), "is_encoder_decoder", False)
        if loader.collate_fn is not self.collator:
            why = "the Trainer uses another collator: give it the collator of the callback as "
            why += "data_collator"
        elif args.dataloader_num_workers and args.dataloader_persistent_workers:
            why = "persistent workers of a DataLoader do not notice the next epoch: set "
            why += "dataloader_persistent_workers=False"
        elif args.world_size > 1 and type(loader).__name__ == "DataLoaderDispatcher":
            why = "the first process reads the batches of all (dispatch_batches, the default for "
            why += 'an IterableDataset): set accelerator_config={"dispatch_batches": False}'
        elif args.dataloader_num_workers and not getattr(args, "dataloader_in_order", True):
            why = "batches that come in another order have other steps: set "
            why += "dataloader_in_order=True"
        elif hasattr(model, "config") and is_encoder != (self.collator.kind == ENCODER):
            kind = "an encoder" if is_encoder else "text-to-text"
            why = f"its batches are for kind {self.collator.kind}, and the model is {kind}: give "
            why += "the collator model=model"
        else:
            return
        raise ConfigError(f"MaskingCollator: {why}")

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **more: Any
    ) -> None:
        """Set the collator of the epoch's DataLoader, before its workers start."""
        loader, first = more["train_dataloader"], state.global_step
        batches = args.gradient_accumulation_steps
        skips = self.first_epoch and not args.ignore_data_skip
        if skips and isinstance(loader.dataset, IterableDataset):  # batches that are masked, too
            first -= first % _steps_of_an_epoch(loader, batches, state.max_steps)
        self.first_epoch = False
        loader = getattr(loader, "base_dataloader", loader)  # accelerate's wraps PyTorch's
        loader.collate_fn = self.collator.for_steps(first, state.max_steps, batches)


def _steps_of_an_epoch(loader: Any, batches: int, steps: int) -> int:
    """Return the steps of an epoch as the Trainer counts them; all steps if it has no length."""
    try:
        return math.ceil(len(loader) / batches)
    except TypeError:
        return steps
