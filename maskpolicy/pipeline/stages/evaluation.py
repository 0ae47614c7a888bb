"""Stages of a task: its examples, their audit, a majority guess, and the scores of a model."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from maskpolicy.core import hardware, hub, metrics
from maskpolicy.core.errors import DataError
from maskpolicy.core.types import Example, Json
from maskpolicy.data import majority
from maskpolicy.data.taskfiles import audit as audits
from maskpolicy.data.taskfiles import examples as task_examples
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.task_kinds import TASK_KINDS, TEXT
from maskpolicy.models.families import bounded, limits, within
from maskpolicy.models.finetuning import ANSWERING, TASK_HEADS
from maskpolicy.models.finetuning.encoder_tasks import windows
from maskpolicy.models.loading import load_config, load_tokenizer, set_attention
from maskpolicy.pipeline.graph.nodes import Folders, StageRun, stage
from maskpolicy.pipeline.stages.params import (
    AuditParams,
    EvaluateParams,
    MajorityParams,
    TaskParams,
    WindowsParams,
)

AUDIT, WINDOWS = "audit.json", "windows.json"
RESULT, PREDICTIONS = "result.json", "predictions.jsonl"
log = logging.getLogger(__name__)


@stage("train-examples")
def train_examples(params: TaskParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Read the train and dev examples of a task."""
    _read_splits(("train", "dev"), params, inputs, out, run)


@stage("test-examples")
def test_examples(params: TaskParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Read the test examples of a task."""
    _read_splits(("test",), params, inputs, out, run)


def _read_splits(
    splits: Sequence[str],
    params: TaskParams,
    inputs: Folders,
    out: Path,
    run: StageRun,
) -> None:
    block = params.task
    folder = inputs["world"] / "tasks" if "world" in inputs else Path(run.local.folder or ".")
    for split in splits:
        found = task_examples.read_split(block, split, folder, contexts=False)
        task_examples.write_rows(out / f"{split}.jsonl", found.examples)
        run.facts[split] = {
            "examples": len(found.examples),
            "unlabelled": found.unlabelled,
            "malformed": found.malformed,
            "repeated": len(found.repeated),
        }
    if params.hub and block.revision:
        hub.note("dataset", params.hub[0], run.local.revision, block.revision)


@stage("audit", urgent=True)
def audit(params: AuditParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Count test examples that are also in train, and truncated texts."""
    most: tuple[int | None, int | None] = params.positions, params.positions
    if params.positions is None:
        most = limits(load_config(inputs["model"]))
    asked = Training(max_source=params.max_source, max_target=params.max_target)
    spec = within(asked, most)
    head = TASK_HEADS[params.head]
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    train, test = (read_examples(inputs[split], split) for split in ("train", "test"))
    cuts = [
        {
            "split": split,
            **asdict(cut),
            "key": cut.key if getattr(spec, cut.key) == getattr(asked, cut.key) else "positions",
        }
        for split, rows in (("train", train), ("test", test))
        for cut in head.cuts(tokenizer, rows, spec, params, split == "train")
    ]
    reads_context = TASK_KINDS[params.head].reads_context
    shared = audits.overlap(train, test, contexts=reads_context, ids=params.has_ids)
    found = {"test_in_train": shared, "cuts": cuts}
    (out / AUDIT).write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")
    for line in audits.notes(run.name, found):
        log.warning("%s", line)


@stage("windows")
def count_windows(params: WindowsParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Count the windows in which training reads the examples of a span task."""
    examples, spec = read_examples(inputs["examples"], "train"), Training(**vars(params))
    cuts = windows(examples, load_tokenizer(str(inputs["tokenizer"])), spec)
    (out / WINDOWS).write_text(str(len(cuts)), encoding="utf-8")


def read_examples(folder: Path, split: str) -> list[Example]:
    """Return the examples of a split from the artifact of a stage EXAMPLES[split]."""
    return task_examples.read_rows(folder / f"{split}.jsonl")


@stage("majority", version=4)
def guess_majority(params: MajorityParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Guess the test answers of a task without a model, and score the guesses."""
    train, dev = (read_examples(inputs["train"], split) for split in ("train", "dev"))
    test = read_examples(inputs["test"], "test")
    material = majority.Material(
        train, metric=params.metric, keep=params.keep, unanswerable=params.unanswerable
    )
    found = majority.best(material, dev, test, params.kind)
    text = json.dumps(asdict(found), indent=1, sort_keys=True)
    (out / majority.FILE).write_text(text, encoding="utf-8")


@stage("evaluate", version=5)
def evaluate(params: EvaluateParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Predict the answers of one split of a task, and score them."""
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    head = ANSWERING[params.head]
    model = head.load(inputs["model"])
    model.to(hardware.device())
    spec = bounded(params.spec, model)
    set_attention(model, spec.attention, fp32=params.head != TEXT)  # text.answer casts it
    test = read_examples(inputs["examples"], params.split)
    if not test:
        raise DataError(
            f"the task has no examples in {params.split}: give some, or tune no row on it"
        )
    predictions = head.answer(model, tokenizer, test, params, spec, run.progress)
    found = metrics.score(params.metric, predictions, test)
    answered = zip(test, predictions, found.scores, strict=True)
    lines = [json.dumps(_answer(*each), ensure_ascii=False) for each in answered]
    (out / PREDICTIONS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    others = {name: metrics.score(name, predictions, test).score for name, _ in params.besides}
    parts = {**found.parts, **others}
    result = replace(found, version=params.metric_version, parts=parts).to_json()
    (out / RESULT).write_text(json.dumps(result, indent=1, sort_keys=True))


def _answer(example: Example, prediction: str, score: float) -> Json:
    return {
        "id": example.id,
        "group": example.group,
        "prediction": prediction,
        "targets": list(example.targets),
        "score": score,
        "slices": dict(example.slices),
    }
