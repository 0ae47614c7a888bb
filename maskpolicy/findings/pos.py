"""Parts of speech of a sample of a corpus's words: by a spaCy pipeline, or the world's gold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskpolicy import ragged
from maskpolicy.config.experiment import WORLD
from maskpolicy.corpus import pipelines
from maskpolicy.corpus.passages import Passages
from maskpolicy.errors import ConfigError
from maskpolicy.findings.cache import derive
from maskpolicy.findings.masked_sample import Sample, Sampling
from maskpolicy.graph.nodes import Run as StageRun
from maskpolicy.graph.nodes import stage
from maskpolicy.ragged import Ragged, RaggedWriter
from maskpolicy.store.artifacts import Store
from maskpolicy.types import Json, Passage
from maskpolicy.world.tags import tag

FILE = "tags.safetensors"
GOLD = "gold_entities"
TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)  # Universal Dependencies


@stage("tags")
def tags(params: Json, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Tag the words of a sample. params: {"pipeline": its identity or None, "sampling"}."""
    passages = Passages.open(inputs["corpus"])
    places = Sampling(**params["sampling"]).places(len(passages))
    sampled = [passages[place] for place in places.tolist()]
    if params["pipeline"] is None:
        rows = map(_gold, sampled)
    else:
        texts = (passage.text for passage in sampled)
        rows = map(_aligned, sampled, pipelines.parts_of_speech(texts, run.local["pipeline"]))
    with RaggedWriter(out / FILE) as file:
        for row in rows:
            file.append({"tags": row})


def tagged(sample: Sample, sampling: Sampling, pipeline: str | None, store: Store) -> Ragged:
    """Return the place in TAGS of each word of a sample's passages.

    Without a pipeline the corpus must be the world's, else ConfigError.
    """
    manifest = store.peek(sample.row.corpus)
    is_world = manifest and manifest["record"]["params"]["corpus"].get("name") == WORLD
    if pipeline is None and not (is_world and GOLD in sample.passages.columns):
        raise ConfigError(
            "a tagger is needed: this corpus has no gold parts of speech; run `python -m spacy "
            "download en_core_web_sm` and give pipeline=en_core_web_sm"
        )
    identity = None if pipeline is None else pipelines.identity(pipeline)
    once = {"passages": sampling.passages, "draws": 1, "seed": sampling.seed}
    params = {"pipeline": identity, "sampling": once, "masking": sample.row.version}
    made = derive(store, "tags", "", params, {"corpus": sample.row.corpus}, {"pipeline": pipeline})
    rows = ragged.load(made.path / FILE)["tags"]
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


def _aligned(passage: Passage, found: pipelines.Labelled) -> NDArray[np.uint8]:
    """Return the tag of each word: of the pipeline's token that holds the word's last character."""
    ends = passage.offsets[passage.words[:, 1] - 1, 1] - 1
    starts = np.asarray([start for start, _, _ in found], np.int64)
    at = np.searchsorted(starts, ends, side="right") - 1
    known = [TAGS.index(label) if label in TAGS else TAGS.index("X") for _, _, label in found]
    unknown = TAGS.index("X")
    tagged = [known[place] if place >= 0 else unknown for place in at.tolist()]
    return np.asarray(tagged, np.uint8)
