"""A stage that measures forgetting: a model's loss on the general pre-training objective."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskpolicy.core import hardware
from maskpolicy.core.errors import DataError
from maskpolicy.core.keys import from_json
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.schema import omitted
from maskpolicy.core.types import Denoising, Json
from maskpolicy.data.corpus import documents
from maskpolicy.data.corpus.annotation import annotate
from maskpolicy.data.corpus.documents import Source
from maskpolicy.data.corpus.passages import Document, Passages, build_passages
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import CorpusBlock
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.models import text_to_text
from maskpolicy.models.families import bounded
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.text_to_text import token_loss
from maskpolicy.models.training.loop import held_out_losses
from maskpolicy.models.training.steps import MaskedSteps
from maskpolicy.pipeline.graph.nodes import Folders, StageRun, stage
from maskpolicy.pipeline.stages.params import PolicyParams
from maskpolicy.plugins import hooks
from maskpolicy.plugins.hooks import STATISTICS
from maskpolicy.plugins.statistics import Statistics

LOSS = "loss.json"
_BATCH = 32  # passages


@dataclass(frozen=True, kw_only=True)
class GeneralLossParams(PolicyParams):
    """A denoising objective, and held-out text of a world or corpus to measure it on."""

    masking: int  # version of the stage "general"
    how: Mapping[str, Json]  # fields of Denoising: those not at their defaults, or all
    seed: int
    passages: int
    words: int  # of a passage
    world: Settings | None = omitted(None)
    corpus: Source | None = omitted(None)
    code: Mapping[str, str] | None = omitted(None)  # of a user's policy: file -> sha256


@stage("general-loss", version=3)
def general_loss(params: GeneralLossParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Measure the loss of an objective on held-out text, with each passage once.

    A policy that reads statistics needs the input "statistics". Writes the summed loss and the
    number of target tokens of each batch.
    """
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    model: Any = text_to_text.load(str(inputs["model"]))
    model.to(hardware.device())
    found = _documents(params, run.local.corpus)
    policy: Any = params.instance()
    statistics = Statistics.open(inputs[STATISTICS]) if STATISTICS in inputs else None
    passages = build_passages(found, tokenizer, params.words, params.passages)
    size = min(_BATCH, len(passages))
    if hooks.ANNOTATE.of(policy) is not None:
        columns = annotate(policy, passages, statistics=statistics)
        rows = {name: Ragged.of_arrays(values) for name, values in columns.items()}
        passages = Passages({**passages.arrays, **rows})
    count = len(passages) // size
    spec = Training(count, size, seed=params.seed, micro_tokens=4096)  # so schedules run once
    steps = MaskedSteps(
        passages,
        policy,
        from_json(Denoising, params.how),
        text_to_text.specials(tokenizer, model),
        bounded(spec, model),
        statistics=[statistics if hooks.STATISTICS in hooks.SELECT.extra(policy) else None],
    )
    sums, counts = held_out_losses(model, token_loss, steps, count, run.progress)
    if not sum(counts):
        raise DataError("the held-out general text is too short: none of it was masked")
    (out / LOSS).write_text(json.dumps({"sums": sums, "tokens": counts}))


def _documents(params: GeneralLossParams, where: CorpusBlock | None) -> Iterator[Document]:
    if params.corpus is not None:
        yield from documents.read(params.corpus, {}, where)
    elif params.world is not None:
        from maskpolicy.data.world.unasked_texts import held_out

        for entry in held_out(params.world, params.passages):
            yield Document(entry.id, entry.text)
