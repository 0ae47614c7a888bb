"""Stages: pure functions from committed artifacts to one artifact, and the keys of artifacts.

Some stages use one of several inputs, their options, and the artifact of the input "choice" says
which: its file choice.json is {"input": NAME}. So a choice does not change the graph, and options
that are not chosen are not computed.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args, get_type_hints

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, StoreError, unknown
from maskpolicy.core.files import slug
from maskpolicy.core.keys import digest, from_json, plain, to_json
from maskpolicy.core.schema import omitted
from maskpolicy.core.types import Json
from maskpolicy.experiment.budgets import Training, block_of
from maskpolicy.experiment.definition import CorpusBlock
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.checkpoints import Checkpoints

if TYPE_CHECKING:
    from maskpolicy.models.training.batching import Loss, Step

_log = logging.getLogger(__name__)
Commit: TypeAlias = Callable[[Callable[[Path], None], Mapping[str, Json]], None]
"""commit(write, facts): call write(folder), and commit the files that it puts into the folder.

The manifest records `facts`, like those of `StageRun`.
"""


@dataclass(frozen=True, kw_only=True)
class Local:
    """Paths and settings of this machine, which are not in the key.

    A manifest has those that differ from their defaults.
    """

    plugins: tuple[str, ...] = omitted(())  # the experiment's files of plugins
    tracker: str | None = omitted(None)  # writes the curves of trainings
    processes: int = omitted(1)  # that compute a training together
    checkpoint_every: float = omitted(Training.checkpoint_every)  # seconds
    folder: str | None = omitted(None)  # of a model, or of a task's files; None: the Hub's
    revision: str | None = omitted(None)  # of a Hub model or dataset, as asked for
    corpus: CorpusBlock | None = omitted(None)  # where the documents of a corpus are
    pipeline: str | None = omitted(None)  # a spaCy pipeline's name or folder


@dataclass(frozen=True)
class StageRun:
    """What a stage function gets besides params and inputs; its result must not depend on it."""

    checkpoints: Checkpoints
    local: Local = field(default_factory=Local)
    workers: int = 1  # processes that it may start
    facts: dict[str, Json] = field(default_factory=dict)  # for the stage to add to the manifest
    advance: Callable[[int, int, str], None] = lambda done, total, note: None
    byproducts: Mapping[str, Commit] = field(default_factory=dict)  # the wanted ones, by name
    name: str = ""  # of the stage
    logs: Path | None = None  # a folder for files that only people read

    @property
    def block(self) -> str:
        """The block of its budget."""
        return block_of(self.name.partition(" ")[0])

    def warn(self, text: str) -> None:
        """Log a warning with the stage's name; of several processes, only the first has a name."""
        if self.name:
            _log.warning("%s: %s", self.name, text)

    def progress(self, done: int, total: int, note: str = "") -> None:
        """Report that `done` of `total` units are finished."""
        self.advance(done, total, note)

    def train(
        self,
        module: Any,
        steps: Callable[[int], Step],
        loss: Loss,
        spec: Training,
        *,
        workers: int = 0,
        **more: Any,
    ) -> dict[str, Any]:
        """Train `module` in place with this stage's checkpoints, progress and tracker.

        A second training of the stage has no checkpoints: those are of the first one. Returns the
        result of `training.loop.train`. Records threads, loss and a reduction of micro-batches in
        `facts`.
        """
        import torch

        from maskpolicy.models.training.loop import tracked, train
        from maskpolicy.models.training.optimization import NoCheckpoints

        checkpoints = NoCheckpoints() if "loss" in self.facts else self.checkpoints
        self.facts["threads"] = torch.get_num_threads()
        on_cpu = hardware.device().type == "cpu"
        with tracked(self.local.tracker, self.logs, slug(self.name), on_cpu) as log:
            done = train(
                module,
                steps,
                loss,
                spec,
                checkpoints,
                self.progress,
                workers=workers,
                log=log,
                name=self.name,
                **more,
            )
        self.facts["loss"] = done["loss"]
        if "shrunk" in done:
            self.facts["shrunk"] = done["shrunk"]
        return done


