"""What models know of the world, and what they forget of their general training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from maskpolicy import ConfigError, Count, Findings, Json, Run, Seed, Store, StoreError, analysis
from maskpolicy.analyses import IntermediateStage, derive
from maskpolicy.analyses.cache import lacking
from maskpolicy.analyses.masked_sample import rows_of_stages, unchanged_block
from maskpolicy.analyses.plots import Bars, Series
from maskpolicy.core.files import read_json
from maskpolicy.data.corpus import documents
from maskpolicy.experiment.definition import ENCODER, CorpusBlock, PolicyBlock
from maskpolicy.experiment.policy_blocks import GENERAL_POLICY, leaf_blocks
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.leaderboard import stats
from maskpolicy.pipeline.graph.nodes import Local, params_of, version_of
from maskpolicy.pipeline.stages.cloze_answers import ANSWERS, ClozeParams
from maskpolicy.pipeline.stages.general_loss import LOSS, GeneralLossParams
from maskpolicy.pipeline.stages.params import GeneralParams
from maskpolicy.pipeline.stages.policy_inputs import policy_params
from maskpolicy.pipeline.stages.training_text import statistics_keys
from maskpolicy.plugins import hooks, registry
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.hooks import STATISTICS

_FILLED_IN = ("policy", "stage", "kind", "values", "right name", "wrong name", "most frequent")


@analysis("cloze", heading="Masked facts that the model fills in", place=70, version=4)
@dataclass(frozen=True)
class Cloze:
    """Share of masked values filled in correctly, with the subject's name and with another's.

    In percent, for each kind of subject of the embedded world. The values are those that questions
    ask for, each masked alone in its entry. "wrong name" replaces the name by that of another
    subject of the same kind and still expects the original value. "most frequent" always guesses
    the relation's most frequent value.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Evaluate the model of every intermediate stage."""
        rows, notes = rows_of_stages(runs, store, _cloze_rows)
        names = [f"{name}, {row['kind']}" for name, row in zip(_names(rows), rows, strict=True)]
        series = [
            Series(name, [row[name] for row in rows], color=color)
            for name, color in (("right name", 0), ("wrong name", 6))
        ]
        panel = Bars("", "masked values filled in correctly (%)", names, series)
        return Findings(_FILLED_IN, tuple(rows), tuple(notes), (panel,), partial=bool(notes))


def _cloze_rows(each: IntermediateStage, store: Store) -> list[Json]:
    """Return a row for each kind of subject, for one intermediate stage."""
    from maskpolicy.data.world.unasked_texts import blanks, majority

    if each.params.kind == ENCODER:
        raise ConfigError("cloze: needs text-to-text models, and those of this run are encoders")
    settings = _world_of(each.corpus, store)
    if settings is None:
        raise ConfigError("cloze: tests facts of the embedded world and needs corpus: world")
    inputs = {"model": each.key, "tokenizer": each.inputs["tokenizer"]}
    params = ClozeParams.of(each.params, settings)
    answers = read_json(derive(store, "cloze", each.label, params, inputs).path / ANSWERS)
    known = list(blanks(settings))
    rows = []
    for kind in dict.fromkeys(answer["kind"] for answer in answers):
        of_kind = [answer for answer in answers if answer["kind"] == kind]
        rows.append(
            {
                "policy": each.label,
                "stage": each.number,
                "kind": kind,
                "values": len(of_kind),
                "right name": 100 * sum(answer["own"] for answer in of_kind) / len(of_kind),
                "wrong name": 100 * sum(answer["other"] for answer in of_kind) / len(of_kind),
                "most frequent": 100 * majority([b for b in known if b.kind == kind]),
            }
        )
    return rows


def _world_of(corpus: str, store: Store) -> Settings | None:
    """Return the settings of the embedded world that a corpus describes; None for other text.

    Raises StoreError if the corpus or the world is not in the store.
    """
    manifest = store.peek(corpus)
    key = manifest["record"]["inputs"].get("world") if manifest else ""
    world = store.peek(key) if key else None
    if world is None and key is not None:
        raise StoreError(lacking(store, "the world of its corpus"))
    return params_of(world["record"], Settings) if world else None


_LOSSES = ("policy", "stage", "before", "after", "difference", "low", "high", "tokens")
_Objective: TypeAlias = tuple[str, GeneralLossParams, dict[str, str], Local]
"""The target form; and of the stage that measures a model: its params, other inputs, local."""
TARGET = "target"  # the column of the target form, for a general objective with several


