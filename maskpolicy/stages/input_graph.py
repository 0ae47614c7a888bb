"""The inputs of trainings as stages: world, tokenizer, model, corpora, and data of tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from maskpolicy import hub
from maskpolicy.config.budgets import Training
from maskpolicy.config.experiment import HUB, WORLD, CorpusBlock, Experiment, TaskBlock
from maskpolicy.corpus import documents
from maskpolicy.corpus.documents import ShardSource, Source, WorldSource
from maskpolicy.corpus.shards import CutFile
from maskpolicy.corpus.shards import shards as cut_corpus
from maskpolicy.datafiles import cuts
from maskpolicy.datafiles.cuts import Cut
from maskpolicy.datafiles.rows import Unit
from maskpolicy.errors import ConfigError
from maskpolicy.formats import examples as task_examples
from maskpolicy.formats import sources
from maskpolicy.graph.nodes import Stage
from maskpolicy.graph.stage_run import Local
from maskpolicy.learned import contexts as task_contexts
from maskpolicy.models.families import check_exclusion
from maskpolicy.models.loading import model_type
from maskpolicy.models.model_kinds import MODEL_KINDS
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import code_digests, find_plugin
from maskpolicy.stages.params import (
    AnnotateParams,
    AnnotateShardParams,
    CondenseParams,
    CorpusParams,
    CorpusShardParams,
    CountParams,
    CountShardParams,
    ModelTokenizer,
    NewTokenizer,
    PretrainedParams,
    TaskParams,
)
from maskpolicy.stages.preparation import SHARD

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
    """The passages of a corpus, and how many shards a stage over it has."""

    corpus: Stage
    shards: int = 0  # 0: such a stage is one


class Inputs:
    """The inputs of one experiment's trainings, each as a stage that is not yet computed."""

    def __init__(self, experiment: Experiment, digest: Digest, cut: CutFile | None) -> None:
        self.experiment, self.digest, self.cut = experiment, digest, cut
        self.scratch, self.kind = experiment.model.is_scratch, MODEL_KINDS[experiment.model.kind]
        self.local = Local(plugins=experiment.plugins, tracker=experiment.tracker)
        self.known_examples: dict[str, Stage] = {}

    def stage(self, kind: str, label: str, params: object, **inputs: Stage | None) -> Stage:
        """Return a stage of this experiment, without the inputs that are None."""
        given = {name: stage for name, stage in inputs.items() if stage is not None}
        return Stage(kind, label, params, given, self.local, self.experiment.name)

    @cached_property
    def world(self) -> Stage:
        """The embedded world."""
        from maskpolicy.world import make

        return self.stage("world", "", make(self.experiment.world))

    @cached_property
    def text_world(self) -> Stage:
        """The world that corpora are read from: one for all settings that differ in tasks only."""
        from maskpolicy.world import make

        settings = make(self.experiment.world)
        same = settings == settings.text
        return self.world if same else self.stage("world", "text", settings.text)

    @cached_property
    def tokenizer(self) -> Stage:
        """The model's tokenizer, or one trained on the general and intermediate corpora."""
        model = self.experiment.model
        if not self.scratch:
            return self.external("tokenizer")
        corpus = self.experiment.corpus
        corpora = (GENERAL_SOURCE, self.source)
        params = NewTokenizer(
            vocabulary=self.kind.presets[model.name].vocabulary,
            # it is trained on documents, so the length of passages does not matter
            corpora=tuple(replace(source, words=None) for source in corpora),
        )
        made = self.stage("tokenizer", model.name, params, world=self.text_world)
        made = made.adjusted(files=documents.digests(self.source, corpus))
        return self.located(made, corpus=corpus, revision=corpus.revision)

    def located(self, stage: Stage, **local: Any) -> Stage:
        """Return the stage with settings that are not part of its key; see `Local`."""
        return stage.adjusted(local=replace(stage.local, **local))

    @cached_property
    def weights(self) -> Stage:
        """The weights of a model that is not built from scratch."""
        return self.external("pretrained")

    def resumable(self, stage: Stage, spec: Training) -> Stage:
        """Return the training with the interval of its checkpoints, and its processes."""
        processes = self.experiment.resources.of(stage.kind).members
        every = spec.checkpoint_every
        return self.located(stage, checkpoint_every=every, processes=processes)

    def external(self, kind: str) -> Stage:
        """A stage that loads a model's weights or tokenizer from a folder or the Hub.

        `kind` is "pretrained" or "tokenizer". Raises ConfigError for a folder without a model.
        """
        model = self.experiment.model
        folder = Path(model.name)
        if not folder.is_dir():
            pinned = hub.commit("model", model.name, model.revision)
            params = self._external(kind, name=model.name, revision=pinned)
            return self.located(self.stage(kind, model.name, params), revision=model.revision)
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"model {folder}: has no config.json: name a folder to which Transformers saved a "
                "model and its tokenizer"
            )
        own = [".json", ".txt"]
        if not (folder / "tokenizer.json").is_file():
            own.append(".model")  # of SentencePiece, from which Transformers makes the tokenizer
        files = [path for path in sorted(folder.iterdir()) if path.suffix in own]
        if kind == "pretrained":
            files += sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
        digests = {path.name: self.digest(path) for path in files}
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
            return ModelTokenizer(**of_model)
        return PretrainedParams(**of_model, **self.of_kind(), head=self.experiment.model.head)

    @cached_property
    def source(self) -> Source:
        """What the passages of the intermediate stage depend on."""
        _ = self.shards  # first, as the pass that finds the cuts of a file also hashes it
        return documents.identify(self.experiment.corpus, self.digest)

    @cached_property
    def shards(self) -> _Shards:
        """The shards of the corpus of the intermediate stage; none if it is one stage."""
        if self.cut is None:
            return []
        return cut_corpus(self.experiment.corpus, self.digest, self.cut)

    def corpus(self, label: str, source: Source, **shards: Stage) -> Stage:
        """The passages of a corpus."""
        world = self.text_world if isinstance(source, WorldSource) else None
        params = CorpusParams(corpus=source)
        inputs = {"tokenizer": self.tokenizer, "world": world, **shards}
        return self.stage("corpus", label, params, **inputs)

    @cached_property
    def general_corpus(self) -> Stage:
        """The corpus of the general stage."""
        return self.corpus("general", GENERAL_SOURCE)

    @cached_property
    def intermediate_text(self) -> Text:
        """The corpus of the intermediate stage."""
        corpus = self.corpus_of("intermediate", self.experiment.corpus, self.source, self.shards)
        return Text(corpus, len(self.shards))

    @cached_property
    def contrast(self) -> Text:
        """The corpus that policies compare that one with."""
        corpus = self.experiment.contrast_corpus
        if corpus is None:
            return Text(self.general_corpus)
        shards = [] if self.cut is None else cut_corpus(corpus, self.digest, self.cut)
        source = documents.identify(corpus, self.digest)
        return Text(self.corpus_of("contrast", corpus, source, shards), len(shards))

    def corpus_of(self, label: str, corpus: CorpusBlock, source: Source, shards: _Shards) -> Stage:
        """The passages of a corpus that a block of the experiment describes."""
        parts = {}
        for number, (part, block) in enumerate(shards):
            params, name = CorpusShardParams(shard=part), f"{label} {number + 1} of {len(shards)}"
            made = self.stage("corpus-shard", name, params, tokenizer=self.tokenizer)
            made = made.adjusted(files=documents.digests(part, block), transient=True)
            parts[f"{SHARD}{number:05d}"] = self.located(made, corpus=block)
        made = self.corpus(label, source, **parts)
        if not parts:  # else they read the files
            made = made.adjusted(files=documents.digests(source, corpus))
        return self.located(made, corpus=corpus, revision=corpus.revision)

    def annotate(
        self, label: str, params: AnnotateParams, text: Text, **inputs: Stage | None
    ) -> Stage:
        """The columns that a policy computes from a corpus."""
        return self.over("annotate", label, params, AnnotateShardParams, text, **inputs)

    def over(
        self,
        kind: str,
        label: str,
        params: Any,
        shard_params: type,
        text: Text,
        **inputs: Stage | None,
    ) -> Stage:
        """A stage over the passages of a corpus, merged from as many shards as the corpus has."""
        inputs, count, shards = {"corpus": text.corpus, **inputs}, text.shards, {}
        known = {field.name for field in fields(shard_params)}
        shared = {name: value for name, value in vars(params).items() if name in known}
        for number in range(count):
            part = shard_params(**shared, number=number, count=count)
            name = f"{label} {number + 1} of {count}"
            made = self.stage(f"{kind}-shard", name, part, **inputs)
            shards[f"{SHARD}{number:05d}"] = made.adjusted(transient=True)
        return self.stage(kind, label, params, **inputs, **shards)

    def statistics(self, label: str, policy: Any, params: CondenseParams, text: Text) -> Stage:
        """The statistics of a corpus that a policy reads: its sums, or what it makes of them."""
        counted = CountParams(**vars(params))
        pruned = replace(counted, min_count=hooks.MIN_COUNT.of(policy))
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
        """The sums of what a policy counts in a corpus, after its last pass."""
        found = self.over("count", label, params, CountShardParams, text)
        for number in range(2, hooks.PASSES.of(policy) + 1):
            before, name = found.adjusted(transient=True), f"{label}, pass {number}"
            found = self.over("count", name, params, CountShardParams, text, before=before)
        return found

    def of_kind(self) -> dict[str, Any]:
        """The fields of `ModelParams`."""
        model = self.experiment.model
        return {"kind": model.kind, "decoder_layers": model.decoder_layers}

    def contexts(self, block: TaskBlock, text: Text) -> Stage:
        """The contexts of a task's train and dev for learned policies, looked up in `text`.

        Its key holds nothing of test, so test answers change neither a fitted policy nor its key.
        """
        task = sources.task(block)
        if task.facts.kind == "label":
            return self.of_task("contexts", block, task_contexts.SPLITS, False, labels=True)
        corpus = text.corpus if task.facts.retrieval else None
        outside = hooks.READING.of(task.plugin) is None
        return self.of_task("contexts", block, task_contexts.SPLITS, outside, corpus=corpus)

    def examples(self, block: TaskBlock) -> Stage:
        """The examples of a task."""
        if block.label not in self.known_examples:
            made = self.of_task("examples", block, sources.SPLITS, contexts=False)
            self.known_examples[block.label] = made
        return self.known_examples[block.label]

    def check_world(self, block: TaskBlock) -> None:
        """Raise ConfigError, naming all affected tasks, if the world lacks a task's subjects."""
        from maskpolicy.world import make

        kinds = make(self.experiment.world).kinds
        blocks = [one for one in (block, *self.experiment.tasks) if one.data == WORLD]
        asked = {one.label: _asked_about(one) for one in blocks}
        lacking = {label: kind for label, kind in asked.items() if kind and kind not in kinds}
        if lacking:
            tasks = ", ".join(f"{label} asks about {kind}" for label, kind in lacking.items())
            every = ", ".join(dict.fromkeys((*kinds, *lacking.values())))
            raise ConfigError(f"tasks: {tasks}, which this world lacks: set world.kinds: [{every}]")

    def of_task(
        self,
        kind: str,
        block: TaskBlock,
        splits: Sequence[str],
        contexts: bool,
        labels: bool = False,
        **inputs: Stage | None,
    ) -> Stage:
        """A stage that reads `splits` of a task; with `contexts`, also those in separate files."""
        params = TaskParams(
            task=replace(block, label="", metrics=()),
            code=code_digests(find_plugin("task", block.name)),
            version=sources.task(block).facts.version,
            labels=labels,
        )
        if block.data == WORLD:
            self.check_world(block)
            return self.stage(kind, block.label, params, world=self.world, **inputs)
        if block.data == HUB:
            place = sources.hub_config(sources.task(block))
            pinned = hub.commit("dataset", place[0], block.revision)
            params = replace(params, hub=place, task=replace(params.task, revision=pinned))
            made = self.stage(kind, block.label, params, **inputs)
            return self.located(made, revision=block.revision)
        folder = Path(block.data)
        found = {
            path: self.digest(path)
            for split in splits
            for path in task_examples.files(block, split, folder, contexts)
        }
        files = tuple(sorted((path.name, digest) for path, digest in found.items()))
        params = replace(params, files=files, task=replace(params.task, data="folder"))
        made = self.stage(kind, block.label, params, **inputs).adjusted(files=found)
        return self.located(made, folder=block.data)


def _asked_about(block: TaskBlock) -> str:
    """Return the kind of subjects that a task of the world asks about; "" for any.

    Raises ConfigError for a task that the world has no files of.
    """
    from maskpolicy.world import kinds_by_file

    known = kinds_by_file()
    task = sources.task(block)
    found = [known[name] for path in sources.paths(task) if (name := path.as_posix()) in known]
    if not found:
        raise ConfigError(
            f"tasks: {block.label}: the embedded world has no files of task {task.name!r}: set "
            "data to their folder, or to hub"
        )
    return found[0]
