"""`grid`, `zip` and `tune` of an experiment file: rows, and what each row chooses from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, field, replace
from functools import partial
from typing import Annotated, Any

from maskpolicy import schema
from maskpolicy.config import yaml_file
from maskpolicy.config.axes import (
    GRID,
    TUNE,
    ZIP,
    Axis,
    axes,
    known_to,
    of_top,
    of_tuned_top,
    training_of,
    tuned,
)
from maskpolicy.config.experiment import NONE
from maskpolicy.config.row_names import named
from maskpolicy.errors import ConfigError
from maskpolicy.keys import canonical
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import DENOISING_KEYS
from maskpolicy.schema import Stated, at

MOST = 1000  # rows of an experiment, with the candidates of those that are tuned


@dataclass(frozen=True)
class RowKeys:
    """The keys of a row's block that any policy takes, besides its label and its objective."""

    # what differs from the file's budgets in this row alone
    intermediate: dict[str, Any] = field(default_factory=dict)
    finetune: dict[str, Any] = field(default_factory=dict)  # the same; of `none` too
    fit: dict[str, Any] = field(default_factory=dict)  # the same, of a learned policy
    # what differs from the file's corpus in this row alone: key by key, and `mix` text by text
    corpus: Annotated[dict[str, Any], Stated("a name or a block of keys")] = field(
        default_factory=dict
    )
    # lists of values by key: a row for each combination (docs/sweeps.md)
    grid: dict[str, Any] = field(default_factory=dict)
    zip: dict[str, Any] = field(default_factory=dict)  # the same, but the lists are read in step
    # lists of values by key: one row, with the values that are best on dev (docs/sweeps.md)
    tune: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """The keys of one row: its block, with one value for each key of a sweep."""

    given: Mapping[str, Any]
    place: str  # of its block
    shared: Mapping[str, Any] = field(default_factory=dict)  # keys of Denoising from the top
    swept: Mapping[str, Any] = field(default_factory=dict)  # all values of sweeps, by key
    from_top: tuple[str, ...] = ()  # those keys that a sweep at the top of the file gives
    tune: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # values to choose from
    own_tune: tuple[str, ...] = ()  # those keys of `tune` that the block gives
    written: Mapping[str, Any] = field(default_factory=dict)  # the block as the file has it
    places: Mapping[str, str] = field(default_factory=dict)  # of the keys of sweeps and of `tune`

    def candidates(self) -> Iterator[Row]:
        """Yield the row with each combination of the values that it is to choose from."""
        for values in itertools.product(*self.tune.values()):
            given = deepcopy({**self.given})
            chosen = dict(zip(self.tune, values, strict=True))
            for key, value in chosen.items():
                yaml_file.put(given, key.split("."), deepcopy(value), self.place)
            yield replace(self, given=given, swept={**self.swept, **chosen}, tune={})

    def placed(self, error: ConfigError) -> ConfigError:
        """Return an error of this row with the values of sweeps that make it.

        A key that only a sweep gives is named where the sweep has it.
        """
        if not self.swept:
            return error
        said, before = str(error), f"{self.place}."
        key, colon, rest = said.removeprefix(before).partition(": ")
        for swept in self.swept:
            is_made = swept.startswith(f"{key}.") and not _states(self.written, key)
            is_in = key == swept or key.startswith((f"{swept}.", f"{swept}["))
            if said.startswith(before) and (is_made or is_in):
                said = f"{self.places[swept]}{key[len(swept) :]}{colon}{rest}"
                break
        values = ", ".join(f"{name}: {canonical(value)}" for name, value in self.swept.items())
        return ConfigError(f"{said} (in the row of {values})")


