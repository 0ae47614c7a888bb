"""Experiments as text: files that ship with maskpolicy, and copies in the folders of runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError, StoreError, unknown
from maskpolicy.core.files import write_file
from maskpolicy.experiment import yaml_file

WRITTEN = "experiment.yaml"  # in a run's folder
_HEAD = (
    "# The experiment of this folder as it was written: `maskpolicy run` takes this file too.\n"
    "# Relative paths in `experiment` and `keys` are looked up in `folders`; `folders`,\n"
    "# `plugins` and `file`, from which the text comes, are relative to this file.\n"
)
_NOTHING = ("", "null", "[]")
ALTERNATIVES = (  # a file has at most one of these keys
    ("intermediate_runs", "intermediate_seeds"),
    ("intermediate.steps", "intermediate.words", "intermediate.epochs"),
    ("finetune.steps", "finetune.epochs"),
    ("checkpoint_steps", "checkpoint_words"),
    ("corpus.words", "corpus.tokens"),
    ("contrast_corpus.words", "contrast_corpus.tokens"),
)


@dataclass(frozen=True)
class WrittenExperiment:
    """An experiment on a command line: the text of its file, and the overrides."""

    experiment: str  # the YAML text
    name: str
    folders: tuple[Path, ...]  # absolute: relative paths are looked up in them, in this order
    keys: tuple[str, ...] = ()  # words such as intermediate.steps=2000
    plugins: tuple[Path, ...] = ()  # absolute: files that --plugin names
    home: Path | None = None  # the folder of the run that holds this copy
    file: Path | None = None  # absolute: the user's file; None if there is none


@dataclass(frozen=True)
class KeptKeys:
    """The keys of a file that `save` wrote."""

    name: str
    experiment: str
    folders: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    file: str = ""


def read_experiment(
    path: Path, keys: Sequence[str] = (), plugins: Sequence[str | Path] = ()
) -> WrittenExperiment:
    """Return the experiment of an ordinary file, or of one that `save` wrote.

    `path` may be the name of a shipped experiment (`file_of`). `keys` and `plugins` of the
    command line follow those of the file, or replace their ALTERNATIVES. Raises ConfigError.
    """
    path = file_of(path)
    text = yaml_file.read_text(path)
    here, file = Path.cwd(), path.resolve()
    home = file.parent
    added = [Path(plugin).resolve() for plugin in plugins]
    kept = _kept(text, f"{path}: ")
    if kept is None:
        folders = _distinct(path.absolute().parent, home, here)  # a link has two homes
        return WrittenExperiment(text, path.stem, folders, tuple(keys), tuple(added), file=file)
    new = () if kept.keys[len(kept.keys) - len(keys) :] == tuple(keys) else tuple(keys)
    return WrittenExperiment(
        kept.experiment,
        kept.name,
        _distinct(*((home / name).resolve() for name in kept.folders), *([here] if new else [])),
        (*(key for key in kept.keys if not _is_replaced(key, new)), *new),
        _distinct(*((home / name).resolve() for name in kept.plugins), *added),
        path.parent,
        (home / kept.file).resolve() if kept.file else None,
    )


def _is_replaced(key: str, new: Sequence[str]) -> bool:
    """Return whether one of the `new` overrides sets an alternative of the key of another."""
    name, set_now = key.partition("=")[0], (each.partition("=") for each in new)
    names = {other for other, _, value in set_now if value not in _NOTHING}
    return any(name in group and names & {*group} - {name} for group in ALTERNATIVES)


def save(asked: WrittenExperiment, folder: Path) -> None:
    """Write an experiment to the folder of its run.

    Paths are relative to that folder, so both can move together. Raises StoreError if the folder
    holds a file of that name from elsewhere.
    """
    path = folder / WRITTEN
    if path.exists() and not (is_saved(folder) or is_lost(folder)):
        raise StoreError(f"{path}: was not written by `maskpolicy run`: choose another --out")
    start = folder.resolve()
    values = {
        "name": asked.name,
        "folders": [os.path.relpath(place, start) for place in asked.folders],
        "plugins": [os.path.relpath(plugin, start) for plugin in asked.plugins],
        **({"file": os.path.relpath(asked.file, start)} if asked.file else {}),
        "keys": list(asked.keys),
        "experiment": asked.experiment,
    }
    write_file(path, f"{_HEAD}{_dumped(values)}".encode())


def is_saved(folder: Path) -> bool:
    """Return whether a folder holds the experiment of a run; raises ConfigError for bad YAML."""
    return _saved(folder) is not None


def is_lost(folder: Path) -> bool:
    """Return whether a loss of power left an empty file, or zeros, for a run's experiment."""
    path = folder / WRITTEN
    return path.is_file() and not path.read_bytes().strip(b"\0")


