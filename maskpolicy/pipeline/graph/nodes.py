"""Stages: pure functions from committed artifacts to one artifact, and the keys of artifacts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args, get_type_hints

from maskpolicy.core.errors import ConfigError, StoreError, unknown
from maskpolicy.core.keys import digest, from_json, plain, to_json
from maskpolicy.core.types import Json
from maskpolicy.pipeline.graph.stage_run import Local, StageRun

StageFunction: TypeAlias = Callable[[Any, Mapping[str, Path], Path, StageRun], None]
"""(params, inputs, out, run): writes an artifact's files into the folder `out`.

`params` is annotated with a frozen dataclass, which the stage's key holds as JSON. `inputs` are the
folders of the input artifacts, by name. The same params and the same input files must give the same
bytes.
"""


@dataclass(frozen=True)
class _Facts:
    """What `stage` states about a kind."""

    version: int
    shared: bool
    urgent: bool
    picks: bool


@dataclass(frozen=True)
class _Registered:
    function: StageFunction
    params: Any  # the dataclass of its parameters, or a union of several
    where: str
    facts: _Facts


_KINDS: dict[str, _Registered] = {}
F = TypeVar("F", bound=StageFunction)
P = TypeVar("P")


def stage(
    kind: str,
    version: int = 1,
    *,
    shared: bool = False,
    urgent: bool = False,
    picks: bool = False,
) -> Callable[[F], F]:
    """Return a decorator that registers a module-level function as the one that computes `kind`.

    `version` stands for the code: raise it whenever the same arguments give another result. If a
    command runs in several processes (`processes`), all of them compute a `shared` stage together.
    An `urgent` stage is computed as early as possible. A stage that `picks` needs one of several
    inputs (`graph.picking`).
    """
    return partial(_register, kind, _Facts(version, shared, urgent, picks))


def is_shared(kind: str) -> bool:
    """Return whether all processes of a command compute a kind of stage together."""
    return _registered(kind).facts.shared


def is_urgent(kind: str) -> bool:
    """Return whether stages of a kind are computed as early as possible."""
    return _registered(kind).facts.urgent


def is_picking(kind: str) -> bool:
    """Return whether stages of a kind need one of several inputs."""
    return _registered(kind).facts.picks


def compute(kind: str, params: Json, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Compute a stage: write its files into the folder `out`.

    `params` is the JSON in its key, so the stage function gets nothing that the key lacks. Raises
    whatever that function raises.
    """
    _registered(kind).function(params_from(kind, params), inputs, out, run)


def params_from(kind: str, params: Json) -> Any:
    """Return the parameters of a kind of stage from the JSON in a key."""
    return from_json(_registered(kind).params, plain(params), kind)


def module_of(kind: str) -> str:
    """Return the name of the module whose import registers a kind of stage."""
    return _registered(kind).function.__module__


def version_of(kind: str) -> int:
    """Return the version of a kind of stage."""
    return _registered(kind).facts.version


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
    stages whose artifacts this stage can commit while it runs, with the same bytes. They are not in
    the key, and neither are `local` (paths, device, workers) and the paths of the data `files`.
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
        known = _registered(self.kind)
        if not isinstance(self.params, known.params):
            raise ConfigError(f"stage {self.kind}: its params must be of {known.params}")
        object.__setattr__(self, "keyed", to_json(self.params, f"{self.kind}.params"))
        object.__setattr__(self, "inputs", dict(self.inputs))
        object.__setattr__(self, "version", known.facts.version)
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
        """Return a copy with other values of `local`, `transient`, `byproducts` or `files`.

        The key stays the same, because it does not hold them.
        """
        changed = copy(self)
        for name, value in unkeyed.items():
            object.__setattr__(changed, name, value)
        return changed

    def record(self) -> dict[str, Json]:
        """Return the description of the stage that its manifest holds."""
        return {**self._resolved(), "logical": self.logical, "local": to_json(self.local)}

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

    def visit(stage: Stage) -> None:
        if stage.key not in order:
            for needed in stage.inputs.values():
                visit(needed)
            order[stage.key] = stage

    for stage in stages:
        visit(stage)
    return list(order.values())


def users_of(order: Iterable[Stage]) -> dict[str, list[Stage]]:
    """Return for each key in `order` the stages that take its artifact as an input."""
    order = list(order)
    users: dict[str, list[Stage]] = {stage.key: [] for stage in order}
    for stage in order:
        for key in {needed.key for needed in stage.inputs.values()} & users.keys():
            users[key].append(stage)
    return users


def sinks(order: Iterable[Stage]) -> list[Stage]:
    """Return the stages of `order` that are not an input of another one."""
    order = list(order)
    users = users_of(order)
    return [stage for stage in order if not users[stage.key]]


def _register(kind: str, facts: _Facts, function: F) -> F:
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
    _KINDS[kind] = _Registered(function, params, where, facts)
    return function


def _registered(kind: str) -> _Registered:
    try:
        return _KINDS[kind]
    except KeyError:
        raise ConfigError(unknown("stage", kind, _KINDS)) from None
