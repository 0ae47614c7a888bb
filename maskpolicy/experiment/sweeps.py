"""`grid`, `zip` and `tune` of an experiment file: the rows they make, and candidates of rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, field, replace
from typing import Annotated, Any

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.keys import canonical
from maskpolicy.core.schema import Stated, at
from maskpolicy.core.types import Denoising
from maskpolicy.experiment import yaml_file
from maskpolicy.experiment.definition import NONE
from maskpolicy.experiment.policy_blocks import named
from maskpolicy.plugins import hooks
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import CORPUS, DENOISING_KEYS, ROW_TRAININGS

MOST = 1000  # rows of an experiment, with the candidates of those that are tuned
GRID, ZIP, TUNE = "grid", "zip", "tune"
ON, DEV = "on", "dev"  # the key of `tune` that is not a key of a row, and its only value
_SAME_RESULT = (
    "finetune.seed",
    *(f"{name}.checkpoint_every" for name in ROW_TRAININGS),
    *("intermediate.eval_every", "intermediate.patience"),
    "corpus.shard_mb",
)


@dataclass(frozen=True)
class RowKeys:
    """The keys of a row's block for any policy, besides its label and its objective."""

    # settings of this row that replace the file's budget
    intermediate: dict[str, Any] = field(default_factory=dict)
    finetune: dict[str, Any] = field(default_factory=dict)  # the same; also for `none`
    fit: dict[str, Any] = field(default_factory=dict)  # the same, for a learned policy
    # settings of this row that replace the file's corpus, key by key, and `mix` text by text
    corpus: Annotated[dict[str, Any], Stated(schema.NAME_OR_KEYS)] = field(default_factory=dict)
    # lists of values by key: a row for each combination (docs/experiments.md)
    grid: dict[str, Any] = field(default_factory=dict)
    # lists of the same length by key: a row for each position
    zip: dict[str, Any] = field(default_factory=dict)
    # lists of values by key: one row, with the values that are best on dev (docs/experiments.md)
    tune: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """The keys of one row: its block, with one value for each key of a sweep."""

    given: Mapping[str, Any]
    place: str  # of its block
    shared: Mapping[str, Any] = field(default_factory=dict)  # keys of Denoising from the top
    swept: Mapping[str, Any] = field(default_factory=dict)  # all values of sweeps, by key
    from_top: tuple[str, ...] = ()  # the keys of sweeps at the top of the file
    tune: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # values to choose from
    own_tune: tuple[str, ...] = ()  # the keys of the block's own `tune`
    written: Mapping[str, Any] = field(default_factory=dict)  # the block as the file has it
    places: Mapping[str, str] = field(default_factory=dict)  # of the keys of sweeps and of `tune`

    def candidates(self) -> Iterator[Row]:
        """Yield the row with each combination of the values that it chooses from."""
        for values in itertools.product(*self.tune.values()):
            given = deepcopy({**self.given})
            chosen = dict(zip(self.tune, values, strict=True))
            for key, value in chosen.items():
                yaml_file.put(given, key.split("."), deepcopy(value), self.place)
            yield replace(self, given=given, swept={**self.swept, **chosen}, tune={})

    def placed(self, error: ConfigError) -> ConfigError:
        """Return an error of this row, with the row's values of sweeps.

        It names a key that only a sweep sets at the place of the sweep.
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


@dataclass(frozen=True)
class _Axis:
    """Keys that vary together, and their values at each point."""

    where: str  # the place of the grid or zip
    keys: tuple[str, ...]  # with a dot for each nested block
    points: tuple[tuple[Any, ...], ...]

    def of(self, keys: Collection[str]) -> _Axis:
        """Return the axis restricted to `keys`, each point once."""
        kept = [index for index, key in enumerate(self.keys) if key in keys]
        points = [tuple(point[index] for index in kept) for point in self.points]
        if len(kept) < len(self.keys):
            points = [point for index, point in enumerate(points) if point not in points[:index]]
        return _Axis(self.where, tuple(self.keys[index] for index in kept), tuple(points))

    def cells(self) -> Iterator[dict[str, Any]]:
        """Yield the values of each point by key."""
        return (dict(zip(self.keys, point, strict=True)) for point in self.points)


def rows(
    items: Sequence[Any], where: str, top: Mapping[str, Any] | None = None, root: str = ""
) -> list[Row]:
    """Return the rows of the blocks `items` at `where`, after `grid` and `zip` of each block.

    `top` may hold a `grid`, a `zip` and a `tune` for all rows, at `root`. They do not change rows
    that have the key themselves or cannot have it: `none` has no intermediate stage. Raises
    ConfigError for keys and values that no row can have, and for more than `MOST` rows.
    """
    top = top or {}
    outer, choices = _checked_axes(top, root)
    objective = schema.fields_of(Denoising)
    for axis in outer:
        for key, value in (pair for cell in axis.cells() for pair in cell.items()):
            if key in objective:  # no later check names the place of the sweep
                schema.check(value, objective[key].annotation, at(axis.where, key))
    made: list[Row] = []
    unused = {key: axis for axis in (*outer, *choices) for key in axis.keys}
    for_all = [*unused]
    total = 0
    for index, item in enumerate(items):
        place = f"{where}[{index}]"
        block = named(item, place)
        inner, own = _checked_axes(block, place)
        keys = {key for key in for_all if _takes(block, [*inner, *own], key)}
        unused = {key: axis for key, axis in unused.items() if key not in keys}
        both = [*inner, *(axis.of(keys) for axis in outer if keys & set(axis.keys))]
        tune = [*own, *(axis for axis in choices if keys & set(axis.keys))]
        count = math.prod(len(axis.points) for axis in (*both, *tune))
        if total + count > MOST:
            many = f"makes {count:,} rows" if count > MOST else f"{total + count:,} rows or more"
            raise ConfigError(
                f"{place if inner or own else where}: {many}, more than {MOST:,}: sweep over "
                "fewer values"
            )
        total += count
        lists = {axis.keys[0]: [point[0] for point in axis.points] for axis in tune}
        for cells in itertools.product(*(axis.cells() for axis in both)):
            values = {key: value for cell in cells for key, value in cell.items()}
            row = replace(
                _row(block, place, values, {k for axis in inner for k in axis.keys}),
                tune=dict(sorted(lists.items())),  # the order of keys changes no choice
                own_tune=tuple(axis.keys[0] for axis in own),
                places={k: at(axis.where, k) for axis in (*both, *tune) for k in axis.keys},
            )
            made.append(row)
    for key, axis in unused.items():
        raise ConfigError(f"{at(axis.where, key)}: applies to no row: remove it")
    return made


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
    return Row(named(given, place), place, shared, swept, from_top, written=block)


def _checked_axes(block: Mapping[str, Any], place: str) -> tuple[list[_Axis], list[_Axis]]:
    """Return the axes of the sweeps of a row, or of the file, and those of its `tune`."""
    sweeps, choices = _axes(block, place), _tuned(block, place)
    _check_keys(sweeps, choices, block)
    count = math.prod(len(axis.points) for axis in sweeps)
    if "label" in block and (count > 1 or any("label" in axis.keys for axis in sweeps)):
        raise ConfigError(
            f"{at(place, 'label')}: {count} rows of its sweep would have the label "
            f"{block['label']!r}: leave it out, or give each its own with {ZIP}: {{label: [..]}}"
        )
    return sweeps, choices


def _check_keys(
    sweeps: Sequence[_Axis], choices: Sequence[_Axis], block: Mapping[str, Any]
) -> None:
    """Raise ConfigError for keys of sweeps and `tune` that cannot vary in the rows of a block.

    All other keys are checked in the rows that they make.
    """
    is_row = "name" in block
    swept = {key for axis in sweeps for key in axis.keys}
    for axis in (*sweeps, *choices):
        for key in axis.keys:
            place, first = at(axis.where, key), key.partition(".")[0]
            if key in _SAME_RESULT:
                raise ConfigError(f"{place}: changes no result: remove it")
            if key == "name" or (key == "label" and not is_row):
                raise ConfigError(f"{place}: cannot vary: write a block for each policy")
            if is_row and first != "label" and _states(block, key):
                raise ConfigError(f"{place}: is in the row's block too: drop one of them")
            if key in (*ROW_TRAININGS, CORPUS):
                raise ConfigError(f"{place}: is a block: name its keys, e.g. {key}.KEY: [..]")
            if axis not in choices:
                continue
            if key in swept:
                raise ConfigError(f"{place}: is in grid or zip too: drop one of them")
            if key == "label" or any(part.isdigit() for part in key.split(".")):
                raise ConfigError(f"{place}: cannot be tuned: name a setting of the row")


def _states(block: Mapping[str, Any], key: str) -> bool:
    """Return whether a block holds a key; a dot leads into a nested block."""
    first, _, rest = key.partition(".")
    if first not in block or not rest:
        return first in block
    return isinstance(block[first], Mapping) and _states(block[first], rest)


def _sets(block: Any, key: str) -> bool:
    """Return whether a block states a key, or each of the members that it lists does."""
    if not isinstance(block, Mapping):
        return False
    members = block.get(hooks.MEMBERS.name)
    of_members = isinstance(members, list) and members and all(_sets(m, key) for m in members)
    return _states(block, key) or bool(of_members)


def _takes(block: Mapping[str, Any], inner: Sequence[_Axis], key: str) -> bool:
    """Return whether a sweep at the top of the file sets a row's key."""
    if _sets(block, key) or any(key in axis.keys for axis in inner):
        return False
    first, dot, _ = key.partition(".")
    stage = first if dot and first in (*ROW_TRAININGS, CORPUS) else None
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