@analysis(
    "forgetting", heading="What the model forgot of its general training", place=80, version=3
)
@dataclass(frozen=True)
class Forgetting:
    """Loss of the general objective on held-out general text, before and after each stage.

    For a published model, whose own objective is not known, that of `original`: mask 15%, and
    recover the whole text. In nats per target token, on the same passages and masks for every
    model. If the general stage mixes policies, full and spans targets have rows of their own: each
    form is measured with the policies of that form, which mask all passages in turn. Models built
    from scratch are evaluated on entries about people who are in no corpus; other models need
    `text`. `low` and `high` bound the 95% interval of the difference over batches of passages.
    """

    text: tuple[str, ...] = ()  # files of general text that no stage has seen
    passages: Count = 512
    words: Count = 100  # in a passage
    seed: Seed = 0

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Measure the loss of the model before and after each intermediate stage."""
        rows, notes = rows_of_stages(runs, store, self._rows)
        targets = list(dict.fromkeys(row[TARGET] for row in rows))
        columns: tuple[str, ...] = _LOSSES
        panels = [_panel(rows, "")]
        if len(targets) > 1:
            columns = (*_LOSSES[:2], TARGET, *_LOSSES[2:])
            panels = [_panel([r for r in rows if r[TARGET] == name], name) for name in targets]
        partial = bool(notes or self.text)  # files may change; each loss is cached by content
        return Findings(columns, tuple(rows), tuple(notes), tuple(panels), partial=partial)

    def _rows(self, row: IntermediateStage, store: Store) -> Iterator[Json]:
        """Yield what a stage changed: a row for each target form of the general objective."""
        losses: dict[str, list[NDArray[np.float64]]] = {}
        models = (row.inputs["model"], row.key)
        for target, params, inputs, local in self._objectives(row, store):
            text, place = params.corpus, local.corpus
            files = documents.digests(text, place) if text is not None and place is not None else {}
            pair = []
            for model in models:
                read = {"model": model, **inputs}
                artifact = derive(store, "general-loss", row.label, params, read, local, files)
                values = read_json(artifact.path / LOSS)
                pair.append([values["sums"], values["tokens"]])
            losses.setdefault(target, []).append(np.array(pair, np.float64))
        for target, pairs in losses.items():
            named = {"policy": row.label, "stage": row.number, TARGET: target}
            alike = len({pair.shape for pair in pairs}) == 1  # batches of the same passages
            whole = np.sum(pairs, axis=0) if alike else np.concatenate(pairs, axis=-1)
            yield {**named, **_difference(*whole)}

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
            raise StoreError(lacking(store, "the model before its stage"))
        record = base["record"]
        about, local = self._text(record, store)
        inputs = {"tokenizer": row.inputs["tokenizer"]}
        if record["kind"] != "general":
            yield about.how["target"], about, inputs, local
            return
        own = params_of(record, GeneralParams)
        unchanged = unchanged_block(own, row.run, "the general stage")
        block = replace(unchanged, denoising=own.how)
        leaves = [leaf for leaf, _ in leaf_blocks(block, own.policy)]
        keys = statistics_keys(record["inputs"], len(leaves), store)
        for leaf, counted in zip(leaves, keys, strict=True):
            more = {STATISTICS: counted} if counted else {}
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
        is_built = record["kind"] == "general"
        settings = _world_of(record["inputs"]["corpus"], store) if is_built else None
        if settings is None:
            raise ConfigError(
                "forgetting: this model was pre-trained on text of its own: set text to general "
                "text that no stage has seen, e.g. text='[wiki.txt]'"
            )
        return replace(params, world=settings), Local()


def _masking(leaf: PolicyBlock) -> dict[str, Any]:
    """Return the fields of `GeneralLossParams` that say what a policy masks, and how."""
    fields = policy_params(leaf)
    if hooks.ANNOTATE.of(leaf.policy):
        fields["depends"] = registry.depends(leaf.policy)
    return {**fields, "code": fields["code"] or None, "how": asdict(leaf.denoising)}


def _panel(rows: Sequence[Json], name: str) -> Bars:
    series = [
        Series(name, [row[name] for row in rows], color=color)
        for name, color in (("before", 6), ("after", 0))
    ]
    what = f", {name} targets" if name else ""
    return Bars(name, f"loss on held-out general text{what} (nats)", _names(rows), series)


def _names(rows: Sequence[Json]) -> list[str]:
    """Return the row of each bar, with the number of its intermediate run if a row has several."""
    several = any(row["stage"] for row in rows)
    return [f"{row['policy']}, run {row['stage']}" if several else row["policy"] for row in rows]


def _difference(before: NDArray[np.float64], after: NDArray[np.float64]) -> Json:
    """Return both means and their difference with a 95% interval, paired by batch.

    Both are (2, batches): sums of the loss, and numbers of tokens.
    """
    tokens = float(before[1].sum())
    means = float(before[0].sum() / tokens), float(after[0].sum() / after[1].sum())
    difference = means[1] - means[0]
    rest = (after[0] - before[0]) - difference * before[1]
    count = len(rest)
    low = high = None
    if count > 1:
        error = math.sqrt(count / (count - 1) * float(rest @ rest)) / tokens
        low, high = stats.interval(difference, error, count - 1)
    found = (*means, difference, low, high, int(tokens))
    return dict(zip(_LOSSES[2:], found, strict=True))
