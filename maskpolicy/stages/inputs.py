"""The stages that trainings read: the world, tokenizer, corpora, and what tasks hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path

from maskpolicy import hub
from maskpolicy.config.experiment import HUB, SEQ2SEQ, WORLD, CorpusBlock, Experiment, TaskBlock
from maskpolicy.corpus import documents
from maskpolicy.errors import ConfigError
from maskpolicy.formats import examples as task_examples
from maskpolicy.formats import sources
from maskpolicy.graph.nodes import Stage
from maskpolicy.learned import contexts as task_contexts
from maskpolicy.models.kinds import MODEL_KINDS
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import code_digests, find_plugin
from maskpolicy.stages import preparation  # noqa: F401 (it registers the stages)
from maskpolicy.types import Json

GENERAL_CORPUS = CorpusBlock(name="world")  # what a model built from scratch is pre-trained on
Digest = Callable[[Path], str]
"""digest(data file) -> its sha256."""


class Inputs:
    """What the trainings of one experiment read, each as a stage; nothing is computed."""

    def __init__(self, experiment: Experiment, digest: Digest) -> None:
        self.experiment, self.digest = experiment, digest
        self.scratch, self.kind = experiment.model.is_scratch, MODEL_KINDS[experiment.model.kind]
        self.plugins = {"plugins": list(experiment.plugins)}
        self.tracker = {"tracker": experiment.tracker} if experiment.tracker else {}

    def stage(self, kind: str, label: str, params: Json, **inputs: Stage | None) -> Stage:
        """Make a stage of this experiment; inputs that are None are left out."""
        given = {name: stage for name, stage in inputs.items() if stage is not None}
        local = {**self.plugins, **self.tracker}
        return Stage(kind, label, params, given, local, self.experiment.name)

    @cached_property
    def world(self) -> Stage:
        """The embedded world."""
        return self.stage("world", "", self.experiment.world)

    @cached_property
    def tokenizer(self) -> Stage:
        """The tokenizer: of the model, or trained on general and intermediate text."""
        model = self.experiment.model
        if not self.scratch:
            return self.external("tokenizer")
        corpora = [GENERAL_CORPUS, self.experiment.corpus]
        blocks = [documents.identify(corpus, self.digest) for corpus in corpora]
        blocks[0]["part"] = "general"
        for block in blocks:
            del block["words"]  # it trains on documents, not on passages
        params = {"vocabulary": self.kind.presets[model.name].vocabulary, "corpora": blocks}
        made = self.stage("tokenizer", model.name, params, world=self.world)
        return replace(made, local={**made.local, **documents.where(self.experiment.corpus)})

    def external(self, kind: str) -> Stage:
        """A stage that takes a model's weights or tokenizer from a folder or the Hub."""
        model = self.experiment.model
        folder = Path(model.name)
        if not folder.is_dir():
            pinned = hub.commit("model", model.name, model.revision)
            params: Json = {"name": model.name, "revision": pinned}
            made = self.stage(kind, model.name, params | self.of_kind(kind == "pretrained"))
            return replace(made, local={**made.local, "revision": model.revision})
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"model {folder}: holds no model (no config.json): name a folder that Transformers "
                "saved a model and its tokenizer to"
            )
        files = [path for path in sorted(folder.iterdir()) if path.suffix in (".json", ".txt")]
        if kind == "pretrained":
            files += sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
        digests = {path.name: self.digest(path) for path in files}
        params = {"name": "", "revision": None, "files": digests}
        made = self.stage(kind, folder.name, params | self.of_kind(kind == "pretrained"))
        return replace(made, local={**made.local, "folder": str(folder)})

    def corpus(self, label: str, corpus: CorpusBlock) -> Stage:
        """The passages of a corpus."""
        block = documents.identify(corpus, self.digest)
        if label == "general":
            block["part"] = "general"
        world = self.world if corpus.name == WORLD else None
        made = self.stage("corpus", label, {"corpus": block}, tokenizer=self.tokenizer, world=world)
        return replace(made, local={**made.local, **documents.where(corpus)})

    @cached_property
    def general_corpus(self) -> Stage:
        """The corpus of the general stage."""
        return self.corpus("general", GENERAL_CORPUS)

    @cached_property
    def intermediate_corpus(self) -> Stage:
        """The corpus of the intermediate stage."""
        return self.corpus("intermediate", self.experiment.corpus)

    def of_kind(self, wanted: bool = True) -> dict[str, Json]:
        """What a stage's key says of a model that is not text-to-text."""
        model = self.experiment.model
        if model.kind == SEQ2SEQ or not wanted:
            return {}
        return {"kind": model.kind, "decoder_layers": model.decoder_layers}

    def contexts(self, block: TaskBlock) -> Stage:
        """What learned policies read of a task's train and dev: nothing of its test is in the key.

        So test answers can change neither a fitted policy nor its key.
        """
        task = sources.task(block)
        corpus = self.intermediate_corpus if task.facts.retrieval else None
        outside = hooks.READING.of(task.plugin) is None
        return self.of_task("contexts", block, task_contexts.SPLITS, outside, corpus=corpus)

    def examples(self, block: TaskBlock) -> Stage:
        """The examples of a task."""
        return self.of_task("examples", block, sources.SPLITS, contexts=False)

    def check_world(self, block: TaskBlock) -> None:
        """Raise ConfigError where the world lacks a task's subjects; all such tasks are named."""
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
        **inputs: Stage | None,
    ) -> Stage:
        """A stage that reads `splits` of a task, with the contexts that lie outside its rows."""
        code = code_digests(find_plugin("task", block.name))
        task = {**asdict(block), "label": ""}
        params: dict[str, Json] = {"task": task, "code": code}
        version = sources.task(block).facts.version
        if version > 1:  # so that tasks which never changed keep their keys
            params["version"] = version
        if block.data == WORLD:
            self.check_world(block)
            return self.stage(kind, block.label, params, world=self.world, **inputs)
        local: dict[str, Json] = dict(self.plugins)
        if block.data == HUB:
            params["hub"] = place = list(sources.hub_config(sources.task(block)))
            params["task"] = {**task, "revision": hub.commit("dataset", place[0], block.revision)}
            local["revision"] = block.revision
        else:
            folder = Path(block.data)
            found = {
                path: self.digest(path)
                for split in splits
                for path in task_examples.files(block, split, folder, contexts)
            }
            params["files"] = sorted([path.name, digest] for path, digest in found.items())
            params["task"] = {**task, "data": "folder"}
            local["folder"] = block.data
        return replace(self.stage(kind, block.label, params, **inputs), local=local)


def _asked_about(block: TaskBlock) -> str:
    """Return the kind of subjects that a task over the world asks about, "" for any.

    Raises ConfigError for a task whose files no world holds.
    """
    from maskpolicy.world import kinds_by_file

    known = kinds_by_file()
    task = sources.task(block)
    found = [known[name] for path in sources.paths(task) if (name := path.as_posix()) in known]
    if not found:
        raise ConfigError(
            f"tasks: {block.label}: the embedded world has no files of task {task.name!r}: name "
            "their folder, or hub, as its data"
        )
    return found[0]
