"""Stages of learned policies: read the contexts of a task, and fit a policy on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskpolicy.core import hub
from maskpolicy.core.types import Denoising, Json, Spans
from maskpolicy.data.corpus import annotation
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.data.taskfiles import examples
from maskpolicy.experiment.learned_policies import TRAIN_ON
from maskpolicy.models.learned import fit_tools, hits
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.pipeline.graph.nodes import Folders, StageRun, stage
from maskpolicy.pipeline.stages.params import FitParams, TaskParams
from maskpolicy.plugins import hooks, registry
from maskpolicy.plugins.hooks import STATISTICS
from maskpolicy.plugins.statistics import Statistics

CONTEXTS = "contexts-"  # inputs of the stage "fit": contexts-00, contexts-01, ..
CLASSIFIER = "classifier"  # the input of a policy that needs one
CANDIDATES = "candidates"  # the column of a learned policy's spans, best first
REPORT = "report.json"


@stage("contexts")
def contexts(params: TaskParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Read the contexts and answers of a task's train and dev for learned policies.

    For a label task, write its examples instead. inputs: "world", unless the data is elsewhere, and
    "corpus" for tasks that retrieve contexts.
    """
    block = params.task
    folder = inputs["world"] / "tasks" if "world" in inputs else Path(run.local.folder or ".")
    counts: dict[str, Json] = {}
    texts = _Texts(inputs["corpus"]) if "corpus" in inputs else ()
    for split in fit_tools.SPLITS:
        path = out / f"{split}.jsonl"
        if params.labels:
            found, counts[split] = fit_tools.find_labelled(block, split, folder)
            examples.write_rows(path, found)
            continue
        rows, counts[split] = fit_tools.find_contexts(block, split, folder, texts, params.language)
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        path.write_text("".join(lines), encoding="utf-8")
    about: dict[str, Json] = {"task": block.name, "counts": counts}
    about |= {fit_tools.LABELS: True} if params.labels else {}
    (out / fit_tools.COUNTS).write_text(json.dumps(about, indent=1), encoding="utf-8")
    run.facts.update(counts)
    if params.hub and block.revision:
        hub.note("dataset", params.hub[0], run.local.revision, block.revision)


class _Texts(Sequence[str]):
    """The texts of a corpus's passages, read on access because most tasks retrieve none."""

    def __init__(self, folder: Path) -> None:
        self._rows = Passages.open(folder).arrays["texts"]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows.text(index)


@stage("fit", version=5)
def fit(params: FitParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Fit a learned policy.

    inputs: "model", "tokenizer", the contexts of each task, "init" if it starts from another
    policy, and "classifier" and "statistics" if it needs them.
    """
    policy: Any = params.instance()
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    folders = [inputs[name] for name in sorted(inputs) if name.startswith(CONTEXTS)]
    data = [
        fit_tools.load_contexts(folder, tokenizer, label, params.language)
        for folder, label in zip(folders, params.fields.get(TRAIN_ON, ()), strict=True)
    ]
    spec = replace(params.spec, checkpoint_every=run.local.checkpoint_every)
    tools = fit_tools.Tools(
        inputs["model"],
        inputs["tokenizer"],
        inputs.get("init"),
        run,
        params.how or Denoising(),
        inputs.get(CLASSIFIER),
    )
    statistics = Statistics.open(inputs[STATISTICS]) if STATISTICS in inputs else None
    more = registry.statistics_for(hooks.FIT, policy, statistics)

    def odd(number: str) -> None:
        raise registry.policy_fault(policy, f"fit returned {number}: return finite numbers or None")

    with registry.policy_errors(policy, lambda: "fit"):
        training = policy.fit(data, spec, out, tools, **more)
        text = json.dumps(training, default=lambda value: value.tolist())  # arrays
        training = json.loads(text, parse_constant=odd)
    if (out / REPORT).exists():
        fault = f"fit wrote {REPORT}, which maskpolicy writes itself: give the file another name"
        raise registry.policy_fault(policy, fault)
    report = {"training": training, "contexts": {one.name: dict(one.counts) for one in data}}
    report["dev"] = _dev(policy, data, out, statistics)
    text = json.dumps(report, indent=1, sort_keys=True)
    (out / REPORT).write_text(f"{text}\n", encoding="utf-8")
    run.facts.update(report)


def _dev(
    policy: Any, data: list[fit_tools.Contexts], fitted: Path, statistics: Statistics | None
) -> Json:
    """Return how often an answer of dev is among the best spans; None without ranked spans."""
    if hooks.LEARNS_FROM.of(policy) == "labels":
        return None
    found: list[list[Spans]] = []
    for one in data:
        passages = [context.passage for context in hits.answered(one.dev)]
        columns: dict[str, list[Any]] = {CANDIDATES: []}
        if passages:
            columns = annotation.annotate(policy, passages, fitted, statistics=statistics)
        if CANDIDATES not in columns:
            return None
        found.append(columns[CANDIDATES])
    return hits.report(data, found)
