"""The experiment as frozen dataclasses with all defaults, and its form in stored results.

Paths are absolute and patterns expanded. docs/settings.md is made from the comments at the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from maskpolicy.core import keys
from maskpolicy.core.schema import Count, NotNegative, Steps, omitted
from maskpolicy.core.types import Denoising, Json
from maskpolicy.experiment.budgets import TRAININGS, Resources, Slurm, Training
from maskpolicy.plugins.registry import CORPUS, entry

CONFIG_FILE = ".json"  # ends the name of a model that is built from a configuration
NONE = "none"  # the row without an intermediate stage; it is not a plugin
MAJORITY = "majority"  # the line of a leaderboard with guesses without a model; no label of a row
WORLD, HUB = "world", "hub"  # where tasks come from, besides a folder
SEQ2SEQ, ENCODER = "seq2seq", "encoder"  # kinds of models
RELATIVE = "maskpolicy-roberta-relative"
"""The `model_type` of the encoders of `maskpolicy.models.relative_positions`."""
ModelKind = Literal["seq2seq", "encoder"]
HeadChoice: TypeAlias = Literal["auto", "own", "new"]
PRESETS: dict[str, tuple[str, ...]] = {"seq2seq": ("mini",), "encoder": ("mini", "base")}
"""By kind, the models with fixed sizes that are built from scratch on the text of the world."""
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "seq2seq": ("bart", "t5"),
    "encoder": ("bert", "modernbert", "roberta"),
}
"""By kind, the models that are built from scratch with the user's sizes and text."""
SCRATCH = {kind: (*names, *ARCHITECTURES[kind]) for kind, names in PRESETS.items()}
"""By kind, the models built from scratch, which have a general stage."""
SIZES = ("layers", "width", "heads", "feed_forward")
WIDTH = 256  # of an architecture without one
OnError = Literal["raise", "skip"]
Tracker: TypeAlias = Literal[
    "aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "tensorboard", "trackio", "wandb"
]


def is_scratch(name: str, kind: str) -> bool:
    """Return whether a model of this name and kind is built from scratch."""
    return name in SCRATCH[kind] or name.endswith(CONFIG_FILE)


