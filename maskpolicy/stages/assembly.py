"""An experiment becomes a graph of stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from maskpolicy import contexts as task_contexts
from maskpolicy import documents, hardware, hashes, hub, learned, metrics, plugins, sources
from maskpolicy import examples as task_examples
from maskpolicy.budgets import Training
from maskpolicy.config import HUB, WORLD, Experiment, PolicyBlock, TaskBlock, instance
from maskpolicy.errors import ConfigError
from maskpolicy.experiment import SEQ2SEQ, Corpus
from maskpolicy.graph import Stage
from maskpolicy.kinds import KINDS
from maskpolicy.stages import answers, models, texts  # noqa: F401 (they register the stages)
from maskpolicy.stages.learning import CONTEXTS
from maskpolicy.types import Json

GENERAL_POLICY = "original"  # what a model built from scratch is pre-trained with
GENERAL_CORPUS = Corpus(name="world")
Digest = Callable[[Path], str]


@dataclass(frozen=True)
class Graph:
    """The stages of an experiment, and which of them makes each cell of its leaderboard."""

    stages: tuple[Stage, ...]  # of kind "evaluate"; all others are behind them
    cells: Mapping[tuple[str, str, int], Stage]  # by policy label, task label and seed
    pretrained: Mapping[tuple[str, int], Stage]  # what is fine-tuned, by policy label and run
    early: Mapping[tuple[str, str, int, int], Stage] = field(default_factory=dict)  # and by step

    @property
    def targets(self) -> tuple[Stage, ...]:
        """What a run leaves in the store: all cells, and fine-tuned models that are to be kept."""
        tuned = [stage.inputs["model"] for stage in self.stages]
        return (*self.stages, *(stage for stage in tuned if not stage.transient))


def build(experiment: Experiment, digest: Digest = hashes.sha256) -> Graph:
    """Return the graph of an experiment; `digest` gives the sha256 of a data file.

    Raises ConfigError or DataError when the graph cannot be made: a missing file, a setting that
    a stage cannot take. Nothing is computed.
    """
    return _Builder(experiment, digest).graph()


def tokenizer(experiment: Experiment, digest: Digest = hashes.sha256) -> Stage:
    """Return the stage that makes an experiment's tokenizer."""
    return _Builder(experiment, digest).tokenizer


