"""Stages of a task: its examples, and the answers and scores of a fine-tuned model."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from maskpolicy import hardware, heads, hub, metrics
from maskpolicy import majority as guesses
from maskpolicy.config.budgets import Training
from maskpolicy.config.experiment import TaskBlock
from maskpolicy.formats import audit as audits
from maskpolicy.formats import examples as task_examples
from maskpolicy.formats.sources import SPLITS
from maskpolicy.graph.nodes import Run, stage
from maskpolicy.metrics import Total
from maskpolicy.models import seq2seq as models
from maskpolicy.models.loading import load_weights
from maskpolicy.plugins import discovery as plugin_files
from maskpolicy.types import Example, Json

AUDIT = "audit.json"
log = logging.getLogger(__name__)


@stage("examples", version=2)
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
            "malformed": found.malformed,
            "repeated": len(found.repeated),
        }
    if "hub" in params and block.revision:
        hub.note("dataset", params["hub"][0], run.local.get("revision"), block.revision)


@stage("audit")
def audit(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Count test examples that stand in train, and texts that are cut.

    params: {"head", "choose", "max_source", "max_target", "positions"}; where the positions are
    null, those of the input "model".
    """
    from transformers import AutoConfig

    most = params["positions"]
    if most is None:
        most = models.positions(load_weights(AutoConfig, str(inputs["model"]), None))
    limits = {key: min(params[key], most) for key in ("max_source", "max_target")}
    head, spec = heads.of(params), replace(Training(), **limits)
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    train, test = (read_examples(inputs["examples"], split) for split in ("train", "test"))
    cuts = [
        {"split": split, **asdict(cut), "key": cut.key if params[cut.key] <= most else "positions"}
        for split, rows in (("train", train), ("test", test))
        for cut in head.cuts(tokenizer, rows, spec, params, split == "train")
    ]
    shared = audits.overlap(train, test, contexts=params.get("head", "text") != "text")
    found = {"test_in_train": shared, "cuts": cuts}
    (out / AUDIT).write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")
    for line in audits.notes(run.name, found):
        log.warning("%s", line)


def read_examples(folder: Path, split: str) -> list[Example]:
    """Return the examples of a split from an "examples" artifact."""
    with (folder / f"{split}.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        row |= {"targets": tuple(row["targets"]), "choices": tuple(row["choices"])}
    return [Example(**row) for row in rows]


@stage("majority", version=3)
def majority(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Guess a task's test answers without a model, and score the guesses.

    params: {"metric", "metric_version", "kind", "keep", "unanswerable"}: facts of the task.
    """
    train, dev, test = (read_examples(inputs["examples"], split) for split in SPLITS)
    facts = {name: params[name] for name in ("metric", "keep", "unanswerable")}
    found = guesses.best(guesses.Material(train, **facts), dev, test, params["kind"])
    text = json.dumps(asdict(found), indent=1, sort_keys=True)
    (out / guesses.FILE).write_text(text, encoding="utf-8")


@stage("evaluate", version=2)
def evaluate(params: Json, inputs: Mapping[str, Path], out: Path, run: Run) -> None:
    """Answer a task's test examples and score the answers. params: as finetune.

    {"split"} names another split than test.
    """
    tokenizer = models.load_tokenizer(str(inputs["tokenizer"]))
    head = heads.of(params)
    model = head.open(inputs["model"])
    model.to(hardware.device())
    spec = models.bounded(Training(**params["spec"]), model)
    model.set_attn_implementation(spec.attention)
    test = read_examples(inputs["examples"], params.get("split", "test"))
    predictions = head.answer(model, tokenizer, test, params, spec, run.progress)
    found = score(params, predictions, test)
    answered = zip(test, predictions, found.scores, strict=True)
    lines = [json.dumps(_answer(*each), ensure_ascii=False) for each in answered]
    (out / "predictions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = replace(found, version=params["metric_version"]).to_json()
    (out / "result.json").write_text(json.dumps(result, indent=1, sort_keys=True))


def _answer(example: Example, prediction: str, score: float) -> Json:
    return {
        "id": example.id,
        "group": example.group,
        "prediction": prediction,
        "targets": list(example.targets),
        "score": score,
        "slices": dict(example.slices),
    }


def score(params: Json, predictions: Sequence[str], examples: Sequence[Example]) -> Total:
    """Return what the task's metric says of the predictions. params: {"metric"}."""
    references = [list(example.targets) for example in examples]
    return metrics.total(params["metric"], predictions, references)
