"""Stages: pure functions from committed artifacts to one artifact, and the keys of artifacts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from maskpolicy.errors import ConfigError, unknown
from maskpolicy.keys import digest, plain
from maskpolicy.store.checkpoints import Checkpoints
from maskpolicy.types import Json

Commit: TypeAlias = Callable[[Callable[[Path], None], Mapping[str, Json]], None]
"""commit(write, facts): call write(folder), and commit the files that it puts into the folder.

The manifest records `facts`, like those of `Run`.
"""


@dataclass(frozen=True)
class Run:
    """What a stage function gets besides params and inputs; nothing here may change its result."""

    checkpoints: Checkpoints
    local: Mapping[str, Json] = field(default_factory=dict)  # paths, device: not in the key
    workers: int = 1  # processes that it may start
    facts: dict[str, Json] = field(default_factory=dict)  # for the stage to add to the manifest
    advance: Callable[[int, int, str], None] = lambda done, total, note: None
    byproducts: Mapping[str, Commit] = field(default_factory=dict)  # the wanted ones, by name
    name: str = ""  # of the stage
    logs: Path | None = None  # a folder for files that only people read

    def progress(self, done: int, total: int, note: str = "") -> None:
        """Report that `done` of `total` units are finished."""
        self.advance(done, total, note)


StageFunction: TypeAlias = Callable[[Json, Mapping[str, Path], Path, Run], None]
"""(params, inputs, out, run): writes an artifact's files into the folder `out`.

`inputs` are the folders of the input artifacts, by name. The same params and the same input files
must give the same bytes.
"""


@dataclass(frozen=True)
class _Registered:
    function: StageFunction
    version: int
    where: str
    shared: bool


_KINDS: dict[str, _Registered] = {}
F = TypeVar("F", bound=StageFunction)


def stage(kind: str, version: int = 1, *, shared: bool = False) -> Callable[[F], F]:
    """Return a decorator that registers a module-level function as the one that computes `kind`.

    `version` stands for the code: raise it whenever the same arguments give another result. If a
    command runs in several processes (`processes`), all of them compute a `shared` stage together.
    """
    return partial(_register, kind, version, shared)


def is_shared(kind: str) -> bool:
    """Return whether all processes of a command compute a kind of stage together."""
    return _registered(kind).shared


def function_of(kind: str) -> StageFunction:
    """Return the function that computes a kind of stage."""
    return _registered(kind).function


def version_of(kind: str) -> int:
    """Return the version of a kind of stage."""
    return _registered(kind).version


@dataclass(frozen=True, eq=False)
class Stage:
    """One unit of work. Two stages with the same key are the same work.

    `params` and `local` are JSON; `local` (paths, device, workers) is not in the key. `logical`
    identifies the stage in its experiment, whatever its parameters. `byproducts` are stages whose
    artifacts this stage can commit while it runs, with the same bytes; they are not in the key.
    """

    kind: str
    label: str
    params: Json = field(default_factory=dict)
    inputs: Mapping[str, Stage] = field(default_factory=dict, repr=False)
    local: Mapping[str, Json] = field(default_factory=dict, repr=False)
    experiment: str = ""
    transient: bool = False  # drop the artifact once all stages that need it have committed
    byproducts: Mapping[str, Stage] = field(default_factory=dict, repr=False)
    version: int = field(init=False)
    key: str = field(init=False)
    depth: int = field(init=False)  # stages on the longest path to this one, itself included

    def __post_init__(self) -> None:
        """Copy params, local and inputs, so that the key cannot change, and compute it."""
        object.__setattr__(self, "params", plain(self.params, f"{self.kind}.params"))
        object.__setattr__(self, "local", plain(self.local, f"{self.kind}.local"))
        object.__setattr__(self, "inputs", dict(self.inputs))
        object.__setattr__(self, "version", _registered(self.kind).version)
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

    def record(self) -> dict[str, Json]:
        """Return what the manifest keeps of the stage."""
        return {**self._resolved(), "logical": self.logical, "local": self.local}

    def _resolved(self) -> dict[str, Json]:
        return {
            "kind": self.kind,
            "version": self.version,
            "params": self.params,
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
        for key in {needed.key for needed in stage.inputs.values()}:
            users[key].append(stage)
    return users


def sinks(order: Iterable[Stage]) -> list[Stage]:
    """Return the stages of `order` that are not an input of another one."""
    order = list(order)
    users = users_of(order)
    return [stage for stage in order if not users[stage.key]]


def _register(kind: str, version: int, shared: bool, function: F) -> F:
    file = inspect.getsourcefile(function) or "<unknown>"
    where = f"{file}:{function.__code__.co_firstlineno}"
    if "<locals>" in function.__qualname__:
        raise ConfigError(f"{where}: stage {kind!r} must be a function of a module's top level")
    known = _KINDS.get(kind)
    if known is not None and known.where != where:
        raise ConfigError(f"stage {kind!r} is defined twice: {known.where} and {where}")
    _KINDS[kind] = _Registered(function, version, where, shared)
    return function


def _registered(kind: str) -> _Registered:
    try:
        return _KINDS[kind]
    except KeyError:
        raise ConfigError(unknown("stage", kind, _KINDS)) from None
