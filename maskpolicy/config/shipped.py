"""The experiments that come with maskpolicy, which `run` and `plan` find by name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from maskpolicy.errors import ConfigError, unknown


@dataclass(frozen=True)
class Shipped:
    """An experiment file of maskpolicy's own."""

    name: str  # as `run` takes it: quickstart, paper/mae-lm
    summary: str  # the first line of the file, a comment
    path: Path


def listed() -> list[Shipped]:
    """Return the experiments that come with maskpolicy, the small ones before those of paper/."""
    folder = Path(next(iter(import_module("maskpolicy.experiments").__path__)))
    files = sorted(folder.rglob("*.yaml"), key=lambda path: (path.parent, path.name))
    names = [path.relative_to(folder).with_suffix("").as_posix() for path in files]
    return [Shipped(name, _summary(path), path) for name, path in zip(names, files, strict=True)]


def file_of(asked: Path) -> Path:
    """Return the file of `run FILE`: FILE itself, or the shipped experiment of this name.

    An existing file is preferred. Raises ConfigError for an unknown name, and for a name that a
    YAML file in the same folder also has, because it is ambiguous.
    """
    paths = {each.name: each.path for each in listed()}
    found = paths.get(asked.as_posix())
    if asked.suffix or (asked.exists() and not (found and asked.is_dir())):
        return asked
    beside = (asked.with_name(f"{asked.name}{ending}") for ending in (".yaml", ".yml"))
    here = [path for path in beside if path.is_file()]
    if found is None:
        name = asked.as_posix()
        if here:
            raise ConfigError(f"unknown experiment {name!r}: for the file, write {here[0]}")
        said = unknown(
            "experiment", name, paths, _meant(name, paths), "maskpolicy list experiments"
        )
        raise ConfigError(f"{said}, or name a file")
    for own in here:
        if not own.samefile(found):
            raise ConfigError(
                f"{asked}: is maskpolicy's own experiment, and {own} is here: "
                f"write {own} for the file, or {found} for maskpolicy's"
            )
    return found


def name_of(file: Path) -> str | None:
    """Return the name of the shipped experiment that a file holds, or None for any other file."""
    here = file.resolve()
    return next((each.name for each in listed() if each.path.resolve() == here), None)


def _meant(asked: str, names: Collection[str]) -> list[str]:
    """Return the names that are most like `asked`, whatever folders they are in."""
    last = {name: name.rpartition("/")[2] for name in names}
    near = get_close_matches(asked, sorted({*last.values()}), n=1)
    return [name for name in names if last[name] in near and "/" not in asked]


def _summary(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return lines[0].removeprefix("# ") if lines[0].startswith("#") else ""
