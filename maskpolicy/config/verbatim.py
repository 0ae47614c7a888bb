"""An experiment as the user wrote it; `run` keeps it in its folder and can run it from there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from maskpolicy import schema
from maskpolicy.config import shipped, yaml_file
from maskpolicy.errors import StoreError
from maskpolicy.files import write_file

WRITTEN = "experiment.yaml"  # in a run's folder
_HEAD = (
    "# The experiment of this folder as it was written: `maskpolicy run` takes this file too.\n"
    "# Relative paths in `experiment` and `keys` are looked up in `folders`; `folders`,\n"
    "# `plugins` and `file`, from which the text comes, are relative to this file.\n"
)


@dataclass(frozen=True)
class WrittenExperiment:
    """An experiment as a command line states it: the text of its file, and the overrides."""

    experiment: str  # the YAML text
    name: str
    folders: tuple[Path, ...]  # absolute: relative paths are looked up in them, in this order
    keys: tuple[str, ...] = ()  # words such as intermediate.steps=2000
    plugins: tuple[Path, ...] = ()  # absolute: files that --plugin names
    home: Path | None = None  # the folder of the run that kept it
    file: Path | None = None  # absolute: the user's file; None if there is none

    def without_file(self) -> WrittenExperiment:
        """Return the experiment without its file, whose folder holds nothing of the user's."""
        return replace(self, file=None, folders=(Path.cwd(),))


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

    `path` may be the name of a shipped experiment (`shipped.file_of`). `keys` and `plugins` of the
    command line are added after those of the file. Raises ConfigError.
    """
    path = shipped.file_of(path)
    text = yaml_file.read_text(path)
    here, home = Path.cwd(), path.resolve().parent
    named = tuple(Path(plugin).resolve() for plugin in plugins)
    kept = _kept(text, f"{path}: ")
    if kept is None:
        folders = _distinct(home, here)
        file = path.resolve()
        return WrittenExperiment(text, path.stem, folders, tuple(keys), named, file=file)
    new = () if kept.keys[len(kept.keys) - len(keys) :] == tuple(keys) else tuple(keys)
    looked_up = [(home / folder).resolve() for folder in kept.folders]
    known = [(home / plugin).resolve() for plugin in kept.plugins]
    return WrittenExperiment(
        kept.experiment,
        kept.name,
        _distinct(*looked_up, *([here] if new else [])),
        (*kept.keys, *new),
        _distinct(*known, *named),
        path.parent,
        (home / kept.file).resolve() if kept.file else None,
    )


def save(asked: WrittenExperiment, folder: Path) -> None:
    """Keep an experiment in the folder of its run.

    Paths are relative to that folder, so that both can move together. Raises StoreError if the
    folder holds another file of that name.
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
    """Return whether a loss of power left only the name of a run's experiment, or zeros."""
    path = folder / WRITTEN
    return path.is_file() and not path.read_bytes().strip(b"\0")


def other_file(folder: Path, asked: WrittenExperiment) -> Path | None:
    """Return the file of another experiment whose run a folder holds; None if there is none.

    An experiment that was edited is the same one, and so is one whose file was moved or copied
    unchanged. Raises ConfigError for bad YAML.
    """
    kept = _saved(folder)
    if kept is None or not kept.file or kept.experiment == asked.experiment:
        return None
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
    """Return YAML that loads to exactly `values`, with the experiment as a block if possible."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes texts of several lines as literal blocks."""

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    made: str = yaml.dump(values, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    # PyYAML does not read back every character that it writes unescaped
    return made if yaml.safe_load(made) == values else yaml.safe_dump(values, sort_keys=False)


def _distinct(*paths: Path) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))
