"""A run's folder: whether it is one, whether its files are all of one run, and its run.json."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.core.files import (
    PART,
    check_folder,
    claim_folder,
    from_here,
    json_or_none,
    locked,
    nearest_folder,
    part_of,
    read_json,
    remove_parts,
    sync,
    write_file,
)
from maskpolicy.core.types import Json
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.verbatim import WrittenExperiment
from maskpolicy.pipeline.graph.events import Outcome
from maskpolicy.pipeline.store import DEFAULT, manifest
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.opening import is_url

BEING_WRITTEN = ".being-written"
NAMES = (  # of all that a run leaves in its folder, as patterns
    *(verbatim.WRITTEN, "experiment.json", "run.json", "leaderboard.*", BEING_WRITTEN, f"*{PART}"),
    *("stages.json", "logs", "results", "predictions", "steps", "questions", "analyses"),
)
_TEXT = b"`maskpolicy run` was writing this folder; the same command writes it again.\n"


def check(folder: Path, asked: WrittenExperiment | None = None, store: Path | None = None) -> None:
    """Raise StoreError unless a run can write to a folder; creates nothing.

    A run writes and removes files by name. It therefore cannot use a folder with files beside its
    `store`, or with the results of another experiment than the one that is `asked`. It can use a
    run's folder whose experiment was lost in a power failure, whichever experiment that was.
    """
    check_folder(folder)
    if not folder.is_dir():
        return
    homes = (store, *store.parents) if store is not None else ()
    files = (path.absolute() for path in folder.iterdir() if not path.name.endswith(PART))
    if any(path not in homes for path in files) and not _is_of_run(folder):
        raise StoreError(f"{folder}: holds other files: choose another --out")
    if asked is not None:
        check_owner(folder, asked)


def _is_of_run(folder: Path) -> bool:
    """Return whether a run has written to a folder, perhaps one that lost power."""
    if verbatim.is_saved(folder):
        return True
    was_writing = (folder / BEING_WRITTEN).exists() and not (folder / verbatim.WRITTEN).exists()
    if not (was_writing or verbatim.is_lost(folder)):
        return False
    names = [path.name for path in folder.iterdir()]
    return all(any(fnmatch(name, pattern) for pattern in NAMES) for name in names)


def check_owner(folder: Path, asked: WrittenExperiment) -> None:
    """Raise StoreError for a folder with the results of another experiment."""
    if owner := owner_of(folder, asked):
        raise StoreError(f"{folder}: holds the results of {owner}: choose another --out")


def owner_of(folder: Path, asked: WrittenExperiment) -> str:
    """Return the name or file of another experiment whose results a folder holds, or ""."""
    file = verbatim.other_file(folder, asked)
    return "" if file is None else verbatim.name_of(file) or from_here(file)


def check_labels(folder: Path, labels: Sequence[str]) -> None:
    """Raise ConfigError if two labels differ only in case, and so do not have files of their own.

    On a disk that tells case apart, they do.
    """
    alike = Counter(label.casefold() for label in labels)
    same = sorted((each for each in labels if alike[each.casefold()] > 1), key=str.casefold)
    if same and _ignores_case(nearest_folder(folder)):
        raise ConfigError(
            f"{folder}: the labels {same[0]} and {same[1]} differ only in case, and this disk "
            "would give them the same files: change one of them"
        )


def _ignores_case(folder: Path) -> bool:
    probe = part_of(folder / "Case")
    probe.touch()
    try:
        return probe.with_name(probe.name.swapcase()).exists()
    finally:
        probe.unlink(missing_ok=True)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Mark a folder while its files are replaced; the mark stays if the block does not end.

    A second command that writes the folder waits, so all files come from one of the two.
    """
    mark = folder / BEING_WRITTEN
    claim_folder(folder)
    with locked(folder) as is_locked:
        write_file(mark, _TEXT)
        for place in (folder, *(path for path in folder.iterdir() if path.is_dir())):
            remove_parts(place, is_locked=is_locked)  # of commands that were killed
        for place in folder.glob("analyses/*/"):  # `analyze` does not lock the folder
            remove_parts(place)
        sync(folder)
        yield
        sync(folder)
        mark.unlink(missing_ok=True)


def check_whole(folder: Path) -> None:
    """Raise DataError for a folder whose files may be of two runs of the command."""
    if (folder / BEING_WRITTEN).exists():
        raise DataError(
            f"{folder}: is being written, or its command ended while it wrote: wait for the "
            "command, or run it again"
        )