Folders: TypeAlias = Mapping[str, Path]
"""The folders of input artifacts by name."""
StageFunction: TypeAlias = Callable[[Any, Folders, Path, StageRun], None]
"""(params, inputs, out, run): writes an artifact's files into the folder `out`.

`params` is annotated with a frozen dataclass; its JSON is part of the stage's key. `inputs` are the
folders of the input artifacts by name. Equal params and input files must give equal bytes.
"""


@dataclass(frozen=True)
class StageKind:
    """A kind of stage, as `stage` registers it."""

    function: StageFunction
    params: Any  # the dataclass of its parameters, or a union of several
    where: str
    version: int
    urgent: bool
    picks: bool


_KINDS: dict[str, StageKind] = {}
F = TypeVar("F", bound=StageFunction)
P = TypeVar("P")


def stage(
    kind: str,
    version: int = 1,
    *,
    urgent: bool = False,
    picks: bool = False,
) -> Callable[[F], F]:
    """Return a decorator that registers a module-level function, which computes `kind`.

    Raise `version` whenever the same arguments give another result. An `urgent` stage is computed
    as early as possible. A stage that `picks` needs one of several inputs (`options`).
    """
    return partial(_register, kind, version=version, urgent=urgent, picks=picks)


def stage_kind(name: str) -> StageKind:
    """Return a kind of stage by its name; raises ConfigError."""
    try:
        return _KINDS[name]
    except KeyError:
        raise ConfigError(unknown("stage", name, _KINDS)) from None


def params_from(kind: str, params: Json) -> Any:
    """Return the parameters of a kind of stage from the JSON in a key, and from nothing else."""
    return from_json(stage_kind(kind).params, plain(params), kind)


def version_of(kind: str) -> int:
    """Return the version of a kind of stage."""
    return stage_kind(kind).version


def params_of(record: Json, kind: type[P]) -> P:
    """Return the parameters of a stage from its manifest's `record`.

    Raises StoreError if another version of maskpolicy wrote them.
    """
    try:
        return from_json(kind, record["params"], record["kind"])
    except ConfigError as error:
        raise StoreError(
            f"{record['kind']}: was computed by another version of maskpolicy ({error}): run its "
            "experiment again"
        ) from error


@dataclass(frozen=True, eq=False)
class Stage:
    """One computation. Two stages with the same key are the same computation.

    `params` is an instance of the dataclass that the kind's function takes, `keyed` its JSON in the
    key. `logical` identifies the stage in its experiment, whatever its parameters. `byproducts` are
    stages whose artifacts this stage can commit while it runs, with the same bytes. The key does
    not depend on them, on `local` (paths, device, workers), and on the paths of data `files`.
    """

    kind: str
    label: str
    params: object
    inputs: Mapping[str, Stage] = field(default_factory=dict, repr=False)
    local: Local = field(default_factory=Local, repr=False)
    experiment: str = ""
    transient: bool = False  # drop the artifact once all stages that need it have committed
    byproducts: Mapping[str, Stage] = field(default_factory=dict, repr=False)
    files: Mapping[Path, str] = field(default_factory=dict, repr=False)  # data files: sha256
    keyed: Mapping[str, Json] = field(init=False, repr=False)
    version: int = field(init=False)
    key: str = field(init=False)
    depth: int = field(init=False)  # stages on the longest path to this one, itself included

    def __post_init__(self) -> None:
        """Compute the key from copies of params and inputs, so that it cannot change."""
        known = stage_kind(self.kind)
        if not isinstance(self.params, known.params):
            raise ConfigError(f"stage {self.kind}: its params must be of {known.params}")
        object.__setattr__(self, "keyed", to_json(self.params, f"{self.kind}.params"))
        object.__setattr__(self, "inputs", dict(self.inputs))
        object.__setattr__(self, "version", known.version)
        object.__setattr__(self, "key", digest(self._resolved()))
        depth = 1 + max((needed.depth for needed in self.inputs.values()), default=0)
        object.__setattr__(self, "depth", depth)

    @property
    def name(self) -> str:
        """The kind and the label, for messages."""
        return f"{self.kind} {self.label}".strip()

    @property
    def logical(self) -> dict[str, str]:
        """Experiment, kind and label of the stage."""
        return {"experiment": self.experiment, "kind": self.kind, "label": self.label}

    def adjusted(self, **unkeyed: Any) -> Stage:
        """Return a copy with other values of fields that are not in the key."""
        changed = copy(self)
        for name, value in unkeyed.items():
            object.__setattr__(changed, name, value)
        return changed

    def record(self) -> dict[str, Json]:
        """Return the description of the stage for its manifest."""
        about = {"logical": self.logical, "local": to_json(self.local)}
        return {**self._resolved(), **about, "transient": self.transient}

    def _resolved(self) -> dict[str, Json]:
        return {
            "kind": self.kind,
            "version": self.version,
            "params": self.keyed,
            "inputs": {name: stage.key for name, stage in self.inputs.items()},
        }


