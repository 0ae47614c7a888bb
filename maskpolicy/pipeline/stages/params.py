"""The parameters of each stage; their fields are the keys of the JSON that a stage's key digests.

A new field must be `omitted` at a default that keeps the result unchanged; otherwise raise the
stage's version. Do not rename fields: the keys in existing stores depend on their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from maskpolicy.core.schema import omitted
from maskpolicy.core.types import Denoising, Json
from maskpolicy.data.corpus.documents import ShardSource, Source
from maskpolicy.data.corpus.mixing import TextShare
from maskpolicy.data.corpus.segmentation import ENGLISH
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import HeadChoice, TaskBlock
from maskpolicy.experiment.task_kinds import AnswerParams, HeadParams
from maskpolicy.models.model_kinds import FreshParams, ModelParams
from maskpolicy.models.scratch import Algorithm, Style
from maskpolicy.plugins import discovery

Split = Literal["train", "dev", "test"]
# the kind of stage that reads a split: fine-tuning depends on none of the files of test
EXAMPLES = {"train": "train-examples", "dev": "train-examples", "test": "test-examples"}
Digests = tuple[tuple[str, str], ...]  # (name, sha256) of each file


@dataclass(frozen=True, kw_only=True)
class NewTokenizer:
    """A tokenizer that is trained on the text of corpora."""

    vocabulary: int
    corpora: tuple[Source, ...]
    algorithm: Algorithm = omitted("bpe")
    style: Style = omitted("bart")


@dataclass(frozen=True, kw_only=True)
class ModelTokenizer:
    """The tokenizer of a model."""

    name: str  # on the Hub; "" for a folder with `files`
    revision: str | None  # a commit
    files: Mapping[str, str] | None = omitted(None)  # name -> sha256
    pads: bool = omitted(False)  # it is saved with padding or truncation, which are not used


@dataclass(frozen=True, kw_only=True)
class PretrainedParams(ModelTokenizer, ModelParams):
    """The weights of a model that was pre-trained elsewhere."""

    head: HeadChoice = omitted("auto")


@dataclass(frozen=True, kw_only=True)
class CorpusParams:
    """The passages of a corpus; with `mix`, those of the input "corpus" and of other texts."""

    corpus: Source
    mix: tuple[TextShare, ...] = omitted(())
    seed: int = omitted(0)  # of the passages that are drawn from those texts


@dataclass(frozen=True, kw_only=True)
class CorpusShardParams:
    """The passages of a shard of a corpus of files."""

    shard: ShardSource


@dataclass(frozen=True, kw_only=True)
class TaskParams:
    """The files of a task to read: its examples, or the contexts for learned policies."""

    task: TaskBlock  # without its label and the path of its data
    code: Mapping[str, str]  # of a user's task: file -> sha256
    version: int = omitted(1)  # of the task; 1 is left out of the key
    hub: tuple[str, str] | None = omitted(None)  # dataset and configuration
    labels: bool = omitted(False)  # the contexts are the examples of a label task
    files: Digests | None = omitted(None)  # of a folder, sorted by name


@dataclass(frozen=True, kw_only=True)
class AuditParams(HeadParams):
    """The limits on a task's texts; with positions None, those of the input "model"."""

    max_source: int
    max_target: int
    positions: int | None


@dataclass(frozen=True, kw_only=True)
class MajorityParams:
    """A task to guess the answers of without a model."""

    kind: str
    metric: str
    metric_version: int | str  # a digest of the code of a plugin's metric
    keep: Literal["start", "end"]
    unanswerable: bool


@dataclass(frozen=True, kw_only=True)
class PolicyParams:
    """A policy with its fields; `code` of a user's policy: file -> sha256."""

    policy: str
    fields: Mapping[str, Json]
    code: Mapping[str, str] | None
    # of a policy that draws members: the code of each that a user wrote, by name
    member_code: Mapping[str, Mapping[str, str]] | None = omitted(None)
    # of the policy, and of those that it draws, by name: those above 1
    versions: Mapping[str, int] | None = omitted(None)

    def load(self, files: Sequence[str]) -> Any:
        """Return the policy's instance, after importing the plugin files of its experiment."""
        discovery.load_files(files)
        return discovery.instance("policy", self.policy, self.fields)


@dataclass(frozen=True, kw_only=True)
class ReaderParams(PolicyParams):
    """A policy that reads a corpus: its columns of it, or its sums and what it makes of them."""

    depends: Json  # what these depend on besides the fields


@dataclass(frozen=True, kw_only=True)
class ShardParams(ReaderParams):
    """The same of shard `number` of `count` of a corpus; no sum is too small."""

    number: int
    count: int


@dataclass(frozen=True, kw_only=True)
class CountParams(ReaderParams):
    """The sums of what a policy counts in a corpus."""

    min_count: int = omitted(1)  # the smallest sum that is kept


@dataclass(frozen=True, kw_only=True)
class FitParams(PolicyParams):
    """The training of a learned policy."""

    spec: Training
    how: Denoising | None = omitted(None)  # the objective, for a policy that is fitted to it
    depends: Json = omitted(None)  # what a policy that learns from labels depends on besides
    language: str = omitted(ENGLISH)  # of the corpus


@dataclass(frozen=True, kw_only=True)
class GeneralParams(PolicyParams, FreshParams):
    """A model built from scratch, pre-trained with a policy."""

    code: Mapping[str, str] | None = omitted(None)
    how: Denoising
    spec: Training
    keeps_head: bool = omitted(False)  # an encoder is saved with its head
    whole_targets: bool = omitted(False)  # max_target is lower than max_source, but cuts no target


@dataclass(frozen=True, kw_only=True)
class IntermediateParams(PolicyParams, ModelParams):
    """Pre-training on masked passages."""

    how: Denoising
    spec: Training
    until: int = omitted(0)  # steps of `spec` after which it ends; 0: all
    first: int = omitted(0)  # steps of `spec` that the parts before have done
    keeps_head: bool = omitted(False)  # an encoder is saved with its head, if it has no decoder
    whole_targets: bool = omitted(False)  # max_target is lower than max_source, but cuts no target


@dataclass(frozen=True, kw_only=True)
class FeedbackParams(ReaderParams, ModelParams):
    """A policy's columns of the passages of some steps, computed with the model in training."""

    how: Denoising
    spec: Training
    first: int  # steps done
    until: int  # the steps from `first` up to here read the columns


@dataclass(frozen=True, kw_only=True)
class TunedParams(AnswerParams):
    """What fine-tuning and evaluation share."""

    spec: Training
    metric: str


@dataclass(frozen=True, kw_only=True)
class FinetuneParams(TunedParams):
    """Fine-tuning on a task; with spec.eval_every, the metric chooses the weights."""

    metric_version: int | str = omitted(1)


@dataclass(frozen=True, kw_only=True)
class EvaluateParams(TunedParams):
    """The answers of a fine-tuned model, and their score."""

    metric_version: int | str  # a digest of the code of a plugin's metric
    besides: tuple[tuple[str, int | str], ...] = omitted(())  # further metrics and their versions
    split: Split = omitted("test")


@dataclass(frozen=True, kw_only=True)
class ChooseParams:
    """How many scores on dev to choose by: of each candidate, on each task, with each seed."""

    candidates: int
    tasks: int
    seeds: int


@dataclass(frozen=True, kw_only=True)
class TakeParams:
    """The cell of the candidate that was chosen; the choice is an input."""
