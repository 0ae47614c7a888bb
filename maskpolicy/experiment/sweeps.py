"""`grid`, `zip` and `tune` of an experiment file: rows, and what each row chooses from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any

from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError, unknown
from maskpolicy.core.keys import canonical
from maskpolicy.core.schema import Stated, at
from maskpolicy.core.types import Denoising
from maskpolicy.experiment import pointers, yaml_file
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.definition import NONE, CorpusBlock
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
    "corpus.shard_mb",
)

Known = Callable[[str, str], Any]
"""known(key, place) -> the annotation of a key's values; ConfigError if a sweep cannot have it."""


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


@dataclass(frozen=True)
class _Axis:
    """Keys that vary together, and the values that they take at each point."""

    where: str  # the place of the grid or zip
    keys: tuple[str, ...]  # with a dot for each nested block
    points: tuple[tuple[Any, ...], ...]

    def of(self, keys: Collection[str]) -> _Axis:
        """Return the axis of those of its keys that are in `keys`, each point once."""
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

    `top` may hold a `grid`, a `zip` and a `tune` for all rows, at `root`. They leave out a row that
    has the key itself or cannot have it, as `none` has no intermediate stage. Raises ConfigError
    for keys and values that no row can have, and for more than `MOST` rows.
    """
    blocks = [named(item, f"{where}[{i}]") for i, item in enumerate(items)]
    objective = {name: known.annotation for name, known in schema.fields_of(Denoising).items()}
    outer = _axes(top or {}, root, partial(_annotation, fields=objective, given=top))
    choices = _tuned(top or {}, root, partial(_annotation, fields={}, given=top, block=TUNE))
    _check_apart(outer, choices)
    made: list[Row] = []
    used: set[str] = set()
    total = 0
    for index, block in enumerate(blocks):
        place = f"{where}[{index}]"
        inner, own = _own_axes(block, place)
        keys = {key for axis in (*outer, *choices) for key in axis.keys}
        keys = {key for key in keys if _takes(block, [*inner, *own], key)}
        used |= keys
        both = [*inner, *(axis.of(keys) for axis in outer if keys & set(axis.keys))]
        tune = [*own, *(axis for axis in choices if keys & set(axis.keys))]
        count = math.prod(len(axis.points) for axis in (*both, *tune))
        if total + count > MOST:
            many = f"makes {count:,} rows" if count > MOST else f"{total + count:,} rows or more"
            raise ConfigError(
                f"{place if inner or own else where}: {many}, and {MOST:,} is the most: sweep over "
                "fewer values"
            )
        total += count
        lists = {axis.keys[0]: [point[0] for point in axis.points] for axis in tune}
        for cells in itertools.product(*(axis.cells() for axis in both)):
            values = {key: value for cell in cells for key, value in cell.items()}
            row = replace(
                _row(block, place, values, {k for axis in inner for k in axis.keys}),
                tune=dict(sorted(lists.items())),  # so that the order of keys changes no choice
                own_tune=tuple(axis.keys[0] for axis in own),
                places={k: at(axis.where, k) for axis in (*both, *tune) for k in axis.keys},
            )
            made.append(row)
    for axis in (*outer, *choices):
        for key in axis.keys:
            if key not in used:
                raise ConfigError(f"{at(axis.where, key)}: no row takes it from here: remove it")
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
    return Row(given, place, shared, swept, from_top, written=block)


def _own_axes(block: Mapping[str, Any], place: str) -> tuple[list[_Axis], list[_Axis]]:
    """Return the axes of a block's sweeps, and those of its `tune`."""
    is_none = block["name"] == NONE
    plugin = None if is_none else find_plugin("policy", block["name"], [NONE], place).plugin
    known = schema.fields_of(plugin) | ({} if is_none else schema.fields_of(Denoising))
    fields = {name: of.annotation for name, of in known.items()} | {"label": str}

    def annotation(key: str, where: str) -> Any:
        if _states(block, key) and key not in ("name", "label"):
            raise ConfigError(f"{where}: is in the row's block too: drop one of them")
        if is_none and training_of(key) not in (None, "finetune"):
            raise ConfigError(f"{where}: {NONE} has no stage and takes no such key")
        return _annotation(key, where, fields)

    def annotation_to_tune(key: str, where: str) -> Any:
        if key == "label" or any(part.isdigit() for part in key.split(".")):
            raise ConfigError(f"{where}: cannot be tuned: name a setting of the row")
        return annotation(key, where)

    sweeps, choices = _axes(block, place, annotation), _tuned(block, place, annotation_to_tune)
    _check_apart(sweeps, choices)
    count = math.prod(len(axis.points) for axis in sweeps)
    if "label" in block and (count > 1 or any("label" in axis.keys for axis in sweeps)):
        raise ConfigError(
            f"{at(place, 'label')}: {count} rows of its sweep would have the label "
            f"{block['label']!r}: leave it out, or give each its own with {ZIP}: {{label: [..]}}"
        )
    return sweeps, choices


def _check_apart(sweeps: Sequence[_Axis], choices: Sequence[_Axis]) -> None:
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


