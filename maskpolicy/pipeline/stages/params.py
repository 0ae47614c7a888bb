"""The parameters of each stage; a stage's key is a digest of their JSON.

A new field must be `omitted` at a default that does not change results; otherwise raise the stage's
version. Do not rename fields, because existing keys depend on their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

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
# the kind of stage that reads a split, so that fine-tuning does not depend on files of test
EXAMPLES = {"train": "train-examples", "dev": "train-examples", "test": "test-examples"}
Reads: TypeAlias = tuple[int, int, int]  # steps, batch size and seed of a training
Digests = tuple[tuple[str, str], ...]  # (name, sha256) of each file


@dataclass(frozen=True, kw_only=True)
class NewTokenizer:
    """A tokenizer that is trained on the text of corpora."""

    vocabulary: int
    corpora: tuple[Source, ...]
    algorithm: Algorithm = omitted("bpe")
    style: Style = omitted("bart")
    # of the training: 2 gives the same vocabulary in every process, 3 knows Chinese characters
    rules: int = omitted(1)


@dataclass(frozen=True, kw_only=True)
class ModelTokenizer:
    """The tokenizer of a model."""

    name: str  # on the Hub; "" for a folder with `files`
    revision: str | None  # a commit
    files: Mapping[str, str] | None = omitted(None)  # name -> sha256
    pads: bool = omitted(False)  # the saved one pads or truncates; ours does not


@dataclass(frozen=True, kw_only=True)
class PretrainedParams(ModelTokenizer, ModelParams):
    """The weights of a model that was pre-trained elsewhere."""

    head: HeadChoice = omitted("auto")


@dataclass(frozen=True, kw_only=True)
class CorpusParams:
    """The passages of a corpus; with `mix`, those of the input "corpus" and of other texts."""

    corpus: Source
    mix: tuple[TextShare, ...] = omitted(())
    seed: int = omitted(0)  # for drawing passages from those texts
    languages: bool = omitted(False)  # whether the texts have several


@dataclass(frozen=True, kw_only=True)
class CorpusShardParams:
    """The passages of a shard of a corpus of files."""

    shard: ShardSource


@dataclass(frozen=True, kw_only=True)
class TaskParams:
    """The files of a task's examples, or of the contexts for learned policies."""

    task: TaskBlock  # without its label and the path of its data
    code: Mapping[str, str]  # of a user's task: file -> sha256
    version: int = omitted(1)  # of the task; 1 is left out of the key
    hub: tuple[str, str] | None = omitted(None)  # dataset and configuration
    labels: bool = omitted(False)  # the contexts are the examples of a label task
    language: str = omitted(ENGLISH)  # of the contexts
    files: Digests | None = omitted(None)  # of a folder, sorted by name


@dataclass(frozen=True, kw_only=True)
class AuditParams(HeadParams):
    """The limits on a task's texts; if `positions` is None, the input "model" has them."""

    max_source: int
    max_target: int
    positions: int | None
    has_ids: bool = omitted(True)  # an id says which question it is, not only which row


@dataclass(frozen=True)
class WindowsParams:
    """The limit on a span task's windows."""

    max_source: int


@dataclass(frozen=True, kw_only=True)
class MajorityParams:
    """A task whose answers are guessed without a model."""

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
    # `code` of the members of a mixture that a user wrote, by name
    member_code: Mapping[str, Mapping[str, str]] | None = omitted(None)
    # versions above 1 of the policy and its members, by name
    versions: Mapping[str, int] | None = omitted(None)
    # `depends` of a policy whose columns and statistics, if any, do not have it in their key, or of
    # one that learns from labels
    depends: Json = omitted(None)

    def instance(self) -> Any:
        """Return the policy's instance."""
        return discovery.instance("policy", self.policy, self.fields)


@dataclass(frozen=True, kw_only=True)
class ReaderParams(PolicyParams):
    """A policy that reads a corpus, for columns or for statistics."""

    depends: Json  # what the result depends on, besides the fields
    reads: Reads | None = omitted(None)  # the training whose passages have columns; None: all have


@dataclass(frozen=True, kw_only=True)
class ShardParams(ReaderParams):
    """A policy that reads shard `number` of `count` of a corpus; all sums are kept."""

    number: int
    count: int


@dataclass(frozen=True, kw_only=True)
class CountParams(ReaderParams):
    """A policy that counts something in a corpus."""

    min_count: int = omitted(1)  # the smallest sum that is kept


@dataclass(frozen=True, kw_only=True)
class FitParams(PolicyParams):
    """The training of a learned policy."""

    spec: Training
    how: Denoising | None = omitted(None)  # the objective, if the policy is fitted to it
    language: str = omitted(ENGLISH)  # of the corpus


@dataclass(frozen=True, kw_only=True)
class PretrainingParams(PolicyParams, ModelParams):
    """Pre-training on masked passages."""

    how: Denoising
    spec: Training
    until: int = omitted(0)  # the step of `spec` after which it ends; 0: the last one
    first: int = omitted(0)  # the steps of `spec` in the parts before
    keeps_head: bool = omitted(False)  # an encoder is saved with its head, if it has no decoder
    whole_targets: bool = omitted(False)  # max_target is lower than max_source, but cuts no target


@dataclass(frozen=True, kw_only=True)
class GeneralParams(PretrainingParams, FreshParams):
    """Pre-training of a model that is built from scratch."""

    code: Mapping[str, str] | None = omitted(None)


@dataclass(frozen=True, kw_only=True)
class IntermediateParams(PretrainingParams):
    """Pre-training that continues from a model, or from a part of the same training."""


@dataclass(frozen=True, kw_only=True)
class FeedbackParams(ReaderParams, ModelParams):
    """A policy's columns of the passages of some steps, computed with the model in training."""

    how: Denoising
    spec: Training
    first: int  # steps done
    until: int  # the steps from `first` to this one read the columns


@dataclass(frozen=True, kw_only=True)
class TunedParams(AnswerParams):
    """The parameters that fine-tuning and evaluation share."""

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
    """The numbers of candidates, tasks and seeds of the scores on dev to choose by."""

    candidates: int
    tasks: int
    seeds: int


@dataclass(frozen=True, kw_only=True)
class TakeParams:
    """The cell of the chosen candidate; the choice is an input."""
