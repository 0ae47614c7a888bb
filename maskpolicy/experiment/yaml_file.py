"""Read YAML files and `key=value` overrides as plain values; `${other.key}` is another key's."""

from __future__ import annotations

import glob
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import with_home
from maskpolicy.core.schema import at, wrong

_BYTES = 1_000_000  # of a file; ours have at most some thousand
_LONGEST = 40  # characters of a value in a message
_DEPTH = 50  # blocks and lists within each other
_VALUES = 100_000  # with anchors and aliases written out
_INNERMOST = re.compile(r"\$\{[^${}]*\}")  # ${key}, with no other one in it
_INTEGER = 2**63  # integers are below this
# numbers only in YAML 1.1: 0100 is 64 there, 1:40 is 100, 1_000 is 1000, 0b11 is 3
_OLD_NUMBER = re.compile(
    r"[-+]?(?:0[0-9_]+|0b[01_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+)"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*"
    r"|[-+]0x[0-9a-fA-F_]+|0x(?=.*_)[0-9a-fA-F_]+"
    r"|[-+]?(?=.*_)\.?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?"
    r"|[-+]\.[0-9]+(?:[eE][-+]?[0-9]+)?|\.[0-9]+[eE][-+]?[0-9]+"
)
# all but tab and line breaks, and what turns the direction of writing: messages would send them to
# terminals
CONTROLS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def read_text(path: Path) -> str:
    """Return the text of a YAML file; raises ConfigError if it cannot be read as UTF-8."""
    if path.suffix == ".py":
        raise ConfigError(
            f"{path}: is Python: name an experiment file in YAML; --plugin is for plugins"
        )
    try:
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "not a regular file"
            raise ConfigError(f"{path}: is {what}: name a YAML file")
        if path.stat().st_size > _BYTES:
            raise ConfigError(
                f"{path}: has more than {_BYTES:,} bytes: name an experiment file in YAML"
            )
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        said = f"{path}: not UTF-8 text (byte {error.start}): save it as UTF-8"
        raise ConfigError(said) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{path}: cannot be read: {reason}; name an experiment file, or one that "
            "`maskpolicy list experiments` names"
        ) from None


