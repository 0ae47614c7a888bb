"""Parts of speech of the words in a sample: from a spaCy pipeline, or the world's gold tags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskpolicy import ragged
from maskpolicy.corpus import pipelines
from maskpolicy.corpus.documents import WorldSource
from maskpolicy.corpus.passages import Passages
from maskpolicy.corpus.pipelines import TAGS
from maskpolicy.errors import ConfigError
from maskpolicy.findings.cache import derive
from maskpolicy.findings.masked_sample import Sample, Sampling
from maskpolicy.graph.nodes import params_of, stage
from maskpolicy.graph.stage_run import Local, StageRun
from maskpolicy.ragged import Ragged, RaggedWriter
from maskpolicy.stages.params import CorpusParams
from maskpolicy.store.artifacts import Store
from maskpolicy.types import Json, Passage
from maskpolicy.world.tags import tag

FILE = "tags.safetensors"
GOLD = "gold_entities"


@dataclass(frozen=True, kw_only=True)
class TagsParams:
    """The parts of speech of a sample's words."""

    pipeline: Json  # the identity of a spaCy pipeline; None: the world's gold
    sampling: Sampling
    masking: int  # version of the stage "intermediate"


@stage("tags")
def tags(params: TagsParams, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Tag the words of a sample."""
    passages = Passages.open(inputs["corpus"])
    places = params.sampling.places(len(passages))
    sampled = [passages[place] for place in places.tolist()]
    rows: Iterator[NDArray[np.uint8]]
    if run.local.pipeline is None:
        rows = map(_gold, sampled)
    else:
        rows = pipelines.tag_words(sampled, run.local.pipeline)
    with RaggedWriter(out / FILE) as file:
        for row in rows:
            file.append({"tags": row})


def tagged(sample: Sample, sampling: Sampling, pipeline: str | None, store: Store) -> Ragged:
    """Return the index in TAGS of each word of a sample's passages.

    Raises ConfigError if `pipeline` is None and the corpus is not that of the embedded world.
    """
    manifest = store.peek(sample.row.corpus)
    corpus = params_of(manifest["record"], CorpusParams).corpus if manifest else None
    is_world = isinstance(corpus, WorldSource)
    if pipeline is None and not (is_world and GOLD in sample.passages.columns):
        raise ConfigError(
            "this corpus has no gold parts of speech and needs a tagger: run `python -m spacy "
            "download en_core_web_sm` and give pipeline=en_core_web_sm"
        )
    identity = None if pipeline is None else pipelines.pipeline_identity(pipeline)
    once = replace(sampling.sampling, draws=1)
    params = TagsParams(pipeline=identity, sampling=once, masking=sample.row.version)
    inputs, local = {"corpus": sample.row.corpus}, Local(pipeline=pipeline)
    files = pipelines.files_of(pipeline)
    artifact = derive(store, "tags", "", params, inputs, local, files)
    rows = ragged.load(artifact.path / FILE)["tags"]
    return Ragged.cut(np.tile(rows.flat, sampling.draws), np.tile(rows.lengths, sampling.draws))


def _gold(passage: Passage) -> NDArray[np.uint8]:
    inside = np.zeros(len(passage.tokens) + 1, bool)
    for start, end in passage.columns[GOLD].tolist():
        inside[start:end] = True
    starts, ends = (
        passage.offsets[passage.words[:, 0], 0],
        passage.offsets[passage.words[:, 1] - 1, 1],
    )
    words = [passage.text[a:b].strip() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    names = tag(words, inside[passage.words[:, 0]].tolist())
    return np.asarray([TAGS.index(name) for name in names], np.uint8)