def _axes(block: Mapping[str, Any], where: str) -> list[_Axis]:
    """Return the axes of a block's `grid`, one for each key, and of its `zip`, one for all keys."""
    grid = _lists(block.get(GRID, {}), at(where, GRID))
    pairs = _lists(block.get(ZIP, {}), at(where, ZIP))
    for key in pairs.keys() & grid.keys():
        raise ConfigError(f"{at(at(where, ZIP), key)}: is in {GRID} too: drop one of them")
    if len({len(values) for values in pairs.values()}) > 1:
        told = ", ".join(f"{key} {len(values)}" for key, values in pairs.items())
        raise ConfigError(f"{at(where, ZIP)}: needs lists of the same length, not {told}")
    axes = [_Axis(at(where, GRID), (key,), tuple(zip(grid[key], strict=True))) for key in grid]
    if pairs:
        points = tuple(zip(*pairs.values(), strict=True))
        axes.append(_Axis(at(where, ZIP), tuple(pairs), points))
    return axes


def _tuned(block: Mapping[str, Any], where: str) -> list[_Axis]:
    """Return the axes of a block's `tune`, one for each key."""
    tune, place = block.get(TUNE, {}), at(where, TUNE)
    if isinstance(tune, Mapping) and tune.get(ON, DEV) != DEV:
        raise ConfigError(
            f"{at(place, ON)}: must be {DEV}, not {tune[ON]!r}: test is for reported scores"
        )
    keys = {k: v for k, v in tune.items() if k != ON} if isinstance(tune, Mapping) else tune
    lists = _lists(keys, place)
    if ON in tune and not lists:
        raise ConfigError(f"{place}: names no key: write e.g. intermediate.lr: [1e-4, 1e-3]")
    return [_Axis(place, (key,), tuple(zip(lists[key], strict=True))) for key in lists]


def _lists(block: Any, where: str, before: str = "") -> dict[str, list[Any]]:
    """Return the values of each key; a nested block stands for keys with a dot."""
    if not isinstance(block, Mapping):
        raise schema.wrong(block, "a block of keys with a list of values each", where)
    lists: dict[str, list[Any]] = {}
    for name, values in block.items():
        key, place = f"{before}{name}", at(where, name)
        if isinstance(values, Mapping):
            lists |= _lists(values, place, f"{key}.")
            continue
        if not isinstance(values, list | tuple):
            one = f": write [{values}]" if isinstance(values, str | int | float) else ""
            raise ConfigError(f"{schema.wrong(values, 'a list of values', place)}{one}")
        if not values:
            raise ConfigError(f"{place}: is empty: give at least one value")
        lists[key] = list(values)
    return lists
