"""Stages of text: world, tokenizer, and passages of a corpus with columns and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from maskpolicy.core import hub
from maskpolicy.core.errors import DataError
from maskpolicy.data.corpus import annotation, documents, shards, sums
from maskpolicy.data.corpus.documents import HubSource, Source
from maskpolicy.data.corpus.mixing import mix
from maskpolicy.data.corpus.passages import (
    PASSAGES_FILE,
    Chosen,
    Passages,
    Row,
    open_arrays,
    packed,
    passage_rows,
    rows_of,
    write_passages,
)
from maskpolicy.data.corpus.segmentation import ENGLISH, SET_LANGUAGE, joins_words
from maskpolicy.experiment.definition import CorpusBlock
from maskpolicy.experiment.world_settings import Settings
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.models.scratch import train_tokenizer
from maskpolicy.models.training.batching import Order
from maskpolicy.models.training.specials import added_by_user, added_ends
from maskpolicy.pipeline.graph.nodes import Folders, StageRun, stage
from maskpolicy.pipeline.stages.params import (
    CorpusParams,
    CorpusShardParams,
    CountParams,
    ModelTokenizer,
    NewTokenizer,
    ReaderParams,
    ShardParams,
)
from maskpolicy.plugins.hooks import STATISTICS
from maskpolicy.plugins.statistics import Statistics

SHARD = "shard-"  # inputs of corpus, annotate and count: shard-00000, shard-00001, ..
SIZE_FACT = "size"  # passages, words and tokens of a corpus; those of earlier versions lack some
MIXED = "mix-"  # inputs of corpus: mix-general, ..
SHARD_KINDS = ("corpus-shard", "annotate-shard", "count-shard")
_SAMPLE = 100_000  # about the most passages whose unknown tokens are counted
_FIRST = 100  # passages that are looked at for words without blanks between them
_UNKNOWN = 0.05  # a larger share of them gets a warning
_TOKENIZER_TEXTS = 200_000  # the most documents of each corpus that train a tokenizer


@stage("world", version=5)
def world(params: Settings, inputs: Folders, out: Path, run: StageRun) -> None:
    """Generate and write the embedded world."""
    from maskpolicy.data.world import write

    write(params, out)


@stage("tokenizer")
def tokenizer(
    params: NewTokenizer | ModelTokenizer, inputs: Folders, out: Path, run: StageRun
) -> None:
    """Train a tokenizer on the text of the corpora, or load a model's."""
    if isinstance(params, ModelTokenizer):
        name = run.local.folder or params.name
        made = load_tokenizer(name, params.revision, as_saved=True)
        if added := added_by_user(made):
            run.warn(
                f"its special tokens {', '.join(added)} are ordinary text in texts, so their "
                "embeddings are not trained: add them with add_tokens if texts have them"
            )
        inputs_of = ((1, "a text"), (2, "two texts"))
        if bare := [what for count, what in inputs_of if not any(added_ends(made, count))]:
            run.warn(
                f"it adds no special tokens to {' or to '.join(bare)}, but training does: set its "
                "post_processor, or an exported model reads other inputs than in training"
            )
        if params.name:
            hub.note("model", params.name, run.local.revision, params.revision)
    else:
        texts = _Texts(params.corpora, inputs, run.local.corpus)
        made = train_tokenizer(texts, params.vocabulary, params.algorithm, params.style)
    made.save_pretrained(out)


@dataclass(frozen=True)
class _Texts:
    """The texts of the documents that train a tokenizer, which may be read more than once."""

    corpora: Sequence[Source]
    inputs: Folders
    located: CorpusBlock | None

    def __iter__(self) -> Iterator[str]:
        for corpus in self.corpora:
            found = documents.read(corpus, self.inputs, self.located)
            yield from (document.text for document in islice(found, _TOKENIZER_TEXTS))


