"""Forgetting: the loss of the general objective before and after the intermediate stage."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy import ConfigError, Count, Findings, Json, Run, Seed, Store, StoreError, analysis
from maskpolicy.analyses import IntermediateStage, derive
from maskpolicy.analyses.masked_sample import rows_of_stages
from maskpolicy.analyses.plots import Bars, Series
from maskpolicy.data.corpus import documents
from maskpolicy.experiment.definition import ENCODER, CorpusBlock, PolicyBlock
from maskpolicy.experiment.policy_blocks import GENERAL_POLICY, leaf_blocks, policy_block
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.leaderboard.results.cell import plugin_files
from maskpolicy.pipeline.graph.nodes import params_of, version_of
from maskpolicy.pipeline.graph.stage_run import Local
from maskpolicy.pipeline.stages.general_loss import LOSS, GeneralLossParams
from maskpolicy.pipeline.stages.leaf_inputs import statistics_keys
from maskpolicy.pipeline.stages.params import GeneralParams
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import (
    changed_since,
    code_digests,
    find_plugin,
    plugin_of_run,
)
from maskpolicy.plugins.hooks import STATISTICS

COLUMNS = ("policy", "stage", "before", "after", "difference", "low", "high", "tokens")
_Objective: TypeAlias = tuple[str, GeneralLossParams, dict[str, str], Local]
"""The target form, and the stage that measures a model: params, inputs besides it, and local."""
TARGET = "target"  # the column of the target form, if the general objective has several


@dataclass(frozen=True, eq=False)
class _Loss:
    """Sums of the loss and numbers of tokens, shape (batches,)."""

    sums: NDArray[np.float64]
    tokens: NDArray[np.float64]

    @property
    def mean(self) -> float:
        return float(self.sums.sum() / self.tokens.sum())


@analysis("forgetting", heading="What the model forgot of its general training", place=80)
@dataclass(frozen=True)
class Forgetting:
    """Loss of the general objective on held-out general text, before and after each stage.

    In nats per target token, on the same passages and masks for every model. If the general stage
    mixes policies, full and spans targets have rows of their own: each form is measured with the
    policies of that form, which mask all passages in turn. Models built from
    scratch are evaluated on entries about people who are in no corpus; other models need `text`.
    `low` and `high` bound the 95% interval of the difference over batches of passages.
    """

    text: tuple[str, ...] = ()  # files of general text that no stage has seen
    passages: Count = 512
    words: Count = 100  # in a passage
    seed: Seed = 0

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Measure the loss of the model before and after each intermediate stage."""
        rows, notes = rows_of_stages(runs, store, self._rows)
        targets = list(dict.fromkeys(row[TARGET] for row in rows))
        panels = tuple(
            _panel([row for row in rows if row[TARGET] == target], target if targets[1:] else "")
            for target in targets or [""]
        )
        if not targets[1:]:
            rows = [{key: row[key] for key in COLUMNS} for row in rows]
        partial = bool(notes or self.text)  # files may change; each loss is cached by content
        columns = (*COLUMNS[:2], TARGET, *COLUMNS[2:]) if targets[1:] else COLUMNS
        return Findings(columns, tuple(rows), tuple(notes), panels, partial=partial)

    def _rows(self, row: IntermediateStage, store: Store) -> Iterator[Json]:
        """Yield what a stage changed: a row for each target form of the general objective."""
        losses: dict[str, list[tuple[_Loss, _Loss]]] = {}
        for target, params, inputs, local in self._objectives(row, store):
            pair = tuple(
                self._loss(row, {"model": model, **inputs}, params, local, store)
                for model in (row.inputs["model"], row.key)
            )
            losses.setdefault(target, []).append((pair[0], pair[1]))
        for target, pairs in losses.items():
            before, after = (_joined(each) for each in zip(*pairs, strict=True))
            named = {"policy": row.label, "stage": row.number, TARGET: target}
            yield {**named, **_difference(before, after)}

    def _loss(
        self,
        row: IntermediateStage,
        inputs: Mapping[str, str],
        params: GeneralLossParams,
        local: Local,
        store: Store,
    ) -> _Loss:
        text, place = params.corpus, local.corpus
        files = documents.digests(text, place) if text is not None and place is not None else {}
        artifact = derive(store, "general-loss", row.label, params, inputs, local, files)
        values = json.loads((artifact.path / LOSS).read_text())
        return _Loss(np.asarray(values["sums"]), np.asarray(values["tokens"], np.float64))

    def _objectives(self, row: IntermediateStage, store: Store) -> Iterator[_Objective]:
        """Yield each objective that the general model was trained on, with its target form.

        A policy that draws members has those of all of them.
        """
        if row.params.kind == ENCODER:
            raise ConfigError(
                "forgetting: needs text-to-text models, and the models of this run are encoders "
                "(model.kind: encoder)"
            )
        base = store.peek(row.inputs["model"])
        if base is None:
            raise StoreError(f"the model before its stage is not in the store {store.place}")
        record = base["record"]
        about, local = self._text(record, store)
        inputs = {"tokenizer": row.inputs["tokenizer"]}
        if record["kind"] != "general":
            yield about.how["target"], about, inputs, local
            return
        own = params_of(record, GeneralParams)
        _check_code(own, row.run)
        row_policy = policy_block({"name": own.policy, **own.fields}, own.policy, {})
        block = replace(row_policy, denoising=own.how)
        leaves = [leaf for leaf, _ in leaf_blocks(block, own.policy)]
        keys = statistics_keys(record["inputs"], len(leaves), store)
        for leaf, read in zip(leaves, keys, strict=True):
            more = {STATISTICS: read} if read else {}
            params = replace(about, **_masking(leaf))
            yield leaf.denoising.target, params, {**inputs, **more}, local

    def _text(self, record: Json, store: Store) -> tuple[GeneralLossParams, Local]:
        """Return the text to measure on, as params and local of the stage, for `original`."""
        params = GeneralLossParams(
            masking=version_of("general"),
            policy=GENERAL_POLICY,
            fields={},
            how=find_plugin("policy", GENERAL_POLICY).facts,
            seed=self.seed,
            passages=self.passages,
            words=self.words,
        )
        if self.text:
            corpus = CorpusBlock(files=tuple(str(Path(path).absolute()) for path in self.text))
            source = documents.identify(corpus, store.hash_file)
            return replace(params, corpus=source), Local(corpus=corpus)
        if record["kind"] != "general":
            raise ConfigError(
                "forgetting: this model was pre-trained elsewhere: set text to general text that "
                "no stage has seen, e.g. text='[wiki.txt]'"
            )
        return replace(params, world=_world(record, store)), Local()


