"""The hooks of plugins: every method and attribute of a plugin's class that maskpolicy uses.

`registry.check_hooks` compares each class with the table `HOOKS`, from which the documentation's
tables are made. Code gets what a plugin defines with `ANNOTATE.of(policy)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from maskpolicy.core import markdown, schema
from maskpolicy.core.errors import MaskpolicyError, PluginError, cause
from maskpolicy.core.types import Example, Json, Passage, Spans

_Columns: TypeAlias = dict[str, list[NDArray[Any]]]
T = TypeVar("T")
Form: TypeAlias = Literal["method", "class variable", "field", "field or property"]
Rows: TypeAlias = Sequence[Json]
Beside: TypeAlias = Sequence[Path]
Lookup: TypeAlias = Callable[[Json, Example], str | None]
"""(row, its example) -> the context of the example, or None."""

STATISTICS, CONTRAST = "statistics", "contrast"  # parameters that get statistics of a corpus
EXAMPLE_NUMBER = "example"


@dataclass(frozen=True)
class Hook(Generic[T]):
    """A method or an attribute that maskpolicy looks for in the class of a plugin."""

    name: str
    default: T  # what `of` returns for a plugin without it
    meaning: str  # Markdown, for the documentation's table
    form: Form = "method"
    takes: tuple[str, ...] = ()  # a method's parameters after self, passed by position
    may_take: tuple[str, ...] = ()  # further parameters, passed by name if the method has them
    gives: str = ""  # the type of a method's result
    annotation: Any = Any  # the type of a class variable, as `schema.check` takes it
    required: bool = False
    needs: str = ""  # another hook that must be there too
    instead: str = ""  # another hook that may be there instead of a required one

    def of(self, plugin: Any) -> T:
        """Return what a plugin, its class or an instance, defines under this name, or the default.

        For an instance, that is a bound method or the value of an attribute. A field with the name
        of a class variable is a setting of the plugin's own. Raises PluginError for a property that
        fails.
        """
        if self.form == "class variable" and self.name in field_names(plugin):
            return self.default
        try:
            value: T = getattr(plugin, self.name)
        except Exception as error:
            kind = type(plugin)
            if isinstance(error, AttributeError) and not hasattr(kind, self.name):
                return self.default
            if isinstance(error, MaskpolicyError):
                raise
            what = f"{kind.__name__}: `{self.name}` failed: {cause(error)}"
            raise PluginError(what) from error
        return value

    def extra(self, plugin: Any) -> set[str]:
        """Return which of the parameters `may_take` the method of a plugin has.

        One with `**more` also has those of the method that it overrides.
        """
        bases = (plugin if isinstance(plugin, type) else type(plugin)).__mro__[1:]
        names: set[str] = set()
        try:
            for method in (self.of(plugin), *(self.of(base) for base in bases)):
                parameters = inspect.signature(method).parameters  # type: ignore[arg-type]
                names |= parameters.keys()
                if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
                    break
        except (TypeError, ValueError):  # no method, or compiled code without a signature
            pass
        return names & set(self.may_take)

    @property
    def signature(self) -> str:
        """The hook as Python, e.g. "reading(self, row) -> tuple[str, tuple[str, ...]]"."""
        if self.form != "method":
            return self.name
        return f"{self.name}({', '.join(('self', *self.takes))}) -> {self.gives}"


SELECT: Hook[Callable[[Passage, np.random.Generator], Spans] | None] = Hook(
    "select",
    None,
    "the token spans of a passage to mask. Runs in every epoch. A method with a parameter "
    "`progress` gets the share of the training that is done, in [0, 1): a function of the step "
    "alone. A parameter `statistics` gets the statistics of the corpus, as in `annotate`, and "
    "`example` the number of the passage's example, from 0, if the policy has `examples_of` (None "
    "if a text is only shown)",
    takes=("passage", "rng"),
    may_take=("progress", STATISTICS, EXAMPLE_NUMBER),
    gives="Spans",
    required=True,
    instead="choose_member",
)
CHOOSE_MEMBER: Hook[Callable[[Passage, np.random.Generator], int] | None] = Hook(
    "choose_member",
    None,
    "instead of `select`: which of `members` masks a passage, as a number from 0. Runs in every "
    "epoch, with separate random numbers: a member masks what it would mask alone. It may have a "
    "parameter `progress` too",
    takes=("passage", "rng"),
    may_take=("progress",),
    gives="int",
    needs="members",
)
EXAMPLES_OF: Hook[Callable[[Sequence[Passage]], Sequence[int] | None] | None] = Hook(
    "examples_of",
    None,
    "the number of examples of each passage in an epoch, 0 or more; None: always one. The passages "
    "have the columns of `annotate`. A step has `batch_size` examples, in their own random order. "
    "All examples of a passage get the same random numbers, in `select` and for replacements",
    takes=("passages",),
    gives="Sequence[int] | None",
    needs="select",
)
WEIGH: Hook[Callable[[Passage, Spans], Any] | None] = Hook(
    "weigh",
    None,
    "the weight of the loss, 0 or more: one number for a passage, or one for each of its tokens, "
    "(t,). `spans` are those that `select` returned; fields that follow a schedule, or are drawn, "
    "have the same values as in `select`. The loss of a step is the weighted mean over its target "
    "tokens (those that are not tokens of the passage, such as `</s>`, have the passage's mean "
    "weight)",
    takes=("passage", "spans"),
    gives="float | NDArray",
    needs="select",
)
MEMBERS: Hook[Sequence[Any]] = Hook(
    "members",
    (),
    "policies by name or as blocks, each with its own keys of the denoising objective; fitted and "
    "annotated like rows of their own",
    form="field",
    needs="choose_member",
)
ANNOTATE: Hook[Callable[[Sequence[Passage], Path | None], _Columns] | None] = Hook(
    "annotate",
    None,
    "columns that `select` reads from `passage.columns`, arrays of one type, one for each passage: "
    "spans, or numbers that go with them. Runs once for each corpus (with `annotate: read`, for "
    "each training), in shards and over processes; the result is an artifact of its own. `fitted` "
    "is the folder of a learned policy, or None. A method with a parameter `statistics` gets the "
    "statistics of the corpus (`maskpolicy.Statistics`)",
    takes=("passages", "fitted"),
    may_take=(STATISTICS,),
    gives="dict[str, list[NDArray]]",
)
COUNT: Hook[Callable[[Sequence[Passage]], Mapping[Any, int]] | None] = Hook(
    "count",
    None,
    "whole numbers to add up over all passages, by key: text, a whole number, or a tuple of "
    "these. Runs in shards and over processes; the sums are the `statistics` that `annotate` and "
    "`select` get if they have this parameter",
    takes=("passages",),
    may_take=(STATISTICS,),
    gives="Mapping[Key, int]",
)
MIN_COUNT: Hook[int] = Hook(
    "min_count",
    1,
    "the smallest sum that is kept: smaller ones are dropped when all passages have been counted",
    form="field or property",
)
PASSES: Hook[int] = Hook(
    "passes",
    1,
    "how often `count` reads the corpus. If `count` has a parameter `statistics`, it is None in "
    "the first pass, then the sums of the previous one. The sums of the last pass are kept",
    form="class variable",
    annotation=schema.Count,
)
CONDENSE: Hook[Callable[..., Any] | None] = Hook(
    "condense",
    None,
    "what `annotate` and `select` get instead of the sums: numbers, as a mapping or as pairs that "
    "are yielded one by one. Runs once for each corpus. A method with a parameter `contrast` gets "
    "the sums of the experiment's `contrast_corpus` too",
    takes=(STATISTICS,),
    may_take=(CONTRAST,),
    gives="Mapping[Key, float]",
)
REANNOTATE: Hook[Callable[[Sequence[Passage], Any], _Columns] | None] = Hook(
    "reannotate",
    None,
    "columns like those of `annotate`, computed with the model in training: before the first step, "
    "and again after every `every` steps. Runs once for the passages of the next `every` steps. "
    "`current` is that model (`maskpolicy.models.learned.Current`)",
    takes=("passages", "current"),
    gives="dict[str, list[NDArray]]",
    needs="every",
)
EVERY: Hook[int] = Hook(
    "every",
    0,
    "the number of steps of the intermediate stage after which `reannotate` runs again",
    form="field",
)
SMOOTHING: Hook[float] = Hook(
    "smoothing",
    0.0,
    "for a policy with `reannotate`: the share of each label that is the prediction of the model "
    "as it was at the last `reannotate`; the rest is the right token",
    form="field",
)
DEPENDS: Hook[Callable[[], Json]] = Hook(
    "depends",
    dict,
    "what `annotate`, `reannotate` and `count` depend on besides the fields, `fit` of a policy "
    "that learns from labels, and `select` of one without these, e.g. name and version of a spaCy "
    "pipeline: a part of the artifact's key",
    gives="Json",
)
ONLY_SELECT: Hook[Sequence[str]] = Hook(
    "only_select",
    (),
    "names of fields that `select` alone reads: rows that differ in these share what is fitted and "
    "annotated, if the fields have defaults, and these fields may follow a schedule or be drawn. A "
    "subclass with its own `annotate`, `count` or `fit` states them again",
    form="class variable",
    annotation=tuple[str, ...],
)
VERSION: Hook[int] = Hook(
    "version",
    1,
    "for a policy that comes with maskpolicy: raise it when `select` or `choose_member` masks "
    "differently, so that trainings with the earlier masks are not reused. The keys of a policy in "
    "your own file hold its code",
    form="class variable",
    annotation=schema.Count,
)
CORPUS_COLUMNS: Hook[Sequence[str]] = Hook(
    "corpus_columns",
    (),
    "names of columns of the corpus that `select` or `annotate` reads: if the corpus lacks one, "
    "the command stops before any work",
    form="field or property",
)
FIT: Hook[Callable[..., Json] | None] = Hook(
    "fit",
    None,
    "trains a learned policy, writes it into the folder `out`, which `annotate` gets as `fitted`, "
    "and returns a report. Runs as a separate stage for each intermediate run. `data` "
    "are the contexts of the tasks in the field `train_on`, `spec` is the experiment's `fit`, "
    "`tools` the model's and tokenizer's folders and the training loop "
    "(`maskpolicy.models.learned.Tools`). It may have a parameter `statistics` too",
    takes=("data", "spec", "out", "tools"),
    may_take=(STATISTICS,),
    gives="Json",
    needs="annotate",
)
TRAIN_ON: Hook[Sequence[str]] = Hook(
    "train_on",
    (),
    "the tasks whose contexts `fit` gets: names, or labels of the experiment's columns",
    form="field",
)
LEARNS_FROM: Hook[str] = Hook(
    "learns_from",
    "answers",
    "`answers`: the tasks in `train_on` are questions, and their contexts hold the spans of the "
    'answers. `labels`: they are label tasks (`kind="label"`), and their contexts are the texts, '
    "each with its label",
    form="class variable",
    annotation=Literal["answers", "labels"],
)
NEEDS_CLASSIFIER: Hook[bool] = Hook(
    "needs_classifier",
    False,
    "True: the model is first fine-tuned on the label task in `train_on`, with the experiment's "
    "`finetune`, as a stage of its own; `fit` gets it by `tools.load_classifier(data[0], spec)`",
    form="class variable",
    annotation=bool,
)
INIT: Hook[Any] = Hook(
    "init",
    None,
    "another learned policy, by name or as a block: `fit` gets what that one learned as "
    "`tools.init`",
    form="field",
)
FITS_TO_DENOISING: Hook[bool] = Hook(
    "fits_to_denoising",
    False,
    "True: `fit` gets the row's denoising objective as `tools.denoising`, and what it learns "
    "depends on that",
    form="class variable",
    annotation=bool,
)
OF_STATISTICS: tuple[Hook[Any], ...] = (COUNT, MIN_COUNT, PASSES, CONDENSE)
EXAMPLE: Hook[Callable[[Json], Example | list[Example] | None] | None] = Hook(
    "example",
    None,
    "the example of a row of the official file, or several; None: the row has no answer. An empty "
    "`id` or `group` is filled in",
    takes=("row",),
    gives="Example | list[Example] | None",
    required=True,
)
EVIDENCE: Hook[Callable[[Rows, Beside, str], Lookup] | None] = Hook(
    "evidence",
    None,
    "a function `(row, example) -> str | None` that looks a context up outside the row, prepared "
    "for `rows`. Files that go with the official one lie in one of the folders `beside`; `split` "
    "is the official split of the rows: a file that reveals answers of another split must not be "
    "read",
    takes=("rows", "beside", "split"),
    gives="Callable",
)
EVIDENCE_FILES: Hook[Callable[[Rows, Beside, str], list[Path]] | None] = Hook(
    "evidence_files",
    None,
    "the files that `evidence` reads: their digests are in the key",
    takes=("rows", "beside", "split"),
    gives="list[Path]",
    needs="evidence",
)
READING: Hook[Callable[[Json], tuple[str, tuple[str, ...]]] | None] = Hook(
    "reading",
    None,
    "the text that learned policies read and the answers in it, where these are not context and "
    "targets of the example",
    takes=("row",),
    gives="tuple[str, tuple[str, ...]]",
)
METRIC: Hook[str] = Hook(
    "metric",
    "",
    "the name of the metric, if the task's fields choose it",
    form="field or property",
)
LABELS: Hook[tuple[str, ...]] = Hook(
    "labels",
    (),
    "all labels, if the task's fields choose them; metrics for other labels are errors",
    form="field",
)
EDITION: Hook[str] = Hook(
    "edition",
    "auto",
    "which of the fact `editions` is read; auto: the first whose files are there",
    form="field",
)
DOCUMENTS: Hook[bool] = Hook(
    "documents",
    True,
    "false: the Hub's configuration without evidence documents is read (`Hub(bare=..)`)",
    form="field",
)
CHOOSE: Hook[str] = Hook(
    "choose",
    "generate",
    "`likelihood`: the model takes the likeliest of an example's `choices` and writes no text. "
    "Of a task of pairs, how a text is scored: `auto`, `pll`, `within_word_l2r`, `enc_dec_mask` or "
    "`enc_dec_prefix`",
    form="field",
)
ANALYSE: Hook[Callable[..., Any] | None] = Hook(
    "analyse",
    None,
    "its findings in the results of finished runs, and in their artifacts in `store`",
    takes=("runs", "store"),
    gives="Findings",
    required=True,
)
TAKES_MODELS: Hook[bool] = Hook(
    "takes_models",
    False,
    "True: a folder with a model may stand in for a run; it has no results",
    form="class variable",
    annotation=bool,
)
FILES: Hook[Sequence[str]] = Hook(
    "files",
    (),
    'data files beside the plugin, `files = ["words.txt"]`: their digests are in its keys. Open '
    'them as usual, or by the path that `maskpolicy.file_of(self, "words.txt")` returns. '
    "Declare every file that it reads: a change of another file computes nothing again",
    form="class variable",
    annotation=tuple[str, ...],
)

HOOKS: dict[str, tuple[Hook[Any], ...]] = {
    "policy": (
        *(SELECT, CHOOSE_MEMBER, EXAMPLES_OF, WEIGH, MEMBERS),
        *(ANNOTATE, REANNOTATE, EVERY, SMOOTHING),
        *(DEPENDS, ONLY_SELECT, VERSION, CORPUS_COLUMNS),
        *OF_STATISTICS,
        *(FIT, TRAIN_ON, LEARNS_FROM, NEEDS_CLASSIFIER, INIT, FITS_TO_DENOISING, FILES),
    ),
    "task": (
        *(EXAMPLE, EVIDENCE, EVIDENCE_FILES, READING),
        *(METRIC, LABELS, EDITION, DOCUMENTS, CHOOSE, FILES),
    ),
    "analysis": (ANALYSE, TAKES_MODELS, FILES),
}
"""By kind of plugin, all that its class may define, in the order of the documentation."""


def field_names(plugin: Any) -> set[str]:
    """Return the names of a dataclass's fields, class variables not among them."""
    return {field.name for field in fields(plugin)} if is_dataclass(plugin) else set()


