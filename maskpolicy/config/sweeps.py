"""`grid` and `zip` of an experiment file: a row for each combination of values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, field
from difflib import get_close_matches
from typing import Any

from maskpolicy import schema
from maskpolicy.config import yaml_file
from maskpolicy.config.budgets import Training
from maskpolicy.config.experiment import NONE
from maskpolicy.config.row_names import named
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import DENOISING_KEYS, ROW_TRAININGS
from maskpolicy.schema import at
from maskpolicy.types import Denoising

GRID, ZIP = "grid", "zip"
MOST = 1000  # rows of an experiment
_SAME_RESULT = ("finetune.seed", *(f"{name}.checkpoint_every" for name in ROW_TRAININGS))


@dataclass(frozen=True)
class RowKeys:
    """The keys of a row's block that any policy takes, besides its label and its objective."""

    # what differs from the file's budgets in this row alone
    intermediate: dict[str, Any] = field(default_factory=dict)
    finetune: dict[str, Any] = field(default_factory=dict)  # the same; of `none` too
    fit: dict[str, Any] = field(default_factory=dict)  # the same, of a learned policy
    # lists of values by key: a row for each combination (docs/sweeps.md)
    grid: dict[str, Any] = field(default_factory=dict)
    zip: dict[str, Any] = field(default_factory=dict)  # the same, but the lists are read in step


Known = Callable[[str, str], Any]
"""known(key, place) -> the annotation of a key's values; ConfigError if a sweep cannot have it."""


@dataclass(frozen=True)
class Axis:
    """Keys that vary together, and the values that they take at each point."""

    where: str  # the place of the grid or zip
    keys: tuple[str, ...]  # with a dot for each nested block
    points: tuple[tuple[Any, ...], ...]

    def of(self, keys: Collection[str]) -> Axis:
        """Return the axis of those of its keys that are in `keys`, each point once."""
        kept = [index for index, key in enumerate(self.keys) if key in keys]
        points: list[tuple[Any, ...]] = []
        for point in self.points:
            values = tuple(point[index] for index in kept)
            if len(kept) == len(self.keys) or values not in points:
                points.append(values)
        return Axis(self.where, tuple(self.keys[index] for index in kept), tuple(points))

    def cells(self) -> Iterator[dict[str, Any]]:
        """Yield the values of each point by key."""
        return (dict(zip(self.keys, point, strict=True)) for point in self.points)


@dataclass(frozen=True)
class Row:
    """The keys of one row: its block, with one value for each key of a sweep."""

    given: Mapping[str, Any]
    place: str  # of its block
    shared: Mapping[str, Any] = field(default_factory=dict)  # keys of Denoising from the top
    swept: Mapping[str, Any] = field(default_factory=dict)  # all values of sweeps, by key
    from_top: tuple[str, ...] = ()  # those keys that a sweep at the top of the file gives


def rows(
    items: Sequence[Any], where: str, top: Mapping[str, Any] | None = None, root: str = ""
) -> list[Row]:
    """Return the rows of the blocks `items` at `where`, after `grid` and `zip` of each block.

    `top` may hold a `grid` and a `zip` for all rows, at `root`. They leave out a row that has the
    key itself or cannot have it, as `none` has no intermediate stage. Raises ConfigError for keys
    and values that no row can have, and for more than `MOST` rows.
    """
    given = [named(item, f"{where}[{i}]") for i, item in enumerate(items)]
    outer = axes(top or {}, root, _of_top)
    found: list[Row] = []
    used: set[str] = set()
    for index, block in enumerate(given):
        place = f"{where}[{index}]"
        inner = _own_axes(block, place)
        keys = {key for axis in outer for key in axis.keys if _takes(block, inner, key)}
        used |= keys
        both = [*inner, *(axis.of(keys) for axis in outer if keys & set(axis.keys))]
        count = math.prod(len(axis.points) for axis in both)
        _check_count(count, len(found), place if inner else where)
        for cells in itertools.product(*(axis.cells() for axis in both)):
            values = {key: value for cell in cells for key, value in cell.items()}
            found.append(_row(block, place, values, {k for axis in inner for k in axis.keys}))
    for axis in outer:
        for key in axis.keys:
            if key not in used:
                raise ConfigError(f"{at(axis.where, key)}: no row takes it from here: remove it")
    return found


def axes(block: Mapping[str, Any], where: str, known: Known) -> list[Axis]:
    """Return the axes of a block's `grid`, one for each key, and of its `zip`, one for all keys."""
    grid = _lists(block.get(GRID) or {}, at(where, GRID), known)
    pairs = _lists(block.get(ZIP) or {}, at(where, ZIP), known)
    for key in pairs.keys() & grid.keys():
        raise ConfigError(f"{at(at(where, ZIP), key)}: is in {GRID} too: drop one of them")
    if len({len(values) for values in pairs.values()}) > 1:
        told = ", ".join(f"{key} {len(values)}" for key, values in pairs.items())
        raise ConfigError(f"{at(where, ZIP)}: needs lists of one length, not of these: {told}")
    found = [
        Axis(at(where, GRID), (key,), tuple((value,) for value in values))
        for key, values in grid.items()
    ]
    if pairs:
        points = tuple(zip(*pairs.values(), strict=True))
        found.append(Axis(at(where, ZIP), tuple(pairs), points))
    return found