class _Builder:
    def __init__(self, experiment: Experiment, digest: Digest) -> None:
        self.experiment, self.digest = experiment, digest
        self.scratch, self.kind = experiment.model.is_scratch, KINDS[experiment.model.kind]
        self.plugins = {"plugins": list(experiment.plugins)}
        self.tracker = {"tracker": experiment.tracker} if experiment.tracker else {}
        self.models: dict[tuple[str, int, int], Stage] = {}

    def graph(self) -> Graph:
        """Make every cell."""
        seeds, runs = self.experiment.seeds, self.experiment.intermediate_seeds
        cells: dict[tuple[str, str, int], Stage] = {}
        pretrained = {
            (block.label, run): self.pretrained(block, run)
            for block in self.experiment.policies
            for run in range(runs)
        }
        for block in self.experiment.policies:
            for task in self.experiment.tasks:
                for index, seed in enumerate(seeds):
                    model = pretrained[block.label, index % runs]
                    label = f"{block.label}, {task.label}, seed {seed}"
                    cells[block.label, task.label, seed] = self.evaluate(task, model, seed, label)
        early = self.early()
        return Graph((*cells.values(), *early.values()), cells, pretrained, early)

    def early(self) -> dict[tuple[str, str, int, int], Stage]:
        """Make the cells of models that are kept before the end of the intermediate stage.

        Later steps come first: on the way to one, the models of earlier steps are made.
        """
        cells = {}
        for block in self.experiment.policies:
            for step in reversed(self.experiment.keep_at if block.has_stage else ()):
                for task in self.experiment.tasks:
                    for index, seed in enumerate(self.experiment.seeds):
                        run = index % self.experiment.intermediate_seeds
                        model = self.pretrained(block, run, until=step)
                        label = f"{block.label} at {step}, {task.label}, seed {seed}"
                        cells[block.label, task.label, seed, step] = self.evaluate(
                            task, model, seed, label
                        )
        return cells

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

    def corpus(self, label: str, corpus: Corpus) -> Stage:
        """The passages of a corpus."""
        block = documents.identify(corpus, self.digest)
        if label == "general":
            block["part"] = "general"
        world = self.world if corpus.name == WORLD else None
        made = self.stage("corpus", label, {"corpus": block}, tokenizer=self.tokenizer, world=world)
        return replace(made, local={**made.local, **documents.where(corpus)})

    @cached_property
    def intermediate_corpus(self) -> Stage:
        """The corpus of the intermediate stage."""
        return self.corpus("intermediate", self.experiment.corpus)

    @cached_property
    def base(self) -> Stage:
        """The model before the intermediate stage."""
        if not self.scratch:
            return self.external("pretrained")
        params = {
            "preset": self.experiment.model.name,
            "policy": GENERAL_POLICY,
            "fields": {},
            "how": asdict(self.kind.general),
            "spec": _spec(self.experiment.general),
            **self.of_kind(),
        }
        if params.get("kind"):
            params["layers"] = self.experiment.model.layers
        corpus = self.corpus("general", GENERAL_CORPUS)
        label = self.experiment.model.name
        made = self.stage("general", label, params, tokenizer=self.tokenizer, corpus=corpus)
        return _resumable(made, self.experiment.general)

    def pretrained(self, block: PolicyBlock, run: int, until: int = 0) -> Stage:
        """The model that a row fine-tunes: after the intermediate stage, if it has one.

        `until` is a number of steps after which it is kept, although the stage goes on.
        """
        key = (block.label, run, until)
        if key not in self.models:
            self.models[key] = self._pretrained(block, run, until)
        return self.models[key]

    def _pretrained(self, block: PolicyBlock, run: int, until: int) -> Stage:
        if not block.has_stage:
            return self.base
        spec = self.experiment.intermediate
        params = {
            **self.policy(block),
            "how": asdict(block.how),
            "spec": _spec(replace(spec, seed=spec.seed + run)),
            **self.of_kind(),
        }
        label = f"{block.label}, run {run}"
        if until:
            params["until"] = until
            label = f"{label}, first {until} of {spec.steps} steps"
        made = self.stage(
            "intermediate",
            label,
            params,
            model=self.base,
            tokenizer=self.tokenizer,
            corpus=self.intermediate_corpus,
            annotate=self.annotate(block, run),
        )
        before = [step for step in self.experiment.keep_at if step < (until or spec.steps)]
        kept = {str(step): self.pretrained(block, run, step) for step in before}
        return replace(_resumable(made, spec), byproducts=kept)

    def of_kind(self, wanted: bool = True) -> dict[str, Json]:
        """What a stage's key says of a model that is not text-to-text."""
        model = self.experiment.model
        if model.kind == SEQ2SEQ or not wanted:
            return {}
        return {"kind": model.kind, "decoder_layers": model.decoder_layers}

    def annotate(self, block: PolicyBlock, run: int) -> Stage | None:
        """The columns that a policy computes of the corpus, if it does."""
        policy = instance("policy", block.name, block.fields)
        if not hasattr(policy, "annotate"):
            return None
        depends = getattr(policy, "depends", dict)
        fit = self.fit(block, run) if learned.is_learned(block) else None
        params = {**self.policy(block), "depends": depends()}
        params["fields"] = learned.fitted_fields(block)
        label = block.label if fit is None else f"{block.label}, run {run}"
        return self.stage("annotate", label, params, corpus=self.intermediate_corpus, fit=fit)

    def fit(self, block: PolicyBlock, run: int, of: str = "") -> Stage:
        """What a learned policy learns; with `of`, only to be that row's start."""
        spec = self.experiment.fit
        params = {
            **self.policy(block),
            "fields": learned.fitted_fields(block),
            "spec": _spec(replace(spec, seed=spec.seed + run)),
        }
        if learned.fits_to_how(block):
            params["how"] = asdict(block.how)
        before = learned.start(block)
        label = f"{of}{block.label}, run {run}"
        inputs: dict[str, Stage | None] = {
            "model": self.base,
            "tokenizer": self.tokenizer,
            "init": self.fit(before, run, f"{of}{block.label}: ") if before else None,
        }
        tasks = learned.tasks(block, self.experiment.tasks, self.experiment.data)
        for index, task in enumerate(tasks):
            inputs[f"{CONTEXTS}{index:02d}"] = self.contexts(task)
        return _resumable(self.stage("fit", label, params, **inputs), spec)

    def contexts(self, block: TaskBlock) -> Stage:
        """What learned policies read of a task's train and dev: nothing of its test is in the key.

        So test answers can change neither a fitted policy nor its key.
        """
        task = sources.task(block)
        corpus = self.intermediate_corpus if task.facts.retrieval else None
        outside = not hasattr(task.plugin, "reading")
        return self.of_task("contexts", block, task_contexts.SPLITS, outside, corpus=corpus)

    def policy(self, block: PolicyBlock) -> dict[str, Any]:
        """What a stage's key says of a policy."""
        code = plugins.code(plugins.find("policy", block.name))
        return {"policy": block.name, "fields": block.fields, "code": code}

    def examples(self, block: TaskBlock) -> Stage:
        """The examples of a task."""
        return self.of_task("examples", block, sources.SPLITS, contexts=False)

    def of_task(
        self,
        kind: str,
        block: TaskBlock,
        splits: Sequence[str],
        contexts: bool,
        **inputs: Stage | None,
    ) -> Stage:
        """A stage that reads `splits` of a task, with the contexts that lie outside its rows."""
        code = plugins.code(plugins.find("task", block.name))
        task = {**asdict(block), "label": ""}
        params: dict[str, Json] = {"task": task, "code": code}
        if block.data == WORLD:
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

    def evaluate(self, task: TaskBlock, model: Stage, seed: int, label: str) -> Stage:
        """Fine-tune a model on a task, and answer its test examples."""
        facts = sources.facts(plugins.find("task", task.name))
        self.check(task, facts.kind)
        inputs = {"tokenizer": self.tokenizer, "examples": self.examples(task)}
        metric = metrics.metric(facts.metric)
        params: dict[str, Json] = {
            "spec": _spec(replace(self.experiment.finetune, seed=seed)),
            "keep": facts.keep,
            "metric": metric.name,
        }
        if facts.kind != "text":
            params |= {"head": facts.kind, "unanswerable": facts.unanswerable}
        choose = getattr(sources.task(task).plugin, "choose", "generate")
        if choose != "generate":
            params["choose"] = choose
        tuned = self.stage("finetune", label, params, model=model, **inputs)
        tuned = replace(tuned, transient="finetune" not in self.experiment.keep)
        tuned = _resumable(tuned, self.experiment.finetune)
        params = {**params, "metric_version": metric.version}
        return self.stage("evaluate", label, params, model=tuned, **inputs)

    def check(self, task: TaskBlock, kind: str) -> None:
        """Raise ConfigError where the model cannot be fine-tuned on a task as it is set up."""
        model = self.experiment.model
        if task.context and kind != "text":
            raise ConfigError(
                f"tasks: {task.label} is a {kind} task, which is given its context anyway: leave "
                "context: true out"
            )
        if kind not in self.kind.tasks:
            able = next(name for name, other in KINDS.items() if kind in other.tasks)
            raise ConfigError(
                f"tasks: {task.label} is a {kind} task, which a model of kind {model.kind} cannot "
                f"do (it does {' and '.join(self.kind.tasks)} tasks): set model.kind: {able}"
            )


def _resumable(stage: Stage, spec: Training) -> Stage:
    """Tell a training how often to keep its state, which changes no result."""
    return replace(stage, local={**stage.local, "checkpoint_every": spec.checkpoint_every})


def _spec(spec: Training) -> dict[str, Json]:
    """Return a budget with its choices made for this machine, without what changes no result."""
    made = asdict(hardware.resolve(spec))
    del made["checkpoint_every"]
    return made