def only_select(policy: Any) -> Sequence[str]:
    """Return `ONLY_SELECT` of a policy, () if a subclass of the class that states it reads more."""
    for kind in type(policy).__mro__:
        if ONLY_SELECT.name in vars(kind):
            return ONLY_SELECT.of(policy)
        if any(hook.name in vars(kind) for hook in (ANNOTATE, REANNOTATE, COUNT, CONDENSE, FIT)):
            break
    return ()


def reads_statistics(plugin: Any) -> bool:
    """Return whether a policy, its class or an instance, reads statistics of the corpus."""
    return STATISTICS in FIT.extra(plugin) or masks_by_statistics(plugin)


def masks_by_statistics(plugin: Any) -> bool:
    """Return whether `annotate` or `select` of a policy reads statistics of the corpus."""
    return any(STATISTICS in hook.extra(plugin) for hook in (SELECT, ANNOTATE))


def listed() -> list[Json]:
    """Return every hook of every kind of plugin as JSON."""
    shown = ("name", "form", "signature", "required", "meaning")
    return [
        {"kind": kind, **{name: getattr(hook, name) for name in shown}}
        for kind, known in HOOKS.items()
        for hook in known
    ]


def table(kind: str) -> str:
    """Return the documentation's table of what a plugin of one kind may define."""
    rows = []
    for hook in HOOKS[kind]:
        form = "" if hook.form == "method" else f", a {hook.form}"
        needed = " (required)" if hook.required else ""
        rows.append([f"`{hook.signature}`{form}{needed}", hook.meaning])
    return markdown.table(["name", "what it is"], rows)
