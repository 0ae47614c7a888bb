"""The experiment file: its parts as dataclasses, loaded from YAML with overrides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from maskpolicy.types import How


@dataclass(frozen=True)
class Training:
    """One training budget: of the general, fit, intermediate or fine-tuning stage."""

    steps: int = 1000  # optimizer steps
    passages: int = 32  # passages (or examples) per optimizer step, the same for every policy
    lr: float = 5e-4  # peak learning rate
    warmup: int = 100  # steps of linear warm-up
    schedule: str = "linear"  # after warm-up: linear (to zero) | cosine | constant
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 1.0  # largest gradient norm; 0 turns clipping off
    precision: str = "auto"  # auto | fp32 | bf16
    attention: str = "auto"  # auto | eager | sdpa
    compile: bool = False  # torch.compile the model
    dropout: float | None = None  # None: the model's own
    micro_tokens: int = 0  # most padded tokens in a micro-batch; 0: chosen by batching.py
    max_source: int = 512  # tokens; longer sources are cut
    max_target: int = 512  # tokens; longer targets are cut
    checkpoint_every: float = 60.0  # seconds between resumable checkpoints
    seed: int = 0
    # dev evaluation (fine-tuning): every this many steps; 0: none
    eval_every: int = 0
    patience: int = 0  # evaluations without improvement before stopping; 0: never


@dataclass(frozen=True)
class Model:
    """The text-to-text model: a preset built from scratch, a local folder or a Hub name."""

    name: str
    revision: str | None = None
    kind: str = "seq2seq"


@dataclass(frozen=True)
class Corpus:
    """The text of the intermediate stage: the world, files, or a Hub dataset."""

    name: str | None = None  # "world"
    files: tuple[str, ...] = ()
    hub: str | None = None
    subset: str | None = None  # the Hub dataset's configuration
    split: str = "train"
    revision: str | None = None
    stream: bool = False
    column: str = "text"
    words: int = 100  # words per passage
    limit: int = 0  # most documents; 0: all
    on_error: str = "raise"  # raise | skip
    options: dict[str, Any] = field(default_factory=dict)  # the world's settings, e.g. people


@dataclass(frozen=True)
class PolicyBlock:
    """One row of the leaderboard: a policy, its fields, and how its spans are written."""

    name: str
    label: str
    fields: dict[str, Any] = field(default_factory=dict)
    how: How = field(default_factory=How)


@dataclass(frozen=True)
class TaskBlock:
    """One column of the leaderboard."""

    name: str
    label: str
    fields: dict[str, Any] = field(default_factory=dict)
    data: str = "world"  # world | hub | a folder
    revision: str | None = None
    on_error: str = "raise"  # raise | skip
    context: bool = False  # give the model the context paragraph: an upper bound


@dataclass(frozen=True)
class Experiment:
    """One experiment: everything that a leaderboard depends on."""

    name: str  # of the file, without its ending
    model: Model
    corpus: Corpus
    policies: tuple[PolicyBlock, ...]
    tasks: tuple[TaskBlock, ...]
    seeds: tuple[int, ...] = (0,)
    intermediate_seeds: int = 1
    baseline: str = "none"
    general: Training = Training(steps=1500, lr=1e-3)
    intermediate: Training = Training(steps=1000, lr=5e-4)
    finetune: Training = Training(steps=300, lr=5e-4)
    fit: Training = Training(steps=500, lr=1e-3)
    plugins: tuple[str, ...] = ()  # absolute paths
    keep: tuple[str, ...] = ()  # stages whose weights stay, e.g. "finetune"
    world: dict[str, Any] = field(default_factory=dict)  # settings of the embedded world