def other_file(folder: Path, asked: WrittenExperiment) -> Path | None:
    """Return the file of another experiment whose run is in a folder, or None.

    An edited experiment is the same one, and so is one whose file was moved. The same text in
    another file is another one: relative paths may name other data there. That of a dict has only
    the file in the folder, and is another one than that of any file.
    Raises ConfigError for bad YAML.
    """
    kept = _saved(folder)
    if kept is None:
        return None
    if not kept.file:
        return folder / WRITTEN if asked.file else None
    file = (folder.resolve() / kept.file).resolve()
    return file if file.is_file() and file != asked.file else None


def _saved(folder: Path) -> KeptKeys | None:
    path = folder / WRITTEN
    return _kept(yaml_file.read_text(path), f"{path}: ") if path.is_file() else None


def _kept(text: str, where: str) -> KeptKeys | None:
    """Return the keys of a file that `save` wrote, or None for another; raises ConfigError."""
    import yaml

    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # the parser of ordinary files reports the error
    if not isinstance(found, dict) or "experiment" not in found:
        return None
    return KeptKeys(**schema.block(KeptKeys, found, where))


def _dumped(values: dict[str, Any]) -> str:
    """Return YAML that loads as exactly `values`, the experiment as a literal block if possible."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as literal blocks."""

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    made: str = yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    # PyYAML cannot read every character that it writes unescaped
    return made if yaml.safe_load(made) == values else yaml.safe_dump(values, sort_keys=False)


def _distinct(*paths: Path) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))


@dataclass(frozen=True)
class Shipped:
    """An experiment file of maskpolicy."""

    name: str  # for `run`: quickstart, paper/mae-lm
    summary: str  # the first line of the file, a comment
    path: Path


@cache
def shipped() -> list[Shipped]:
    """Return the experiments of maskpolicy, the small ones before those of paper/."""
    folder = Path(next(iter(import_module("maskpolicy.experiments").__path__)))
    found = []
    for path in sorted(folder.rglob("*.yaml"), key=lambda path: (path.parent, path.name)):
        name = path.relative_to(folder).with_suffix("").as_posix()
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        found.append(Shipped(name, first.removeprefix("# "), path))
    return found


def file_of(asked: Path) -> Path:
    """Return the file of `run FILE`: FILE itself, or the shipped experiment of this name.

    An existing file is preferred. Raises ConfigError for an unknown name, and for an ambiguous one:
    a YAML file in the same folder has it too.
    """
    paths = {each.name: each.path for each in shipped()}
    found = paths.get(asked.as_posix())
    if asked.suffix or (asked.exists() and not (found and asked.is_dir())):
        return asked
    beside = (asked.with_name(f"{asked.name}{ending}") for ending in (".yaml", ".yml"))
    here = [path for path in beside if path.is_file()]
    if found is None:
        name = asked.as_posix()
        if here:
            raise ConfigError(f"unknown experiment {name!r}: for the file, write {here[0]}")
        said = unknown("experiment", name, paths, (), "maskpolicy list experiments")
        raise ConfigError(f"{said}, or name a file")
    for own in here:
        if not own.samefile(found):
            raise ConfigError(
                f"{asked}: is the name of an experiment of maskpolicy, and of {own}: "
                f"write {own} for the file, or {found} for maskpolicy's"
            )
    return found


def name_of(file: Path) -> str | None:
    """Return the name of a shipped experiment by its file, or None for any other file."""
    here = file.resolve()
    return next((each.name for each in shipped() if each.path.resolve() == here), None)
