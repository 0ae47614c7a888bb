"""Write and read run.json: times, machine and versions, which results do not contain."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.core.files import read_json, write_file
from maskpolicy.core.types import Json
from maskpolicy.leaderboard.results.cell import Result
from maskpolicy.pipeline.graph.events import Outcome
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.opening import is_url
from maskpolicy.pipeline.store.place import DEFAULT

NAME = "run.json"


def save(
    folder: Path,
    experiment: str,
    timing: Json,
    outcomes: Iterable[Outcome],
    store: Store,
    results: Iterable[Result] = (),
    policies: Mapping[str, str] | None = None,
) -> None:
    """Write run.json: `timing`, the machine, each stage's seconds, and what tuned rows chose.

    `policies` has the first sentence of each policy's docstring.

    The path of the store is relative to the folder, so that both can be moved together; the URL of
    a bucket stays as it is.
    """
    from maskpolicy.core import hardware

    here = manifest.surroundings()
    record = {
        "experiment": experiment,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **timing,
        "store": store.place if is_url(store.place) else os.path.relpath(store.place, folder),
        "hardware": hardware.describe(),
        **here,
        **({"tuned": tuned} if (tuned := _tuned(results)) else {}),
        "policies": dict(policies or {}),
        "stages": [_stage(outcome, store.recall(outcome.stage.key), here) for outcome in outcomes],
    }
    write_file(folder / NAME, f"{json.dumps(record, indent=1)}\n".encode())


def read(folder: Path) -> dict[str, Json] | None:
    """Return the contents of run.json, or None if there is no such file; raises DataError."""
    path = folder / NAME
    if not path.is_file():
        return None
    record = read_json(path)
    if not isinstance(record, dict):
        raise foreign(folder)
    return record


def summaries(folder: Path) -> dict[str, str]:
    """Return the first sentence of each policy's docstring, by its name, as far as it is known."""
    try:
        found = (read(folder) or {}).get("policies")
    except DataError:  # a damaged run.json; the results do not need it
        return {}
    known = found.items() if isinstance(found, dict) else ()
    return {str(name): str(sentence) for name, sentence in known}


def keys(folder: Path) -> list[str]:
    """Return the keys of the stages of a run; raises DataError if the folder holds no run."""
    try:
        return [str(stage["key"]) for stage in (read(folder) or {})["stages"]]
    except (KeyError, TypeError):
        raise DataError(
            f"{folder}: holds no finished run: name a folder that `run` wrote"
        ) from None


def foreign(folder: Path) -> DataError:
    """Return the error for a run.json that was not written by `save`."""
    return DataError(f"{folder / NAME}: not written by `maskpolicy run`: remove it")


def store_of(folder: Path) -> str | None:
    """Return the store of a run: a URL, or the path of a folder.

    None if run.json names no store, or a folder that no longer exists.

    Raises DataError for a broken run.json.
    """
    named = (read(folder) or {}).get("store")
    if not isinstance(named, str):
        return None
    if is_url(named):
        return named
    store = folder / named
    return str(store.resolve()) if store.is_dir() else None


def trusted_store(given: str | None, runs: Iterable[Path]) -> str:
    """Return the store of finished runs: `given`, or the first one that a run names.

    A run made by somebody else must not decide which folders are read, or which addresses are
    called. A store that it names must therefore lie in its own folder, in the working directory, or
    in the default store; raises ConfigError for any other.
    """
    if given is not None:
        return given
    for run in runs:
        named = store_of(run)
        if named is None:
            continue
        homes = (run.resolve(), Path.cwd().resolve(), Path(DEFAULT).resolve())
        is_near = not is_url(named) and any(Path(named).is_relative_to(home) for home in homes)
        if is_near:
            return named
        raise ConfigError(
            f"{run / NAME}: names the store {named}, outside of the run and the working "
            f"directory: if you trust it, add --store {shlex.quote(named)}"
        )
    return DEFAULT


def _stage(outcome: Outcome, stored: Json | None, here: Json) -> Json:
    stored = stored or here
    return {
        "kind": outcome.stage.kind,
        "label": outcome.stage.label,
        "key": outcome.stage.key,
        "seconds": outcome.seconds or stored.get("seconds", 0.0),
        "from_store": outcome.hit,
        "error": outcome.error,
        "made_with": _other(stored, here),
    }


def _tuned(results: Iterable[Result]) -> list[Json]:
    """Return what each tuned row chose, once for each choice."""
    found: dict[tuple[str, ...], Json] = {}
    for one in results:
        if one.tuning is not None:
            place = (one.policy, *one.tuning["tasks"])
            found[place] = {"row": one.policy, "values": one.chosen, **one.tuning}
    return list(found.values())


def _other(stored: Json, here: Json) -> Json:
    """Return the versions and commit of an artifact if they differ from ours, else None."""
    facts = {key: stored[key] for key in ("versions", "commit")}
    return None if facts == {key: here[key] for key in facts} else facts