def known_to(name: str, key: str, where: str) -> Any:
    """Return the annotation of a key of the policy `name`'s block; ConfigError if it has none."""
    if (stage := _training(key)) is not None:
        if name == NONE and stage != "finetune":
            raise ConfigError(f"{where}: {NONE} has no stage and takes no such key")
        return _of_training(key, where)
    policy = None if name == NONE else find_plugin("policy", name).plugin
    fields = schema.fields_of(policy)
    objective = {} if name == NONE else schema.fields_of(Denoising)
    first, _, rest = key.partition(".")
    if key == "label":
        return str
    if key in objective:
        return objective[key].annotation
    if first not in fields:
        raise _unknown(key, {*fields, *objective, "label"}, where)
    return Any if rest else fields[first].annotation


def _of_top(key: str, where: str) -> Any:
    if _training(key) is not None:
        return _of_training(key, where)
    objective = schema.fields_of(Denoising)
    if key not in objective:
        raise _unknown(key, objective, where)
    return objective[key].annotation


def _unknown(key: str, choices: Collection[str], where: str) -> ConfigError:
    if key.startswith("general."):
        return ConfigError(f"{where}: all rows start from the same general models: remove it")
    trainings = [
        f"{stage}.{name}" for stage in ROW_TRAININGS for name in schema.fields_of(Training)
    ]
    near = get_close_matches(key, trainings, n=1)
    some = (f"{stage}.KEY" for stage in ROW_TRAININGS)
    return ConfigError(f"{where}: {unknown('key', key, {*choices, *near, *some})}")


def _training(key: str) -> str | None:
    """Return the training that a key belongs to, or None."""
    stage, dot, _ = key.partition(".")
    return stage if stage in ROW_TRAININGS and dot else None


def _of_training(key: str, where: str) -> Any:
    stage, _, name = key.partition(".")
    known = schema.fields_of(Training)
    if key in _SAME_RESULT:
        raise ConfigError(f"{where}: changes no result: remove it")
    if name not in known:
        raise ConfigError(f"{where}: {unknown(f'key of {stage}', name, known)}")
    return known[name].annotation


def _lists(found: Any, where: str, known: Known, before: str = "") -> dict[str, list[Any]]:
    """Return the values of each key, checked; a nested block stands for keys with a dot."""
    if not isinstance(found, Mapping):
        raise schema.wrong(found, "a block of keys with a list of values each", where)
    lists: dict[str, list[Any]] = {}
    for name, values in found.items():
        key, place = f"{before}{name}", at(where, name)
        if isinstance(values, Mapping):
            lists |= _lists(values, place, known, f"{key}.")
            continue
        annotation = known(key, place)
        if not isinstance(values, list | tuple):
            raise schema.wrong(values, "a list of values", place)
        if not values:
            raise ConfigError(f"{place}: is empty: give at least one value")
        for index, value in enumerate(values):
            schema.check(value, annotation, f"{place}[{index}]")
        lists[key] = list(values)
    return lists


def _own_axes(block: Mapping[str, Any], place: str) -> list[Axis]:
    def known(key: str, where: str) -> Any:
        if _states(block, key) and key not in ("name", "label"):
            raise ConfigError(f"{where}: is in the row's block too: drop one of them")
        return known_to(block["name"], key, where)

    found = axes(block, place, known)
    count = math.prod(len(axis.points) for axis in found)
    given = any("label" in axis.keys for axis in found)
    if "label" in block and (count > 1 or given):
        raise ConfigError(
            f"{at(place, 'label')}: {count} rows of its sweep would have the label "
            f"{block['label']!r}: leave it out, or give each its own with {ZIP}: {{label: [..]}}"
        )
    return found


def _states(block: Mapping[str, Any], key: str) -> bool:
    """Return whether a block holds a key; a dot leads into a nested block."""
    first, _, rest = key.partition(".")
    if first not in block or not rest:
        return first in block
    return isinstance(block[first], Mapping) and _states(block[first], rest)


def _takes(block: Mapping[str, Any], inner: Sequence[Axis], key: str) -> bool:
    """Return whether a sweep at the top reaches a row's key."""
    if _states(block, key) or any(key in axis.keys for axis in inner):
        return False
    stage = _training(key)
    if stage == "finetune" or block["name"] == NONE:
        return stage == "finetune"
    return stage != "fit" or _is_fitted(block)


def _is_fitted(block: Mapping[str, Any]) -> bool:
    """Return whether a block's policy, or one that it draws, has a stage `fit`."""
    plugin = find_plugin("policy", block["name"]).plugin
    if hooks.CHOOSE_MEMBER.of(plugin) is None:
        return hooks.FIT.of(plugin) is not None
    key = hooks.MEMBERS.name
    default = schema.fields_of(plugin)[key].default
    members = block.get(key, () if default is MISSING else default)
    return any(_is_fitted(named(member, key)) for member in members)


def _check_count(count: int, before: int, where: str) -> None:
    if before + count > MOST:
        made = f"makes {count:,} rows" if count > MOST else f"{before + count:,} rows or more"
        raise ConfigError(f"{where}: {made}, and {MOST:,} is the most: sweep over fewer values")


def _row(
    block: Mapping[str, Any], place: str, values: Mapping[str, Any], own: Collection[str]
) -> Row:
    given = deepcopy({key: value for key, value in block.items() if key not in (GRID, ZIP)})
    shared: dict[str, Any] = {}
    for key, value in values.items():
        if key in DENOISING_KEYS and key not in own:  # of the members too, if it draws them
            shared[key] = value
        else:
            yaml_file.put(given, key.split("."), deepcopy(value), place)
    swept = {key: value for key, value in values.items() if key != "label"}
    return Row(given, place, shared, swept, tuple(key for key in values if key not in own))
