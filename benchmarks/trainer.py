"""The other side of the training benchmark: Transformers' Seq2SeqTrainer on the same masks."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks.comparison import Setting, masked_pairs, noted
from benchmarks.measure import Clock, Once
from maskpolicy.core import hardware
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.models.training.batching import IGNORE, collate


def theirs(
    setting: Setting,
    attention: str | None = None,
    places: Sequence[tuple[int, int]] = (),
    **arguments: Any,
) -> Once:
    """Train with Seq2SeqTrainer; masks come from the same code, in its data collator.

    `places` are (passage, epoch of its masks), in the order of a sampler that keeps it.
    """

    def once() -> tuple[float, float, str]:
        from transformers import Seq2SeqTrainer, TrainerCallback

        model = setting.fresh()
        if attention:
            model.set_attn_implementation(attention)
        clock, counts = Clock(setting.skip, setting.steps), list[Any]()

        class Ticks(TrainerCallback):
            def on_step_end(self, *_: Any, **__: Any) -> None:
                clock.tick()

        class Counting(Seq2SeqTrainer):  # a collator may be in another process
            def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
                counts.append(inputs["attention_mask"].sum() + (inputs["labels"] != IGNORE).sum())
                return super().training_step(model, inputs, *rest)

        with tempfile.TemporaryDirectory() as folder:
            trainer = Counting(
                model,
                _arguments(setting, folder, **arguments),
                train_dataset=_Rows(setting.passages, places),
                data_collator=_Collator(setting),
                callbacks=[Ticks()],
            )
            trainer.train()
        clock.tokens += [int(count) for count in counts]
        return *clock.result(), noted(setting, model)

    return once


def _arguments(setting: Setting, folder: str, **arguments: Any) -> Any:
    """Return the Trainer's arguments for a setting's budget: nothing saved, nothing reported."""
    from transformers import Seq2SeqTrainingArguments

    spec = setting.spec
    return Seq2SeqTrainingArguments(
        folder,
        per_device_train_batch_size=setting.size,
        max_steps=setting.steps,
        learning_rate=spec.lr,
        weight_decay=spec.weight_decay,
        max_grad_norm=spec.max_grad_norm,
        lr_scheduler_type="constant",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        seed=spec.seed,
        use_cpu=hardware.device().type == "cpu",
        **arguments,
    )


class _Rows:
    """Passage numbers with their lengths and epochs, as a map-style dataset."""

    def __init__(self, passages: Passages, places: Sequence[tuple[int, int]]) -> None:
        self.lengths = passages.lengths
        self.places = places or [(item, 0) for item in range(len(passages))]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item, epoch = self.places[index]
        length = int(self.lengths[item])
        return {"index": item, "epoch": epoch, "length": length, "input_ids": range(length)}


class _Collator:
    """Masks and pads one batch for the Trainer, at the same cost as ours."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        passages = [self.setting.passages[int(row["index"])] for row in rows]
        epochs = [int(row["epoch"]) for row in rows]
        pairs = masked_pairs(self.setting, passages, epochs, self.setting.spec)
        batch = collate(pairs, self.setting.specials.pad, self.setting.specials.start)
        return {
            "input_ids": batch.source,
            "attention_mask": batch.seen.long(),
            "decoder_input_ids": batch.decoder,
            "labels": batch.labels,
        }