def rows(
    items: Sequence[Any], where: str, top: Mapping[str, Any] | None = None, root: str = ""
) -> list[Row]:
    """Return the rows of the blocks `items` at `where`, after `grid` and `zip` of each block.

    `top` may hold a `grid`, a `zip` and a `tune` for all rows, at `root`. They leave out a row that
    has the key itself or cannot have it, as `none` has no intermediate stage. Raises ConfigError
    for keys and values that no row can have, and for more than `MOST` rows.
    """
    given = [named(item, f"{where}[{i}]") for i, item in enumerate(items)]
    outer = axes(top or {}, root, partial(of_top, given=top))
    choices = tuned(top or {}, root, partial(of_tuned_top, given=top))
    _check_apart(outer, choices)
    found: list[Row] = []
    used: set[str] = set()
    total = 0
    for index, block in enumerate(given):
        place = f"{where}[{index}]"
        inner, own = _own_axes(block, place)
        keys = {key for axis in (*outer, *choices) for key in axis.keys}
        keys = {key for key in keys if _takes(block, [*inner, *own], key)}
        used |= keys
        both = [*inner, *(axis.of(keys) for axis in outer if keys & set(axis.keys))]
        tune = [*own, *(axis for axis in choices if keys & set(axis.keys))]
        count = math.prod(len(axis.points) for axis in (*both, *tune))
        _check_count(count, total, place if inner or own else where)
        total += count
        places = {key: at(axis.where, key) for axis in (*both, *tune) for key in axis.keys}
        for cells in itertools.product(*(axis.cells() for axis in both)):
            values = {key: value for cell in cells for key, value in cell.items()}
            row = _row(block, place, values, {k for axis in inner for k in axis.keys})
            lists = {axis.keys[0]: [point[0] for point in axis.points] for axis in tune}
            lists = dict(sorted(lists.items()))  # so that the order of keys changes no choice
            chosen = tuple(axis.keys[0] for axis in own)
            found.append(replace(row, tune=lists, own_tune=chosen, places=places))
    for axis in (*outer, *choices):
        for key in axis.keys:
            if key not in used:
                raise ConfigError(f"{at(axis.where, key)}: no row takes it from here: remove it")
    return found


def _own_axes(block: Mapping[str, Any], place: str) -> tuple[list[Axis], list[Axis]]:
    """Return the axes of a block's sweeps, and those of its `tune`."""

    def known(key: str, where: str) -> Any:
        if _states(block, key) and key not in ("name", "label"):
            raise ConfigError(f"{where}: is in the row's block too: drop one of them")
        return known_to(block["name"], key, where)

    def known_to_tune(key: str, where: str) -> Any:
        if key == "label" or any(part.isdigit() for part in key.split(".")):
            raise ConfigError(f"{where}: cannot be tuned: name a setting of the row")
        return known(key, where)

    found, choices = axes(block, place, known), tuned(block, place, known_to_tune)
    _check_apart(found, choices)
    count = math.prod(len(axis.points) for axis in found)
    given = any("label" in axis.keys for axis in found)
    if "label" in block and (count > 1 or given):
        raise ConfigError(
            f"{at(place, 'label')}: {count} rows of its sweep would have the label "
            f"{block['label']!r}: leave it out, or give each its own with {ZIP}: {{label: [..]}}"
        )
    return found, choices


def _check_apart(sweeps: Sequence[Axis], choices: Sequence[Axis]) -> None:
    """Raise ConfigError for a key that is to be swept over and to be tuned."""
    swept = {key for axis in sweeps for key in axis.keys}
    for axis in choices:
        if axis.keys[0] in swept:
            raise ConfigError(
                f"{at(axis.where, axis.keys[0])}: is in grid or zip too: drop one of them"
            )


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
    stage = training_of(key)
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
    given = deepcopy({key: value for key, value in block.items() if key not in (GRID, ZIP, TUNE)})
    shared: dict[str, Any] = {}
    for key, value in values.items():
        if key in DENOISING_KEYS and key not in own:  # of the members too, if it draws them
            shared[key] = value
        else:
            yaml_file.put(given, key.split("."), deepcopy(value), place)
    swept = {key: value for key, value in values.items() if key != "label"}
    from_top = tuple(key for key in values if key not in own)
    return Row(given, place, shared, swept, from_top, written=block)