@dataclass(frozen=True)
class ModelBlock:
    """The model: built from scratch, a local folder or a Hub name."""

    # a preset (mini; for encoders also base), an architecture to build from scratch (bart, t5;
    # bert, modernbert, roberta) or its config.json, a folder or a Hub name; may also be called
    # `architecture`
    name: str
    revision: str | None = None  # branch, tag or commit of a Hub model; null: main
    # text-to-text (BART, T5, ..) or an encoder (RoBERTa, ..); if omitted, the config.json of a
    # folder or Hub name decides
    kind: ModelKind = "seq2seq"
    # number of layers of an architecture or an encoder's preset, and of a text-to-text model's
    # decoder; null: 4, or the preset's own number
    layers: Count | None = None
    width: Count | None = None  # hidden size of an architecture; null: 256
    heads: Count | None = None  # attention heads of an architecture; null: about width / 64
    feed_forward: Count | None = None  # inner size of an architecture; null: 4 times the width
    vocabulary: Count | None = None  # size of a trained tokenizer's vocabulary; null: 8000
    # for an architecture: bpe, wordpiece or unigram (trained on the general corpus), or a
    # folder with a tokenizer; null: the algorithm of the architecture's published models
    tokenizer: str | None = None
    decoder_layers: Count = 4  # layers of MAE-LM's shallow decoder (encoders)
    # for an encoder's preset: an attention bias for each head and distance, in addition to
    # absolute positions, as in the released MAE-LM
    relative_positions: bool = False
    # for encoders: train the model's own head for masked language modelling, or a new one;
    # auto: its own if it has one, but a new one for RoBERTa, mini and base
    head: HeadChoice = "auto"

    @property
    def is_scratch(self) -> bool:
        """Whether the model is built from scratch, and so has a general stage."""
        return is_scratch(self.name, self.kind)

    @property
    def attention_heads(self) -> int:
        """The heads of an architecture; by default, the most of width 64 that divide its width."""
        width = self.width or WIDTH
        usual = (n for n in range(max(1, width // 64), 0, -1) if width % n == 0)
        return self.heads or next(usual)

    @property
    def is_preset(self) -> bool:
        """Whether the model is a preset, whose general text is that of the world."""
        return self.name in PRESETS[self.kind]


@dataclass(frozen=True)
class CorpusBlock:
    """The text of the intermediate stage: the world, files, or a Hub dataset."""

    name: Literal["world"] | None = None  # the embedded world
    files: tuple[str, ...] = ()  # paths or patterns (notes/*.txt), beside the experiment file
    hub: str | None = None  # a Hub dataset's name; set one of name, files and hub
    subset: str | None = None  # the Hub dataset's configuration
    split: str = "train"  # the Hub dataset's split
    revision: str | None = None  # the Hub dataset's branch, tag or commit; null: main
    stream: bool = False  # read the Hub dataset over the network, without a download
    column: str = "text"  # the key of the text in rows of files and of the Hub
    columns: tuple[str, ...] = ()  # keys of rows that hold [start, end] characters, for policies
    words: Count = 100  # words per passage
    tokens: Count | None = omitted(None)  # most tokens of text per passage, instead of words
    # join the documents of a file: passages continue across them, and all but the last are full
    pack: bool = omitted(False)
    # code of the text's language (de, ja, ..), which decides where words and sentences end
    language: str = omitted("en")
    limit: Steps = 0  # the most documents to read; 0: all
    on_error: OnError = "raise"  # at a malformed row: stop, or skip and count it
    # megabytes of files in a shard; processes compute the shards of a larger corpus in parallel;
    # 0: the corpus is one stage
    shard_mb: NotNegative = 64.0
    # texts to mix in, each with its share of all passages: the world's `general` and `situations`,
    # or a block with a name of your choice, {wiki: {files: [wiki.txt], share: 0.2}}
    mix: dict[str, Any] | None = omitted(None)

    @property
    def passage_size(self) -> dict[str, Any]:
        """The words or tokens of a passage; the other is None."""
        return {"words": None if self.tokens else self.words, "tokens": self.tokens}


@dataclass(frozen=True)
class PolicyBlock:
    """One row of the leaderboard: a policy, its fields and its denoising objective."""

    name: str  # the policy, one of `maskpolicy list policies`; none: no intermediate stage
    label: str  # the row's name; if omitted, the policy with its settings that are not the default
    fields: dict[str, Any] = field(default_factory=dict)  # every field of the plugin, as JSON
    denoising: Denoising = field(default_factory=Denoising)
    # settings of its trainings and its corpus that replace the file's, by block
    trainings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # values to choose from by key, and `on`, the split; {}: none
    tune: Mapping[str, Any] = field(default_factory=dict)
    # the row with each combination of these values; apart from its trainings, the row itself has
    # those of the first
    candidates: tuple[PolicyBlock, ...] = ()
    # the plugin's instance with these fields, which has the hooks; None for `none`
    policy: Any = field(default=None, compare=False, repr=False)
    # the policy draws one of these for each passage; (): it selects spans itself
    members: tuple[PolicyBlock, ...] = field(default=(), compare=False)

    @property
    def has_stage(self) -> bool:
        """Whether the row has an intermediate stage, as all but `none` do."""
        return self.name != NONE


@dataclass(frozen=True)
class Limit:
    """The most examples of each split; 0: all."""

    train: Steps = 0  # the most train examples, in whole groups; 0: all
    dev: Steps = 0  # the same, for dev
    test: Steps = 0  # the same, for test
    group: Steps = omitted(0)  # the most examples of one group, the first ones; 0: all


@dataclass(frozen=True)
class TaskBlock:
    """One column of the leaderboard."""

    name: str  # the task, one of `maskpolicy list tasks`
    label: str  # the column's name; if omitted, the task with the keys that distinguish its columns
    fields: dict[str, Any] = field(default_factory=dict)  # every field of the plugin, as JSON
    data: str = WORLD  # world, hub or a folder; if omitted, the file's `data`
    revision: str | None = None  # branch, tag or commit of a Hub dataset; null: main
    on_error: OnError = "raise"  # at a malformed row: stop, or skip and count it
    context: bool = False  # give the model the context paragraph, as an upper bound
    limit: Limit = omitted(Limit())
    # the metric that ranks, then further metrics to report; empty: the task's own
    metrics: tuple[str, ...] = omitted(())
    # settings of this column that replace the file's `finetune`
    finetune: dict[str, Any] | None = omitted(None)


@dataclass(frozen=True)
class Experiment:
    """One experiment: everything that a leaderboard depends on."""

    name: str  # of the file, without its suffix
    model: ModelBlock
    corpus: CorpusBlock
    policies: tuple[PolicyBlock, ...]
    tasks: tuple[TaskBlock, ...]
    contrast_corpus: CorpusBlock | None  # None: the general stage's, if there is one
    data: str  # the source of tasks whose block names none: world | hub | a folder
    seeds: tuple[int, ...]
    intermediate_seeds: int
    intermediate_runs: tuple[int, ...]  # the numbers of these runs; empty: 0, 1, ..
    general_seeds: int  # number of general models; intermediate run r starts from r mod this
    baseline: str
    general: Training
    intermediate: Training
    finetune: Training
    fit: Training
    general_policy: PolicyBlock | None  # of the general stage; None: original
    general_corpus: CorpusBlock | None  # of the general stage; None: see `general_text`
    plugins: tuple[str, ...]  # absolute paths
    keep_models: tuple[str, ...]  # stages whose weights stay, e.g. "finetune"
    # steps of the intermediate stage after which its model is fine-tuned as well
    checkpoint_steps: tuple[int, ...]
    annotate: Literal["all", "read"]  # the passages that get a policy's columns
    world: dict[str, Any]  # settings of the embedded world
    tracker: str | None  # e.g. tensorboard: writes the losses of every training to logs/
    resources: Resources  # in no key and in no result
    slurm: Slurm  # the same
    where: str = field(default="", compare=False)  # the file and ": ", for messages
    validation_corpus: CorpusBlock | None = None  # of `pretrain` alone

    @property
    def runs(self) -> tuple[int, ...]:
        """The numbers of each intermediate stage's runs; a run's number is added to its seed."""
        return self.intermediate_runs or tuple(range(self.intermediate_seeds))

    @property
    def general_text(self) -> CorpusBlock | None:
        """The corpus of the general stage, and of the tokenizer; None: that of the world."""
        is_own = not self.model.is_preset and self.corpus.name != WORLD
        if self.general_corpus is None and is_own:
            return replace(self.corpus, mix=None)
        is_world = self.general_corpus is not None and self.general_corpus.name == WORLD
        return None if is_world else self.general_corpus

    def budget(self, stage: str, block: PolicyBlock, task: TaskBlock | None = None) -> Training:
        """Return a row's budget of the training `stage`; fine-tuning may also depend on `task`."""
        spec: Training = getattr(self, stage)
        own = task.finetune if task is not None and stage == "finetune" else None
        return replace(spec, **{**(own or {}), **block.trainings.get(stage, {})})

    def corpus_of(self, block: PolicyBlock) -> CorpusBlock:
        """Return the corpus that a row reads."""
        return replace(self.corpus, **block.trainings.get(CORPUS, {}))

    def place_of(self, task: TaskBlock) -> str:
        """Return where the file names a task, for messages; if no column does, `tasks`."""
        labels = [column.label for column in self.tasks]
        index = f"[{labels.index(task.label)}]" if task.label in labels else ""
        return f"{self.where}tasks{index}"

    def run_of(self, seed: int) -> int:
        """Return the number of the intermediate run that a seed of fine-tuning starts from."""
        return self.runs[self.seeds.index(seed) % len(self.runs)]

    def general_of(self, run: int) -> int:
        """Return the number of the general model that an intermediate run starts from.

        It depends only on the run's number, so several machines can share the general models.
        """
        return run % self.general_seeds


def resolved(experiment: Experiment) -> Json:
    """Return every key of the experiment but `resources` and `slurm`, as in an experiment file.

    Written as YAML to a file of the same name, the result loads as the same Experiment.
    """
    left_out = {"name", "validation_corpus", "resources", "slurm", "where"}
    left_out |= {"general_policy", "general_corpus"}  # in the block `general`
    config = {key: value for key, value in vars(experiment).items() if key not in left_out}
    config |= {name: dict(vars(config[name])) for name in TRAININGS}
    for name in (CORPUS, "contrast_corpus"):
        block = getattr(experiment, name)
        config[name] = block and keys.to_json(block)
    if experiment.general_policy is not None:
        config["general"]["policy"] = resolved_member(experiment.general_policy)
    if experiment.general_corpus is not None:
        config["general"]["corpus"] = keys.to_json(experiment.general_corpus)
    config["policies"] = [
        untuned({**resolved_policy(block), **block.trainings}, block.tune)
        | ({"tune": dict(block.tune)} if block.tune else {})
        for block in experiment.policies
    ]
    config["tasks"] = [resolved_task(block) for block in experiment.tasks]
    return keys.plain(config)


def resolved_policy(block: PolicyBlock) -> dict[str, Json]:
    """Return a row's block with all keys of its policy and of Denoising.

    `none` has neither. A policy that draws members has the keys of Denoising in their blocks.
    """
    own = block.has_stage and not block.members
    denoising = asdict(block.denoising) if own else {}
    return {"name": block.name, "label": block.label, **block.fields, **denoising}


def untuned(settings: Mapping[str, Json], tune: Mapping[str, Any]) -> dict[str, Json]:
    """Return settings without those that are tuned; a dot leads into a nested block."""
    kept = dict(settings)
    for key in tune:
        first, _, rest = key.partition(".")
        if rest and isinstance(kept.get(first), Mapping):
            kept[first] = untuned(kept[first], {rest: None})
        else:
            kept.pop(first, None)
    return kept


def resolved_member(block: PolicyBlock) -> dict[str, Json]:
    """Return the block of a policy that a row draws, as keys of stages hold it: without label."""
    stated = {*keys.to_json(block.denoising), *entry("policy", block.name).facts}
    left_out = {"label", *asdict(block.denoising)} - stated
    left_out |= set(block.fields) - set(keys.without_omitted(type(block.policy), block.fields))
    return {key: value for key, value in resolved_policy(block).items() if key not in left_out}


def resolved_task(block: TaskBlock) -> dict[str, Json]:
    """Return a column's block with all keys of its task and of `TaskBlock`."""
    config = keys.to_json(block)
    return {**config.pop("fields"), **config}