def _masking(leaf: PolicyBlock) -> dict[str, Any]:
    """Return the fields of `GeneralLossParams` that say what a policy masks, and how."""
    return {
        "policy": leaf.name,
        "fields": leaf.fields,
        "how": asdict(leaf.denoising),
        "code": code_digests(find_plugin("policy", leaf.name)) or None,
        "depends": hooks.DEPENDS.of(leaf.policy)() if hooks.ANNOTATE.of(leaf.policy) else None,
    }


def _check_code(own: GeneralParams, run: Run) -> None:
    """Raise ConfigError if the code of a general stage's policy was changed since."""
    files = plugin_files(run.folder)
    for name, trained in {own.policy: own.code, **(own.member_code or {})}.items():
        if changed_since(plugin_of_run("policy", name, files), trained or {}):
            raise ConfigError(
                f"policy {name} has changed since the general stage: run its experiment again"
            )


def _joined(losses: Sequence[_Loss]) -> _Loss:
    return _Loss(
        np.concatenate([each.sums for each in losses]),
        np.concatenate([each.tokens for each in losses]),
    )


def _panel(rows: Sequence[Json], name: str) -> Bars:
    names = [f"{row['policy']}, run {row['stage']}" for row in rows]
    if not any(row["stage"] for row in rows):
        names = [row["policy"] for row in rows]
    series = [
        Series("before", [row["before"] for row in rows], color=6),
        Series("after", [row["after"] for row in rows], color=0),
    ]
    what = f", {name} targets" if name else ""
    return Bars(name, f"loss on held-out general text{what} (nats)", names, series)


def _world(record: Json, store: Store) -> Settings:
    """Return the settings of the world that a general stage was trained on."""
    corpus = store.peek(record["inputs"]["corpus"])
    world = store.peek(corpus["record"]["inputs"]["world"]) if corpus else None
    if world is None:
        raise StoreError(f"the world of its general stage is not in the store {store.place}")
    return params_of(world["record"], Settings)


def _difference(before: _Loss, after: _Loss) -> Json:
    """Return both means and their difference with a 95% interval, paired by batch."""
    difference = after.mean - before.mean
    rest = (after.sums - before.sums) - difference * before.tokens
    count = len(rest)
    low = high = None
    if count > 1:
        error = math.sqrt(count / (count - 1) * float(rest @ rest)) / float(before.tokens.sum())
        low, high = difference - 1.96 * error, difference + 1.96 * error
    return {
        "before": before.mean,
        "after": after.mean,
        "difference": difference,
        "low": low,
        "high": high,
        "tokens": int(before.tokens.sum()),
    }