def topological(stages: Iterable[Stage]) -> list[Stage]:
    """Return the stages and all their inputs, each key once, inputs before their users."""
    order: dict[str, Stage] = {}

    def visit(stages: Iterable[Stage]) -> None:
        for stage in stages:
            if stage.key not in order:
                visit(stage.inputs.values())
                order[stage.key] = stage

    visit(stages)
    return list(order.values())


def users_of(order: Iterable[Stage]) -> dict[str, list[Stage]]:
    """Return for each key in `order` the stages that use its artifact as an input."""
    order = list(order)
    users: dict[str, list[Stage]] = {stage.key: [] for stage in order}
    for stage in order:
        for key in {needed.key for needed in stage.inputs.values()} & users.keys():
            users[key].append(stage)
    return users


def sinks(order: Iterable[Stage]) -> list[Stage]:
    """Return the stages of `order` that are not an input of another one."""
    order = list(order)
    used = {needed.key for stage in order for needed in stage.inputs.values()}
    return [stage for stage in order if stage.key not in used]


# stages that use one of several inputs

CHOICE, OPTION = "choice", "option-"  # the name of the input that chooses; how options' names begin
FILE = "choice.json"


def options(stage: Stage) -> dict[str, Stage]:
    """Return the options of a stage, by name; {} for most stages."""
    if not stage_kind(stage.kind).picks:
        return {}
    return {name: each for name, each in stage.inputs.items() if name.startswith(OPTION)}


def needed_names(kind: str, inputs: Mapping[str, str], store: Store) -> list[str]:
    """Return the names of the inputs that a stage needs: all but options that were not chosen.

    `inputs` maps names to keys. Before the choice is made, no option is needed.
    """
    if not stage_kind(kind).picks:
        return list(inputs)
    path = store.file(inputs[CHOICE], FILE)
    taken = None if path is None else json.loads(path.read_bytes())["input"]
    return [name for name in inputs if name == taken or not name.startswith(OPTION)]


def needed(stage: Stage, store: Store) -> list[Stage]:
    """Return the inputs that a stage needs: all but options that were not chosen."""
    keys = {name: each.key for name, each in stage.inputs.items()}
    return [stage.inputs[name] for name in needed_names(stage.kind, keys, store)]


def undecided(
    stages: Iterable[Stage], store: Store, is_known: Callable[[Stage], bool]
) -> dict[str, Stage]:
    """Return by key the options of `stages`, and the options' missing inputs.

    Stages for which `is_known` is true are left out, with their inputs.
    """
    found: dict[str, Stage] = {}
    waiting = [option for stage in stages for option in options(stage).values()]
    while waiting:
        stage = waiting.pop()
        if stage.key not in found and not is_known(stage):
            found[stage.key] = stage
            if store.peek(stage.key) is None:
                waiting.extend(stage.inputs.values())
    return found


def _register(kind: str, function: F, **stated: Any) -> F:
    file = inspect.getsourcefile(function) or "<unknown>"
    where = f"{file}:{function.__code__.co_firstlineno}"
    if "<locals>" in function.__qualname__:
        raise ConfigError(f"{where}: stage {kind!r} must be a function of a module's top level")
    known = _KINDS.get(kind)
    if known is not None and known.where != where:
        raise ConfigError(f"stage {kind!r} is defined twice: {known.where} and {where}")
    params = get_type_hints(function).get("params")
    if not all(map(is_dataclass, get_args(params) or [params])):
        raise ConfigError(f"{where}: annotate `params` of stage {kind!r} with a frozen dataclass")
    _KINDS[kind] = StageKind(function, params, where, **stated)
    return function
