"""Cache for analyses: compute a stage or an analysis unless its result is in the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from maskpolicy import analyses as findings
from maskpolicy.analyses import Analysis, Findings
from maskpolicy.core.errors import ConfigError, MaskpolicyError, PluginError
from maskpolicy.core.files import sha256, weights_in
from maskpolicy.core.keys import digest, plain, to_json
from maskpolicy.core.types import Json
from maskpolicy.leaderboard.results.cell import Run, named_apart
from maskpolicy.pipeline.graph.calls import Call, answer
from maskpolicy.pipeline.graph.nodes import Local, version_of
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Artifact, Store, available
from maskpolicy.plugins import changed_files
from maskpolicy.plugins.discovery import code_digests, find_plugin
from maskpolicy.plugins.registry import cause_in, is_builtin

_FOUND = "findings.json"
_READ = ("cloze", "evaluate", "general-loss", "masked-sample", "probe", "tags")  # with `derive`


class Reports(Protocol):
    """Shows what an analysis computes."""

    def begin(self, key: str, name: str) -> None:
        """Show a stage, unless it is shown already."""

    def report(self, key: str, done: int, total: int, note: str) -> None:
        """Show that `done` of `total` units of a stage are finished."""

    def end(self, key: str) -> None:
        """Show a stage no longer."""


_reports: ContextVar[Reports | None] = ContextVar("reports", default=None)


@contextmanager
def reporting(reports: Reports) -> Iterator[None]:
    """Let `derive` report what it computes within the block.

    A context variable, because `Analysis.analyse` has no parameter for it.
    """
    before = _reports.set(reports)
    try:
        yield
    finally:
        _reports.reset(before)


def lacking(store: Store, what: str) -> str:
    """Return what to do about something of a finished run that the store does not have."""
    return (
        f"{what} is not in the store {store.place}: name the store of that run with --store, or "
        "run its experiment again"
    )


def derive(
    store: Store,
    kind: str,
    label: str,
    params: object,
    inputs: Mapping[str, str],
    local: Local | None = None,
    files: Mapping[Path, str] = MappingProxyType({}),
) -> Artifact:
    """Return the artifact of a stage, and compute it if the store does not have it.

    `params` is the dataclass of the stage's kind; `inputs` maps names to the keys of stored
    artifacts; `local` is not part of the stage's key. Raises StoreError if an input is missing, and
    DataError if one of the data `files`, given with their digests in the key, was changed.
    """
    local = local or Local()
    resolved = {
        "kind": kind,
        "version": version_of(kind),
        "params": to_json(params, kind),
        "inputs": dict(inputs),
    }
    key, record = digest(resolved), {**resolved, **_logical(kind, label), "local": to_json(local)}
    if (known := store.get(key)) is not None:
        return known
    call = Call(
        key=key,
        name=f"{kind} {label}".strip(),
        record=record,
        module="",  # the call is not sent
        local=local,
        files=files,
        store=store.place,
    )
    # another command may compute it
    with store.lock(key, wait=True), _shown(key, call.name) as advance:
        answered = answer(call, store, advance)
    if answered.error is not None:
        raise answered.error
    for name in answered.lost:
        available(store, inputs[name], name)
    return available(store, key, label)


@contextmanager
def _shown(key: str, name: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show a stage while the block runs; yields the function that takes its progress."""
    reports = _reports.get()
    if reports is None:
        yield lambda done, total, note: None
        return
    reports.begin(key, name)
    try:
        yield partial(reports.report, key)
    finally:
        reports.end(key)


def analyse(name: str, analysis: Analysis, runs: Sequence[Run], store: Store) -> Findings:
    """Return the findings of an analysis, from the store if it has them.

    Runs with equal names get different ones. Findings that are not partial are stored under a key
    of the analysis and of all results. Raises PluginError if a user's analysis fails.
    """
    runs = named_apart(runs)
    identity = _identity(name, analysis, runs)
    key = digest(identity)
    with store.lock(key, wait=True):  # another command may make the same analysis
        if (known := store.get(key)) is not None:
            document = json.loads((known.path / _FOUND).read_text(encoding="utf-8"))
            return findings.from_json(document)
        found, document = _computed(name, analysis, runs, store)
        if not found.partial:
            changed_files.compare_files(find_plugin("analysis", name), identity["code"])
            about = {"kind": manifest.FINDINGS, "version": 1, "params": {"name": name}}
            record = {**about, manifest.KEYED: identity, "inputs": {}, "local": {}}
            with store.write(key, {**record, **_logical("analysis", name)}) as out:
                text = json.dumps(document, ensure_ascii=False)
                (out / _FOUND).write_text(text, encoding="utf-8")
        return found


def _computed(
    name: str, analysis: Analysis, runs: Sequence[Run], store: Store
) -> tuple[Findings, Json]:
    """Return findings and their JSON; raises PluginError for a fault of a user's analysis."""
    try:
        found = analysis.analyse(runs, store)
        if not isinstance(found, Findings):
            raise TypeError(f"`analyse` returned {type(found).__name__}, not Findings")
        document = findings.to_json(found, name)
    except Exception as error:
        if isinstance(error, MaskpolicyError) or is_builtin(type(analysis)):
            raise
        why = cause_in(analysis, error)
        raise PluginError(f"analyze {name}: the analysis failed: {why}") from error
    try:
        return found, plain(document)
    except ConfigError as error:
        raise PluginError(f"analyze {name}: its findings: {error}") from None


def _logical(kind: str, label: str) -> Json:
    return {"logical": {"experiment": "", "kind": kind, "label": label}}


def _identity(name: str, analysis: Any, runs: Sequence[Run]) -> Json:
    """Return all that findings depend on: the analysis, stages, every result and prediction."""
    entry = find_plugin("analysis", name)
    return {
        "kind": "analysis",
        "name": name,
        "version": entry.facts.get("version", 1),
        "settings": plain(analysis) if is_dataclass(analysis) else {},
        "code": code_digests(entry),
        "stages": {kind: version_of(kind) for kind in _READ},
        "runs": list(map(_run, runs)),
    }


def _run(run: Run) -> Json:
    digests: list[str] = []
    for result in (*run.results, *run.early):
        about = result.to_json()
        del about["audit"]  # not used by any analysis
        digests.append(digest(about))
    answers = sorted((run.folder / "predictions").glob("*.jsonl"))
    predictions = {path.name: sha256(path) for path in answers}
    rows = {"policies": list(run.policies), "tasks": list(run.tasks), "baseline": run.baseline}
    files = weights_in(run.folder)  # of a model's folder
    weights = {path.relative_to(run.folder).as_posix(): sha256(path) for path in files}
    found = {"results": digests, "predictions": predictions, "weights": weights}
    return {"name": run.name, **rows, **found}