@stage("corpus-shard", version=2)
def corpus_shard(params: CorpusShardParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Split a shard of a corpus into passages and tokenize them."""
    source, corpus = params.shard, documents.located(run.local.corpus)
    malformed = documents.malformed_rows(corpus)
    found = documents.read_shard(source, corpus, malformed)
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    found = packed(found) if source.pack else found
    size = source.words, source.tokens
    rows = passage_rows(found, tokenizer, *size, run.progress, is_shard=True)
    write_passages(out / PASSAGES_FILE, rows)
    shards.save_malformed(malformed, source, corpus, out)


@stage("corpus", version=2)
def passages(params: CorpusParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Split a corpus into passages and tokenize them, merge its shards, or mix texts into it."""
    _passages(params, inputs, out, run)
    made = Passages.open(out)
    tokens = int(made.lengths.sum())
    run.facts[SIZE_FACT] = {"passages": len(made), "words": made.count_words(), "tokens": tokens}


def _passages(params: CorpusParams, inputs: Folders, out: Path, run: StageRun) -> None:
    source = params.corpus
    if params.mix:
        texts = {each.name: inputs[f"{MIXED}{each.name}"] for each in params.mix}
        mix(inputs["corpus"], texts, params.mix, params.seed, out, run.progress)
        return
    tokenizer = load_tokenizer(str(inputs["tokenizer"]))
    malformed = documents.malformed_rows(source)
    if folders := _shard_folders(inputs):
        corpus = documents.located(run.local.corpus)
        shards.gather_malformed(malformed, corpus, folders)
        malformed.warn("corpus")
        if not shards.merge(folders, out):
            raise documents.no_text(corpus, malformed)
    else:
        found = documents.read(source, inputs, run.local.corpus, malformed)
        found = packed(found) if getattr(source, "pack", False) else found
        rows = passage_rows(found, tokenizer, source.words, source.tokens, run.progress)
        write_passages(out / PASSAGES_FILE, rows)
    run.facts["malformed"] = malformed.count
    made = Passages.open(out)
    if any(joins_words(one.text, getattr(source, "language", ENGLISH)) for one in made[:_FIRST]):
        run.warn(SET_LANGUAGE.format("corpus.language"))
    tokens = made.arrays["tokens"]
    sample = tokens.take(np.arange(0, len(tokens), 1 + len(tokens) // _SAMPLE)).flat
    if (share := np.mean(sample == tokenizer.unk_token_id)) > _UNKNOWN:
        run.warn(
            f"{100 * share:.3g}% of the tokens are unknown to the tokenizer "
            f"({tokenizer.unk_token}): choose a model whose vocabulary fits the text"
        )
    if isinstance(source, HubSource) and source.hub:
        hub.note("dataset", source.hub, run.local.revision, source.revision)


@stage("annotate-shard")
def annotate_shard(params: ShardParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Compute a policy's columns for a part of a corpus."""
    columns = _columns(params, inputs, run, params.number, params.count)
    write_passages(out / PASSAGES_FILE, columns)


@stage("annotate")
def annotate(params: ReaderParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Compute a policy's columns for a corpus, or merge those of its shards.

    A learned policy needs the input "fit", and one that reads statistics the input "statistics".
    """
    if folders := _shard_folders(inputs):
        arrays = shards.merge(folders, out)
    else:
        write_passages(out / PASSAGES_FILE, _columns(params, inputs, run))
        arrays = open_arrays(out)
    if not any(array.lengths.any() for array in arrays.values()):
        count, reads = len(Passages.open(inputs["corpus"])), params.reads
        read = count if reads is None else min(count, reads[0] * reads[1])
        raise DataError(
            f"policy {params.policy}: found nothing in {read} "
            f"passages ({run.name}): it has nothing to mask in this text: name other text or "
            "another policy"
        )


def _columns(
    params: ReaderParams, inputs: Folders, run: StageRun, number: int = 0, count: int = 1
) -> Iterator[Row]:
    """Yield a policy's columns of each passage of a shard, empty for one that is not read."""
    passages = Passages.open(inputs["corpus"])
    part = shards.share(len(passages), number, count)
    once = Passages(passages[part].arrays, remembered=0)
    statistics = Statistics.open(inputs[STATISTICS]) if STATISTICS in inputs else None
    more = (inputs.get("fit"), run.workers, run.progress, statistics)
    if params.reads is None:
        batches = annotation.batches(params.instance(), once, *more)
        return chain.from_iterable(map(rows_of, batches))
    steps, size, seed = params.reads
    read = Order(passages.lengths, size, seed).items(0, steps) - part.start
    read = read[(read >= 0) & (read < len(once))]
    # one passage at least, because empty rows have the types of its columns
    annotated = Chosen(once, read if len(read) else np.arange(min(1, len(once))))
    batches = annotation.batches(params.instance(), annotated, *more)
    return Chosen(once, read).spread(chain.from_iterable(map(rows_of, batches)))


@stage("count-shard")
def count_shard(params: ShardParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Sum the counts of a policy in a part of a corpus."""
    passages = Passages.open(inputs["corpus"])
    part = passages[shards.share(len(passages), params.number, params.count)]
    _count(params, part, inputs, out, run)


@stage("count")
def count(params: CountParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Sum the counts of a policy in a corpus, or merge the sums of its shards.

    inputs: "corpus", and "before", the sums of the previous pass unless this is the first one.
    """
    if folders := _shard_folders(inputs):
        sums.merge([Statistics.open(each) for each in folders], out, params.min_count)
    else:
        _count(params, Passages.open(inputs["corpus"]), inputs, out, run, params.min_count)


def _count(
    params: ReaderParams,
    passages: Passages,
    inputs: Folders,
    out: Path,
    run: StageRun,
    least: int = 1,
) -> None:
    policy = params.instance()
    before = Statistics.open(inputs["before"]) if "before" in inputs else None
    once = Passages(passages.arrays, remembered=0)
    sums.count(policy, once, out, before, least, run.workers, run.progress)


@stage("condense")
def condense(params: ReaderParams, inputs: Folders, out: Path, run: StageRun) -> None:
    """Write the statistics that a policy condenses from its sums.

    inputs: "count", and "contrast", the sums of the contrasting corpus, if the policy uses them.
    """
    policy = params.instance()
    contrast = Statistics.open(inputs["contrast"]) if "contrast" in inputs else None
    sums.condense(policy, Statistics.open(inputs["count"]), contrast, out)


def _shard_folders(inputs: Folders) -> list[Path]:
    """Return the folders of a corpus's shards, in order; [] without shards."""
    return [inputs[name] for name in sorted(inputs) if name.startswith(SHARD)]
