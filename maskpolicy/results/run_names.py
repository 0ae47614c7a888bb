"""Names by which several runs are told apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from maskpolicy.results.cell import Run


def named_apart(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs with names of their own, such as paper/zsre and findings/zsre."""
    names = names_of([run.folder for run in runs])
    return tuple(
        replace(run, alias="" if name == run.folder.resolve().name else name)
        for run, name in zip(runs, names, strict=True)
    )


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return for each folder its name, and as much before it as only that folder has."""
    resolved = [folder.resolve() for folder in folders]
    return [_ending(folder, {*resolved} - {folder}) for folder in resolved]


def _ending(folder: Path, others: Collection[Path]) -> str:
    parts = folder.parts
    counts = range(1, len(parts))
    endings = (parts[-count:] for count in counts)
    own = (each for each in endings if all(other.parts[-len(each) :] != each for other in others))
    return Path(*next(own, parts)).as_posix()
