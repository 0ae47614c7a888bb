"""Trainings by a Transformers Trainer with a MaskingCollator, whose batches are kept.

As a script, one process of a training of several: `python trainers.py FOLDER KEYS`, in JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

import encoders
import small
import text_to_text
import torch
import transformers

from maskpolicy import MaskingCollator

ROWS = [{"text": text} for text in small.TEXTS] * 2
STEPS, ACCUMULATED = 8, 2  # two epochs of 16 rows in batches of 2
POLICY = {"name": "whole-word", "ratio": {"start": 0.9, "end": 0.1}}


class Stream(torch.utils.data.IterableDataset):
    """The same rows without a length."""

    def __iter__(self) -> Any:
        return iter(ROWS)


def tokenizer_of(family: str) -> Any:
    """Return the tokenizer of a family of `encoders` or `text_to_text`."""
    return (text_to_text if family == "bart" else encoders).tokenizer(family)


def collator_of(family: str, tokenizer: Any = None, **keys: Any) -> MaskingCollator:
    """Return the collator of all these trainings."""
    more = {"target": "full"} if family == "bart" else {}
    return MaskingCollator(POLICY, tokenizer or tokenizer_of(family), seed=5, **more, **keys)


def train(
    family: str,
    folder: Path,
    resume: int = 0,
    evaluate: bool = False,
    stream: bool = False,
    saved: str = "",
    late: bool = False,
    **arguments: Any,
) -> tuple[list[Any], list[Any]]:
    """Train a small model; return its batches of training and of evaluation, as lists of ids.

    With `resume`, it goes on from the checkpoint of that step. The tokenizers of `encoders` differ
    between processes, so several of them load model and tokenizer from the folder `saved`. If
    `late`, the Trainer gets the callback after it is made.
    """
    kinds: Any = (transformers.Trainer, transformers.TrainingArguments)
    if family == "bart":
        kinds = (transformers.Seq2SeqTrainer, transformers.Seq2SeqTrainingArguments)
    trainer_class, class_of_arguments = kinds
    if saved:
        model = transformers.AutoModelForMaskedLM.from_pretrained(saved)
        tokenizer = transformers.AutoTokenizer.from_pretrained(saved)
    else:
        model = (text_to_text if family == "bart" else encoders).model(family)
        tokenizer = tokenizer_of(family)
    batches: tuple[list[Any], list[Any]] = ([], [])

    def keep(module: Any, args: Any, kwargs: Any) -> None:
        names = ("input_ids", "labels")
        batches[not module.training].append([kwargs[name].tolist() for name in names])

    model.register_forward_pre_hook(keep, with_kwargs=True)
    collator = collator_of(family, tokenizer)
    trainer = trainer_class(
        model,
        class_of_arguments(
            str(folder),
            max_steps=STEPS,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=ACCUMULATED,
            eval_strategy="steps" if evaluate else "no",
            eval_steps=3,
            save_steps=3,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            **arguments,
        ),
        train_dataset=Stream() if stream else ROWS,
        eval_dataset=ROWS[:3],
        data_collator=collator,
        callbacks=[] if late else [collator.callback()],
    )
    if late:
        trainer.add_callback(collator.callback())
    trainer.train(str(folder / f"checkpoint-{resume}") if resume else None)
    return batches


def wanted(family: str, batch: Any, step: int) -> Any:
    """Return the batch that the collator makes of the same texts in a step."""
    sources, labels = batch
    tokenizer = tokenizer_of(family)
    whole = [
        [token if label == -100 else label for token, label in zip(*row, strict=True)]
        if family != "bart"
        else [label for label in row[1] if label != -100]
        for row in zip(sources, labels, strict=True)
    ]
    texts = {tuple(tokenizer(text)["input_ids"]): text for text in small.TEXTS}
    padding = tokenizer.pad_token_id
    rows = [{"text": texts[tuple(token for token in row if token != padding)]} for row in whole]
    made = collator_of(family, return_tensors="np").for_steps(step, STEPS)(rows)
    return [made[name].tolist() for name in ("input_ids", "labels")]


if __name__ == "__main__":
    place, keys = Path(sys.argv[1]), json.loads(sys.argv[2])
    made = train(folder=place, **keys)
    (place / f"rank{torch.distributed.get_rank()}.json").write_text(json.dumps(made))
    torch.distributed.destroy_process_group()  # its threads would abort the exit
