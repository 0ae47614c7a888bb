"""The parts of speech that policies mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Findings, Json, Run, Store, analysis
from maskpolicy.analyses import Sample, Sampling, over_runs, samples
from maskpolicy.analyses.cache import derive
from maskpolicy.analyses.masked_sample import by_row
from maskpolicy.analyses.plots import GREY, Bars, Series
from maskpolicy.core import ragged
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.ragged import Ragged, RaggedWriter
from maskpolicy.core.types import Passage
from maskpolicy.data.corpus import TAGS
from maskpolicy.data.corpus import spacy_pipelines as pipelines
from maskpolicy.data.corpus.documents import WorldSource
from maskpolicy.data.corpus.passages import Passages
from maskpolicy.data.world.subject_kinds import tag
from maskpolicy.pipeline.graph.nodes import Folders, Local, StageRun, params_of, stage
from maskpolicy.pipeline.stages.params import CorpusParams

COLUMNS = ("policy", "tag", "share", "corpus", "words")
OVER_RUNS = ("policy", "tag", "share", "low", "high", "corpus", "words")
_SHOWN = 0.005  # tags with a smaller share in every row are not plotted


@analysis("pos", heading="Parts of speech of the masked words", of_masks=True, place=40)
@dataclass(frozen=True)
class PartsOfSpeech(Sampling):
    """Shares of parts of speech among masked words, and among all words of the corpus.

    A word counts if any of its tokens is masked. Tags (Universal Dependencies) come from
    `pipeline`, a spaCy pipeline with a tagger; the embedded world has gold tags. With `every`, rows
    with several runs also have the mean of these with Student's 95% interval, `low` to `high`.
    """

    pipeline: str | None = None  # a name, e.g. en_core_web_sm, or a folder
    every: bool = False  # every intermediate run of a row, not only its first

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Count the tags of masked words in each row's sample."""
        found, notes, missing = samples(runs, self.sampling, store, every=self.every)
        rows: list[Json] = []
        shares: dict[str, list[float]] = {}
        corpora: dict[str, list[float]] = {}
        faults: list[ConfigError] = []  # e.g. of a row with a corpus of its own
        for each in found:
            try:
                tags = tagged(each, self.sampling, self.pipeline, store).flat
            except ConfigError as error:
                notes.append(f"{each.row.label}: {error}")
                faults.append(error)
                continue
            whole = _share(np.bincount(tags, minlength=len(TAGS)))
            whole = corpora.setdefault(each.row.corpus, whole)
            counts = np.bincount(tags[_masked_words(each)], minlength=len(TAGS))
            own = shares[each.row.label] = _share(counts)
            rows += [
                {"policy": each.row.label, "tag": name, "share": share, "corpus": every, "words": n}
                for name, share, every, n in zip(TAGS, own, whole, counts.tolist(), strict=True)
                if n or every
            ]
        if faults and not rows:
            raise faults[0]
        found = [each for each in found if each.row.label in shares]
        rows += (means := _means(found, shares))
        partial = missing or bool(faults) or self.pipeline is not None  # a pipeline may change
        columns = OVER_RUNS if means else COLUMNS
        panel = _panel(found, shares, corpora)
        return Findings(columns, tuple(rows), tuple(notes), (panel,), partial=partial)


def _means(found: Sequence[Sample], shares: Mapping[str, Sequence[float]]) -> list[Json]:
    """Return the mean share of each tag over the intermediate runs of each row with several."""
    rows: list[Json] = []
    for name, own in by_row(found).items():
        for i, name_of_tag in enumerate(TAGS):
            values = [shares[one.row.label][i] for one in own]
            if len(own) > 1 and any(values):
                rows.append({"policy": name, "tag": name_of_tag, **over_runs.mean("share", values)})
    return rows


def _panel(
    found: Sequence[Sample],
    shares: Mapping[str, Sequence[float]],
    corpora: Mapping[str, Sequence[float]],
) -> Bars:
    """Return bars for each corpus and row; a row with several runs has their means."""
    every = [*shares.values(), *corpora.values()]
    kept = [i for i in range(len(TAGS)) if any(one[i] >= _SHOWN for one in every)]
    series: dict[str, Series] = {}
    for name, own in by_row(found).items():
        row, corpus = own[0].row, own[0].row.corpus
        title = "(corpus)" if len(corpora) == 1 else f"(corpus {corpus[:6]})"
        values = [100 * corpora[corpus][i] for i in kept]
        series.setdefault(corpus, Series(title, values, color=GREY))
        percents = [[100 * shares[one.row.label][i] for one in own] for i in kept]
        bars = [over_runs.mean("share", each) for each in percents]
        series[name] = replace(over_runs.series(name, bars, "share"), color=row.color)
    return Bars("", "masked words (%)", [TAGS[i] for i in kept], list(series.values()))


def _masked_words(sample: Sample) -> NDArray[np.bool_]:
    """Return for each word whether any of its tokens is masked."""
    words = sample.passages.arrays["words"].take(sample.places)
    begins, lengths = (
        np.repeat(each, words.lengths)[:, None]
        for each in (sample.tokens.bounds[:-1], sample.tokens.lengths)
    )
    before = np.concatenate([[0], np.cumsum(sample.is_masked)])
    first, end = (np.minimum(words.flat, lengths) + begins).T  # words that are cut off are empty
    return before[end] > before[first]


def _share(counts: NDArray[np.int64]) -> list[float]:
    return (counts / max(1, counts.sum())).tolist()


FILE = "tags.safetensors"
GOLD = "gold_entities"


@dataclass(frozen=True, kw_only=True)
class TagsParams:
    """The parts of speech of a sample's words."""

    pipeline: Json  # the identity of a spaCy pipeline; None: the world's gold
    sampling: Sampling
    masking: int  # version of the stage "intermediate"


@stage("tags", version=3)
def tags(params: TagsParams, inputs: Folders, out: Path, run: StageRun) -> None:
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
    names = tag(passage.texts(passage.words), inside[passage.words[:, 0]].tolist())
    return np.asarray([TAGS.index(name) for name in names], np.uint8)