def values(text: str, where: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the keys of YAML `text` after the overrides; raises ConfigError with `where`."""
    place = where.removesuffix(": ")
    made = _parse(text, place)
    if not isinstance(made, dict) or not made:
        raise ConfigError(f"{place}: must be a block of keys such as 'model: mini'")
    for override in overrides:
        _apply(made, override)
    return _resolved(made, where)


def assignments(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the keys that `key=value` overrides set, for commands without an experiment file."""
    values: dict[str, Any] = {}
    for override in overrides:
        _apply(values, override)
    return _resolved(values, "")


def _resolved(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return checked values with OmegaConf's interpolations, `${intermediate.steps}`, in place."""
    _spell_on(values)
    if not _check_values(values, where):
        return values
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        resolved: Any = OmegaConf.to_container(OmegaConf.create(values), resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        key = getattr(error, "full_key", None)
        place = at(where, key) if key else where.rstrip(": ")
        raise ConfigError(f"{place}: {_first(error)}") from None
    return dict(resolved)


def _spell_on(value: Any, name: Any = "") -> None:
    """Give the key `on` of each block `tune` its name back: YAML 1.1 reads it as true."""
    if isinstance(value, list):
        for item in value:
            _spell_on(item)
    elif isinstance(value, dict):
        if name == "tune" and True in value:
            items = [("on" if key is True else key, item) for key, item in value.items()]
            value.clear()
            value.update(items)
        for key, item in value.items():
            _spell_on(item, key)


def _parse(text: str, where: str) -> Any:
    """Return the value of YAML `text`; numbers such as 1e-3 are floats."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    # OmegaConf's loader passes on any error of PyYAML's constructors, e.g. for the tag !!int x
    broken = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)
    try:
        _check_events(text, where)
        config = OmegaConf.load(io.StringIO(text), max_yaml_expanded_nodes=_VALUES)
        return OmegaConf.to_container(config, resolve=False)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark and not where.startswith("override") else ""
        reason = getattr(error, "problem", None) or _first(error)
        raise ConfigError(f"{where}{line}: not valid YAML: {reason}") from None
    except AssertionError:  # OmegaConf's, for a file that holds nothing but a text in quotes
        return None
    except (OmegaConfBaseException, *broken) as error:
        raise ConfigError(f"{where}: not valid YAML: {_first(error)}") from None


def _check_events(text: str, where: str) -> None:
    """Raise ConfigError for YAML that is nested too deeply, and for numbers only in YAML 1.1.

    PyYAML's parser yields events without recursion, but the code that builds values recurses in C.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEPTH:
            line = event.start_mark.line + 1
            raise ConfigError(f"{where}: line {line}: nested deeper than {_DEPTH} blocks")
        is_plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]  # no quotes, no tag
        if is_plain and _OLD_NUMBER.fullmatch(event.value):
            place = f"{where}: line {event.start_mark.line + 1}: {event.value[:_LONGEST]}"
            raise ConfigError(
                f"{place}: YAML 1.1 and 1.2 read it as different values: write a number "
                "in decimal, a digit first, without leading zeros, : and _, or quote the text"
            )


def _apply(values: dict[str, Any], override: str) -> None:
    """Apply one override `a.b.0.c=value`, or `a.b[0].c=value`, in place; the value is YAML."""
    written, sign, text = override.partition("=")
    key = re.sub(r"(?<=.)\[([0-9]+)\](?=\.|\[|$)", r".\1", written)
    where = f"override {override!r}"
    if not sign or not key or not all(key.split(".")):
        raise ConfigError(
            f"{where}: write key=value, without blanks around =, e.g. intermediate.steps=2000"
        )
    if text.strip() in ("|", ">") or text.lstrip().startswith("#"):  # no empty block, no comment
        text = "'{}'".format(text.strip().replace("'", "''"))
    # parsed as the value of a key, so that a bare word or number means the same as in the file
    wrapped = _parse(f"value: {text}", where)
    if not isinstance(wrapped, dict) or list(wrapped) != ["value"]:
        raise ConfigError(f"{where}: the value must be one YAML value")
    put(values, key.split("."), wrapped["value"], where)


def put(values: dict[str, Any], path: Sequence[str], value: Any, where: str) -> None:
    """Set the value at a path of keys and indices in place, adding missing blocks.

    A bare name on the way becomes `{name: NAME}`; any other value raises ConfigError at `where`.
    """
    inner: Any = values
    for part, after in zip(path, (*path[1:], None), strict=True):
        if not isinstance(inner, list | dict):
            raise wrong(inner, "a block of keys", where)
        key: Any = _index(inner, part, where) if isinstance(inner, list) else part
        if after is None:
            inner[key] = value
        elif isinstance(inner, dict) and inner.get(key) is None:
            inner[key] = {}
        elif isinstance(inner[key], str):
            inner[key] = {"name": inner[key]}
        inner = inner[key]


def _index(items: list[Any], part: str, where: str) -> int:
    if not part.isascii() or not part.isdigit() or int(part) >= len(items):
        names = [item.get("name") if isinstance(item, dict) else item for item in items]
        meant = f": write {names.index(part)} for {part}" if part in names else ""
        raise ConfigError(
            f"{where}: {part!r} is not an index (from 0) of a list of {len(items)}{meant}"
        )
    return int(part)


def _check_values(value: Any, where: str) -> bool:
    """Return whether values hold an interpolation; raises ConfigError for forbidden values."""
    refers = False
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ConfigError(f"{at(where, key)}: a key must be text: put it in quotes")
            refers |= _check_values(key, where) or _check_values(item, at(where, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            refers |= _check_values(item, f"{where}[{index}]")
    elif isinstance(value, str):
        place = where.rstrip(": ")
        refers = "${" in value
        inner = value
        while (found := _INNERMOST.search(inner)) is not None:
            if ":" in found[0]:
                raise ConfigError(
                    f"{place}: {found[0]} calls a function: only keys can be named, as in "
                    "${intermediate.steps}"
                )
            inner = inner.replace(found[0], "")
        if value == "???":
            raise ConfigError(f"{place}: has no value: replace '???'")
        if CONTROLS.search(value):
            raise ConfigError(f"{place}: holds a control character or a lone surrogate: remove it")
    elif isinstance(value, int) and abs(value) >= _INTEGER:
        raise ConfigError(f"{where.rstrip(': ')}: an integer must be below 2^63")
    elif value is not None and not isinstance(value, (bool, int, float)):
        raise ConfigError(f"{where}: a value of type {type(value).__name__} is not allowed")
    return refers


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def locate(text: str, folders: Sequence[Path]) -> Path | None:
    """Return the absolute path of an existing file or folder, or None.

    It is looked up in `folders`, then in the working directory.
    """
    with suppress(OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
        path = Path(text).expanduser()
        for candidate in (folder / path for folder in (*folders, Path.cwd())):
            if candidate.exists():
                return _without_links(candidate)
    return None


def _without_links(path: Path) -> Path:
    """Return the resolved path; of a link whose own ending says the format, only its folder's."""
    real = path.resolve()
    is_named = real.is_dir() or real.suffix in (path.suffix, ".gz")  # unlike a blob of the Hub
    return real if is_named else path.parent.resolve() / path.name


def matches(pattern: str, folders: Sequence[Path]) -> list[Path]:
    """Return the files that match a path or a pattern with *, as sorted absolute paths."""
    found = locate(pattern, folders)
    if found is not None:
        return [found] if found.is_file() else []
    pattern = with_home(pattern)
    for start in (*folders, Path.cwd()):
        # not Path.glob: it raises an error for absolute patterns
        hits = glob.glob(pattern, root_dir=start, recursive=True)  # noqa: PTH207
        files = sorted(_without_links(start / hit) for hit in hits if (start / hit).is_file())
        if files:
            return files
    return []