RECORD = "run.json"


def save_record(
    folder: Path,
    experiment: str,
    timing: Json,
    outcomes: Iterable[Outcome],
    store: Store,
    tuned: Sequence[Json] = (),
    policies: Mapping[str, str] | None = None,
) -> None:
    """Write run.json: `timing`, the machine, each stage's seconds, and what `tuned` rows chose.

    `policies` has the first sentence of each policy's docstring. The path of the store is relative
    to the folder, so that both can be moved together; the URL of a bucket stays as it is.
    """
    from maskpolicy.core import hardware

    here = manifest.surroundings()
    place = store.place
    if not is_url(place):
        place = os.path.relpath(place, folder)
        if (folder / place).resolve() != (root := Path(store.place).resolve()):
            place = os.path.relpath(root, folder.resolve())  # a link above the folder leads away
    record = {
        "experiment": experiment,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **timing,
        "store": place,
        "hardware": hardware.describe(),
        **here,
        **({"tuned": list(tuned)} if tuned else {}),
        "policies": dict(policies or {}),
        "stages": [_stage(outcome, store.recall(outcome.stage.key), here) for outcome in outcomes],
    }
    write_file(folder / RECORD, f"{json.dumps(record, indent=1)}\n".encode())


def read_record(folder: Path) -> dict[str, Json] | None:
    """Return the contents of run.json, or None if there is no such file; raises DataError."""
    path = folder / RECORD
    if not path.is_file():
        return None
    record = read_json(path)
    if not isinstance(record, dict):
        raise foreign_record(folder)
    return record


def policy_summaries(folder: Path) -> dict[str, str]:
    """Return the first sentence of each policy's docstring, by its name, as far as it is known."""
    record = json_or_none(folder / RECORD)
    found = record.get("policies") if isinstance(record, dict) else None
    known = found.items() if isinstance(found, dict) else ()
    return {str(name): str(sentence) for name, sentence in known}


def versions_of(folder: Path) -> dict[str, dict[str, str]]:
    """Return the versions that each stage of a run was computed with, by key, as far as known."""
    record = json_or_none(folder / RECORD)
    found: dict[str, dict[str, str]] = {}
    stages = record.get("stages") if isinstance(record, dict) else None
    for stage in stages if isinstance(stages, list) else ():
        made = stage.get("made_with") if isinstance(stage, dict) else None
        versions = (made if isinstance(made, dict) else record).get("versions")
        if isinstance(stage, dict) and isinstance(versions, dict):
            found[str(stage.get("key"))] = {str(k): str(v)[:40] for k, v in versions.items()}
    return found


def stage_keys(folder: Path) -> list[str]:
    """Return the keys of the stages of the last command and of the results of earlier ones.

    Raises DataError if the folder holds no run.
    """
    earlier = json_or_none(folder / "stages.json") or {}
    try:
        last = [str(stage["key"]) for stage in (read_record(folder) or {})["stages"]]
        return list(dict.fromkeys([*last, *earlier]))
    except (KeyError, TypeError):
        raise DataError(
            f"{folder}: holds no finished run: name a folder that `run` wrote"
        ) from None


def foreign_record(folder: Path) -> DataError:
    """Return the error for a run.json that was not written by `save_record`."""
    return DataError(f"{folder / RECORD}: not written by `maskpolicy run`: remove it")


def store_of(folder: Path) -> str | None:
    """Return the store of a run: a URL, or the path of a folder.

    None if run.json names no store, or a folder that no longer exists.

    Raises DataError for a broken run.json.
    """
    named = (read_record(folder) or {}).get("store")
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
            f"{run / RECORD}: names the store {named}, outside of the run and the working "
            f"directory: if you trust it, add --store {shlex.quote(named)}"
        )
    return DEFAULT


def _stage(outcome: Outcome, stored: Json | None, here: Json) -> Json:
    """Return a stage's entry; `made_with` has versions and commit if they differ from `here`."""
    stored = stored or here
    made_with = {key: stored[key] for key in ("versions", "commit")}
    is_ours = made_with == {key: here[key] for key in made_with}
    return {
        "kind": outcome.stage.kind,
        "label": outcome.stage.label,
        "key": outcome.stage.key,
        "seconds": outcome.seconds or stored.get("seconds", 0.0),
        "from_store": outcome.hit,
        "error": outcome.error,
        "made_with": None if is_ours else made_with,
    }
