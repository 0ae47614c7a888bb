"""Stages of the inputs of trainings: world, tokenizer, model, corpora and their statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

from maskpolicy.core import hub, keys, schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import weights_in
from maskpolicy.data.corpus import documents
from maskpolicy.data.corpus.documents import ShardSource, Source, WorldSource, WorldText
from maskpolicy.data.corpus.mixing import TextShare
from maskpolicy.data.corpus.shards import CutFile
from maskpolicy.data.corpus.shards import shards as cut_corpus
from maskpolicy.data.datafiles import rows as cuts
from maskpolicy.data.datafiles.rows import Cut, Unit
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import (
    WORLD,
    CorpusBlock,
    Experiment,
    PolicyBlock,
)
from maskpolicy.experiment.model_and_corpus import (
    ALGORITHMS,
    OF_WORLD,
    MixedText,
    mixed_texts,
    shown,
)
from maskpolicy.experiment.policy_blocks import apart
from maskpolicy.models.families import check_exclusion
from maskpolicy.models.loading import model_type, pads_or_truncates
from maskpolicy.models.scratch import Algorithm, preset
from maskpolicy.pipeline.graph.nodes import Local, Stage
from maskpolicy.pipeline.stages.params import (
    CorpusParams,
    CorpusShardParams,
    CountParams,
    ModelTokenizer,
    NewTokenizer,
    PretrainedParams,
    ReaderParams,
    ShardParams,
)
from maskpolicy.pipeline.stages.preparation import MIXED, SHARD
from maskpolicy.plugins import hooks
from maskpolicy.plugins.registry import policy_name

INTERMEDIATE = "intermediate"  # begins the labels of the corpora of intermediate stages
GENERAL_SOURCE = WorldSource(part="general", words=CorpusBlock.words, limit=CorpusBlock.limit)
"""The corpus that pre-trains models built from scratch."""
Digest = Callable[[Path], str]
"""digest(data file) -> its sha256."""
_Shards: TypeAlias = list[tuple[ShardSource, CorpusBlock]]


def scan(path: Path, size: int, unit: Unit) -> Sequence[Cut]:
    """Return the cuts of a data file; `Store.cut_file` remembers them."""
    return cuts.scan(path, size, unit)[1]


@dataclass(frozen=True)
class Text:
    """The passages of a corpus, and the number of shards of a stage over it."""

    corpus: Stage
    shards: int = 0  # 0: such a stage has none
    label: str = ""  # for the label of a stage over it


class Inputs:
    """The stages of the inputs of one experiment's trainings."""

    def __init__(self, experiment: Experiment, digest: Digest, cut: CutFile | None) -> None:
        self.experiment, self.digest, self.cut = experiment, digest, cut
        self.local = Local(plugins=experiment.plugins, tracker=experiment.tracker)
        self.known_parts: dict[str, tuple[Source, _Shards]] = {}
        self.known_texts: dict[str, Text] = {}

    def stage(self, kind: str, label: str, params: object, **inputs: Stage | None) -> Stage:
        """Return a stage of this experiment, without the inputs that are None."""
        given = {name: stage for name, stage in inputs.items() if stage is not None}
        return Stage(kind, label, params, given, self.local, self.experiment.name)

    @cached_property
    def world(self) -> Stage:
        """The embedded world."""
        from maskpolicy.data.world import make

        return self.stage("world", "", make(self.experiment.world))

    @cached_property
    def text_world(self) -> Stage:
        """The world that corpora are read from; settings of tasks do not change it."""
        settings: Any = self.world.params
        same = settings == settings.of_corpora
        return self.world if same else self.stage("world", "text", settings.of_corpora)

    @cached_property
    def tokenizer(self) -> Stage:
        """The model's tokenizer, or one trained on the general corpus.

        With general text of the world, it is trained on that of the intermediate stage as well.
        """
        model, corpus = self.experiment.model, self.experiment.general_text
        if not model.is_scratch or model.tokenizer not in (None, *ALGORITHMS):
            return self.external("tokenizer")
        corpora: tuple[Source, ...] = ()
        if corpus is None:
            corpora = (general_source(self.experiment.general_corpus),)
            corpus = replace(self.experiment.corpus, mix=None)
        corpora = (*corpora, self.parts(corpus)[0])
        shape = preset(model)
        algorithm = cast(Algorithm, model.tokenizer or shape.algorithm)
        params = NewTokenizer(
            vocabulary=model.vocabulary or shape.vocabulary,
            # it is trained on documents, whatever the length of passages
            corpora=tuple(map(_unsized, corpora)),
            algorithm=algorithm,
            style=shape.style,
            rules={"bpe": 1, "unigram": 2, "wordpiece": 3}[algorithm],
        )
        of_world = any(isinstance(source, WorldSource) for source in corpora)
        world = self.text_world if of_world else None
        made = self.stage("tokenizer", Path(model.name).name, params, world=world)
        made = made.adjusted(files=documents.digests(corpora[-1], corpus))
        return self.located(made, corpus=corpus, revision=corpus.revision)

    def located(self, stage: Stage, **local: Any) -> Stage:
        """Return the stage with settings that are not part of its key; see `Local`."""
        return stage.adjusted(local=replace(stage.local, **local))

    @cached_property
    def weights(self) -> Stage:
        """The weights of a model that is not built from scratch."""
        return self.external("pretrained")

    def resumable(self, stage: Stage, spec: Training) -> Stage:
        """Return the training with the interval of its checkpoints and the number of processes."""
        processes = self.experiment.resources.of(stage.kind).members
        every = spec.checkpoint_every
        return self.located(stage, checkpoint_every=every, processes=processes)

    def external(self, kind: str) -> Stage:
        """A stage of kind "pretrained" or "tokenizer", which loads from a folder or the Hub.

        Raises ConfigError for a folder without a model.
        """
        model = self.experiment.model
        folder = Path(model.tokenizer or model.name)
        if not folder.is_dir():
            where = f"{self.experiment.where}model"
            pinned = hub.commit("model", model.name, model.revision, where)
            params = self._external(kind, name=model.name, revision=pinned)
            return self.located(self.stage(kind, model.name, params), revision=model.revision)
        if not model.tokenizer and not (folder / "config.json").is_file():
            raise ConfigError(
                f"{self.experiment.where}model: {folder}: has no config.json: name a folder to "
                "which Transformers saved a model and its tokenizer"
            )
        own = [".json", ".txt"]
        if not (folder / "tokenizer.json").is_file():
            own.append(".model")  # Transformers makes the tokenizer from SentencePiece's file
        files = [path for path in sorted(folder.iterdir()) if path.suffix in own]
        if kind == "pretrained":
            files += weights_in(folder)
        digests = {path.relative_to(folder).as_posix(): self.digest(path) for path in files}
        params = self._external(kind, name="", revision=None, files=digests)
        made = self.stage(kind, folder.name, params)
        made = made.adjusted(files={folder / name: known for name, known in digests.items()})
        return self.located(made, folder=str(folder))

    def check_exclusion(self) -> None:
        """Raise ConfigError if masks cannot be excluded from the input of a folder's model."""
        model = self.experiment.model
        if Path(model.name).is_dir() and (known := model_type(model.name)):
            check_exclusion(known, model.kind)

    def _external(self, kind: str, **of_model: Any) -> ModelTokenizer:
        if kind == "tokenizer":
            model = self.experiment.model
            pads = pads_or_truncates(model.tokenizer or model.name, of_model["revision"])
            return ModelTokenizer(**of_model, pads=pads)
        return PretrainedParams(**of_model, **self.model_fields(), head=self.experiment.model.head)

    def parts(self, corpus: CorpusBlock) -> tuple[Source, _Shards]:
        """The source of a corpus's passages, and its shards; [] if one stage reads it."""
        key = keys.canonical(corpus)
        if key not in self.known_parts:
            # first, because the pass that finds the cuts of a file also hashes it
            shards = [] if self.cut is None else cut_corpus(corpus, self.digest, self.cut)
            source = documents.identify(corpus, self.digest, self._place(corpus))
            self.known_parts[key] = source, shards
        return self.known_parts[key]

    def _place(self, corpus: CorpusBlock) -> str:
        """Return the key of the experiment that states a corpus."""
        made = self.experiment
        places = {"contrast_corpus": made.contrast_corpus, "general.corpus": made.general_corpus}
        rows = (
            (f"policies[{number}].corpus", made.corpus_of(each))
            for number, row in enumerate(made.policies)
            for each in (row, *row.candidates)
        )
        every = (("corpus", made.corpus), *places.items(), *rows)
        named = (name for name, each in every if each == corpus)
        return f"{made.where}{next(named, 'corpus.mix')}"

    def corpus(self, label: str, source: Source, **shards: Stage) -> Stage:
        """The passages of a corpus."""
        world = self.text_world if isinstance(source, WorldSource) else None
        params = CorpusParams(corpus=source)
        inputs = {"tokenizer": self.tokenizer, "world": world, **shards}
        return self.stage("corpus", label, params, **inputs)

    @cached_property
    def general_text(self) -> Text:
        """The corpus of the general stage."""
        corpus = self.experiment.general_text
        return self.world_general if corpus is None else self.plain_text("general", corpus)

    @cached_property
    def world_general(self) -> Text:
        """The general text of the world."""
        return self.general_of_world("general", self.experiment.general_corpus)

    def general_of_world(self, label: str, corpus: CorpusBlock | None) -> Text:
        """The general text of the world, in passages of the sizes of a block."""
        return Text(self.corpus(label, general_source(corpus)))

    def text(self, block: PolicyBlock) -> Text:
        """The corpus of a row's intermediate stage."""
        corpus = self.experiment.corpus_of(block)
        key = keys.canonical(corpus)
        if key not in self.known_texts:
            self.known_texts[key] = self._text(corpus)
        return self.known_texts[key]

    def _text(self, corpus: CorpusBlock) -> Text:
        plain, usual = (replace(each, mix=None) for each in (corpus, self.experiment.corpus))
        label = apart(INTERMEDIATE, shown(vars(plain)), [shown(vars(usual))])
        own = self.plain_text(label, plain)
        texts = mixed_texts(corpus)
        if not texts:
            return own
        params = CorpusParams(
            corpus=self.parts(plain)[0],
            mix=tuple(TextShare(each.name, each.share) for each in texts),
            languages=any((each.corpus or OF_WORLD).language != corpus.language for each in texts),
        )
        inputs = {f"{MIXED}{each.name}": self.mixed_in(each, corpus) for each in texts}
        world = own.corpus.inputs.get("world")  # analyses look for it here
        label = " ".join([label, *(f"mix.{each.name}={each.share:g}" for each in texts)])
        made = self.stage("corpus", label, params, corpus=own.corpus, world=world, **inputs)
        return Text(made, own.shards)

    def mixed_in(self, text: MixedText, corpus: CorpusBlock) -> Stage:
        """The passages of a text that are mixed into a corpus."""
        if text.corpus is not None:
            return self.plain_text(f"mixed in, {text.name}", text.corpus).corpus
        part = cast(WorldText, text.name)
        source = WorldSource(part=part, **corpus.passage_size, limit=CorpusBlock.limit)
        if self.world_general.corpus.params == CorpusParams(corpus=source):
            return self.world_general.corpus
        return self.corpus(f"mixed in, {text.name}", source)

    def plain_text(self, label: str, corpus: CorpusBlock) -> Text:
        """The passages of a corpus without mixed-in texts."""
        source, shards = self.parts(corpus)
        parts = {}
        for number, (part, block) in enumerate(shards):
            params, name = CorpusShardParams(shard=part), f"{label} {number + 1} of {len(shards)}"
            made = self.stage("corpus-shard", name, params, tokenizer=self.tokenizer)
            made = made.adjusted(files=documents.digests(part, block), transient=True)
            parts[f"{SHARD}{number:05d}"] = self.located(made, corpus=block)
        made = self.corpus(label, source, **parts)
        if not parts:  # else they read the files
            made = made.adjusted(files=documents.digests(source, corpus))
        return Text(self.located(made, corpus=corpus, revision=corpus.revision), len(shards))

    @cached_property
    def contrast(self) -> Text:
        """The corpus that policies compare with the corpus of the intermediate stage."""
        corpus = self.experiment.contrast_corpus
        if corpus is None:
            return self.general_text
        is_world = corpus.name == WORLD
        read = self.general_of_world if is_world else self.plain_text
        return read("contrast", corpus)

    @cached_property
    def validation(self) -> Text | None:
        """The text that an intermediate stage is validated on, if there is any."""
        corpus = self.experiment.validation_corpus
        if corpus is None:
            return None
        return replace(self.plain_text("validation", corpus), label="validation")

    def over(
        self, kind: str, label: str, params: ReaderParams, text: Text, **inputs: Stage | None
    ) -> Stage:
        """A stage over the passages of a corpus; it merges its shards if the corpus has some."""
        inputs, count, shards = {"corpus": text.corpus, **inputs}, text.shards, {}
        of_policy = {each.name: getattr(params, each.name) for each in fields(ReaderParams)}
        for number in range(count):
            part = ShardParams(**of_policy, number=number, count=count)
            name = f"{label} {number + 1} of {count}"
            made = self.stage(f"{kind}-shard", name, part, **inputs)
            shards[f"{SHARD}{number:05d}"] = made.adjusted(transient=True)
        return self.stage(kind, label, params, **inputs, **shards)

    def statistics(self, label: str, policy: Any, params: ReaderParams, text: Text) -> Stage:
        """The statistics of a corpus that a policy reads: its sums, condensed if it does so."""
        counted = CountParams(**vars(params))
        pruned = replace(counted, min_count=_min_count(policy))
        found = self.count(label, policy, pruned, text)
        if hooks.CONDENSE.of(policy) is None:
            return found
        other = None
        if hooks.CONTRAST in hooks.CONDENSE.extra(policy):
            other = self.count(f"{label}, contrast", policy, counted, self.contrast)
            other = other.adjusted(transient=True)
        found = found.adjusted(transient=True)
        return self.stage("condense", label, params, count=found, contrast=other)

    def count(self, label: str, policy: Any, params: CountParams, text: Text) -> Stage:
        """The sums of the things that a policy counts in a corpus, after its last pass."""
        found = self.over("count", label, params, text)
        for number in range(2, hooks.PASSES.of(policy) + 1):
            before, name = found.adjusted(transient=True), f"{label}, pass {number}"
            found = self.over("count", name, params, text, before=before)
        return found

    def model_fields(self) -> dict[str, Any]:
        """The fields of `ModelParams`."""
        model = self.experiment.model
        return {"kind": model.kind, "decoder_layers": model.decoder_layers}


def general_source(corpus: CorpusBlock | None) -> WorldSource:
    """Return the world's general text, with the sizes of a block that names the world."""
    if corpus is None or corpus.name != WORLD:
        return GENERAL_SOURCE
    return WorldSource(part="general", **corpus.passage_size, limit=corpus.limit)


def _unsized(source: Source) -> Source:
    """Return a corpus without the settings of the size of passages."""
    plain = replace(source, words=None, tokens=None)
    return plain if isinstance(plain, WorldSource) else replace(plain, pack=False)


def _min_count(policy: Any) -> int:
    """Return the smallest sum that a policy keeps; raises ConfigError for an invalid one."""
    where = f"{policy_name(policy)}: {hooks.MIN_COUNT.name}"
    least: int = schema.check(hooks.MIN_COUNT.of(policy), schema.Count, where)
    return least
