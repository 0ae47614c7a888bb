"""Stages of a task: its examples, and the answers and scores of a fine-tuned model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from maskpolicy import examples as task_examples
from maskpolicy import hardware, hub, metrics
from maskpolicy import model as models
from maskpolicy import plugins as plugin_files
from maskpolicy.budgets import Training
from maskpolicy.config import TaskBlock
from maskpolicy.errors import DataError
from maskpolicy.generation import generate, rank
from maskpolicy.graph import Run, stage
from maskpolicy.sources import SPLITS
from maskpolicy.types import Example, Json

Progress = Callable[[int, int, str], None]


@stage("examples")
def examples(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Read the three splits of a task. params: {"task": its block, "files": their digests}."""
    plugin_files.load_files(run.local.get("plugins", ()))
    block = TaskBlock(**params["task"])
    folder = inputs["world"] / "tasks" if "world" in inputs else Path(run.local.get("folder", "."))
    for split in SPLITS:
        found = task_examples.load(block, split, folder, contexts=False)
        lines = [json.dumps(asdict(example), ensure_ascii=False) for example in found.examples]
        text = "".join(f"{line}\n" for line in lines)
        (out / f"{split}.jsonl").write_text(text, encoding="utf-8")
        run.facts[split] = {
            "examples": len(lines),
            "unlabelled": found.unlabelled,
            "malformed": len(found.malformed),
        }
    if "hub" in params and block.revision:
        hub.note("dataset", params["hub"][0], run.local.get("revision"), block.revision)


def read_examples(folder: Path, split: str) -> list[Example]:
    """Return the examples of a split from an "examples" artifact."""
    with (folder / f"{split}.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        row |= {"targets": tuple(row["targets"]), "choices": tuple(row["choices"])}
    return [Example(**row) for row in rows]


@stage("evaluate")
def evaluate(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Answer a task's test examples and score the answers. params: as finetune.

    {"split"} names another split than test.
    """
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    model: Any = models.load(str(inputs["model"]))
    model.to(hardware.device())
    spec = models.bounded(Training(**params["spec"]), model)
    model.set_attn_implementation(spec.attention)
    test = read_examples(inputs["examples"], params.get("split", "test"))
    predictions, scores = answer(model, tokenizer, test, params, spec, run.progress)
    lines = [
        json.dumps(
            {
                "id": example.id,
                "group": example.group,
                "prediction": prediction,
                "targets": list(example.targets),
                "score": score,
                "slices": dict(example.slices),
            },
            ensure_ascii=False,
        )
        for example, prediction, score in zip(test, predictions, scores, strict=True)
    ]
    (out / "predictions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    metric = metrics.metric(params["metric"])
    result = {
        "metric": metric.name,
        "version": metric.version,
        "score": sum(scores) / len(scores),
        "n": len(scores),
    }
    (out / "result.json").write_text(json.dumps(result, indent=1, sort_keys=True))


def answer(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    params: Json,
    spec: Training,
    progress: Progress | None = None,
) -> tuple[list[str], list[float]]:
    """Return the model's answer to each example and its score between 0 and 1.

    params: {"metric", "keep"}; {"choose": "likelihood"} takes the likeliest of the choices.
    """
    import torch

    model.to(torch.bfloat16 if spec.precision == "bf16" else torch.float32)
    how = {"max_source": spec.max_source, "keep": params["keep"], "progress": progress}
    sources = [example.source for example in examples]
    if params.get("choose") == "likelihood":
        how["max_target"] = spec.max_target
        predictions = rank(model, tokenizer, sources, _choices(examples), **how)
    else:
        predictions = generate(model, tokenizer, sources, **how)
    references = [example.targets for example in examples]
    return predictions, metrics.score(params["metric"], predictions, references)


def _choices(examples: Sequence[Example]) -> list[tuple[str, ...]]:
    for example in examples:
        if not example.choices:
            raise DataError(f"example {example.id!r} has no choices: leave choose: likelihood out")
    return [example.choices for example in examples]