def _takes(block: Mapping[str, Any], inner: Sequence[_Axis], key: str) -> bool:
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


def _axes(block: Mapping[str, Any], where: str, known: Known) -> list[_Axis]:
    """Return the axes of a block's `grid`, one for each key, and of its `zip`, one for all keys."""
    grid = _lists(block.get(GRID) or {}, at(where, GRID), known)
    pairs = _lists(block.get(ZIP) or {}, at(where, ZIP), known)
    for key in pairs.keys() & grid.keys():
        raise ConfigError(f"{at(at(where, ZIP), key)}: is in {GRID} too: drop one of them")
    if len({len(values) for values in pairs.values()}) > 1:
        told = ", ".join(f"{key} {len(values)}" for key, values in pairs.items())
        raise ConfigError(f"{at(where, ZIP)}: needs lists of one length, not of these: {told}")
    axes = [_Axis(at(where, GRID), (key,), tuple(zip(grid[key], strict=True))) for key in grid]
    if pairs:
        points = tuple(zip(*pairs.values(), strict=True))
        axes.append(_Axis(at(where, ZIP), tuple(pairs), points))
    return axes


def _tuned(block: Mapping[str, Any], where: str, known: Known) -> list[_Axis]:
    """Return the axes of a block's `tune`, one for each key."""
    tune, place = block.get(TUNE) or {}, at(where, TUNE)
    if isinstance(tune, Mapping) and tune.get(ON, DEV) != DEV:
        raise ConfigError(
            f"{at(place, ON)}: must be {DEV}, not {tune[ON]!r}: test is for what is reported"
        )
    keys = {k: v for k, v in tune.items() if k != ON} if isinstance(tune, Mapping) else tune
    lists = _lists(keys, place, known)
    if ON in tune and not lists:
        raise ConfigError(f"{place}: names no key: write e.g. intermediate.lr: [1e-4, 1e-3]")
    return [_Axis(place, (key,), tuple(zip(lists[key], strict=True))) for key in lists]


def training_of(key: str) -> str | None:
    """Return the training that a key belongs to, or `corpus`; None for any other key."""
    stage, dot, _ = key.partition(".")
    return stage if stage in (*ROW_TRAININGS, CORPUS) and dot else None


def _annotation(
    key: str,
    where: str,
    fields: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
    block: str = GRID,
) -> Any:
    """Return the annotation of a key that rows may vary; ConfigError if they cannot.

    It is one of a training, of the corpus or of `fields`. `given` has the keys of the experiment,
    for the message about a key of the sweep `block` at its top.
    """
    stage = training_of(key)
    if stage is None:
        first, _, rest = key.partition(".")
        if first not in fields:
            raise _unknown(key, fields, where, given, block)
        return Any if rest else fields[first]
    if key in _SAME_RESULT:
        raise ConfigError(f"{where}: changes no result: remove it")
    name, rest = key.removeprefix(f"{stage}."), ""
    if stage == CORPUS:
        name, _, rest = name.partition(".")
    known = schema.fields_of(CorpusBlock if stage == CORPUS else Training)
    if name not in known:
        said = unknown(f"key of {stage}", name, known, (), schema.LIST_OF_KEYS)
        raise ConfigError(f"{where}: {said}")
    return Any if rest else known[name].annotation


def _unknown(
    key: str, choices: Collection[str], where: str, given: Mapping[str, Any] | None, block: str
) -> ConfigError:
    """Return the error for a key that a sweep cannot vary; see `pointers`."""
    if key.startswith("general."):
        return ConfigError(f"{where}: all rows start from the same general models: remove it")
    if (said := pointers.pointer(key, "sweep", given, block)) is not None:
        return ConfigError(f"{where}: {said}")
    trainings = [
        f"{stage}.{name}" for stage in ROW_TRAININGS for name in schema.fields_of(Training)
    ]
    near = get_close_matches(key, trainings, n=1)
    some = (f"{stage}.KEY" for stage in (*ROW_TRAININGS, CORPUS))
    said = unknown("key", key, {*choices, *near, *some}, (), schema.LIST_OF_KEYS)
    return ConfigError(f"{where}: {said}")


def _lists(block: Any, where: str, known: Known, before: str = "") -> dict[str, list[Any]]:
    """Return the values of each key, checked; a nested block stands for keys with a dot."""
    if not isinstance(block, Mapping):
        raise schema.wrong(block, "a block of keys with a list of values each", where)
    lists: dict[str, list[Any]] = {}
    for name, values in block.items():
        key, place = f"{before}{name}", at(where, name)
        if isinstance(values, Mapping):
            lists |= _lists(values, place, known, f"{key}.")
            continue
        annotation = known(key, place)
        if not isinstance(values, list | tuple):
            one = f": write [{values}]" if isinstance(values, str | int | float) else ""
            raise ConfigError(f"{schema.wrong(values, 'a list of values', place)}{one}")
        if not values:
            raise ConfigError(f"{place}: is empty: give at least one value")
        for index, value in enumerate(values):
            schema.check(value, annotation, f"{place}[{index}]")
        lists[key] = list(values)
    return lists
