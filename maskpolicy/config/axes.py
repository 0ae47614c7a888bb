"""The keys and values of `grid`, `zip` and `tune`, checked: what each can vary, and over what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from maskpolicy import schema
from maskpolicy.config import pointers
from maskpolicy.config.budgets import Training
from maskpolicy.config.experiment import NONE, CorpusBlock
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.plugins.discovery import find_plugin
from maskpolicy.plugins.registry import CORPUS, ROW_TRAININGS
from maskpolicy.schema import at
from maskpolicy.types import Denoising

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


def tuned(block: Mapping[str, Any], where: str, known: Known) -> list[Axis]:
    """Return the axes of a block's `tune`, one for each key."""
    given, place = block.get(TUNE) or {}, at(where, TUNE)
    if isinstance(given, Mapping) and given.get(ON, DEV) != DEV:
        raise ConfigError(
            f"{at(place, ON)}: must be {DEV}, not {given[ON]!r}: test is for what is reported"
        )
    keys = {k: v for k, v in given.items() if k != ON} if isinstance(given, Mapping) else given
    found = _lists(keys, place, known)
    if ON in (given or ()) and not found:
        raise ConfigError(f"{place}: names no key: write e.g. intermediate.lr: [1e-4, 1e-3]")
    return [Axis(place, (key,), tuple((each,) for each in found[key])) for key in found]


def known_to(name: str, key: str, where: str) -> Any:
    """Return the annotation of a key of the policy `name`'s block; ConfigError if it has none."""
    if (stage := training_of(key)) is not None:
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


def of_top(key: str, where: str, given: Mapping[str, Any] | None = None) -> Any:
    """Return the annotation of a key that all rows may vary; ConfigError if they cannot.

    `given` has the keys of the experiment, for the message.
    """
    if training_of(key) is not None:
        return _of_training(key, where)
    objective = schema.fields_of(Denoising)
    if key not in objective:
        raise _unknown(key, objective, where, given)
    return objective[key].annotation


def of_tuned_top(key: str, where: str, given: Mapping[str, Any] | None = None) -> Any:
    """Return the annotation of a key that all rows may choose values of: one of a training.

    `given` has the keys of the experiment, for the message.
    """
    if training_of(key) is None:
        raise _unknown(key, (), where, given, TUNE)
    return _of_training(key, where)


def _unknown(
    key: str,
    choices: Collection[str],
    where: str,
    given: Mapping[str, Any] | None = None,
    block: str = GRID,
) -> ConfigError:
    """Return the error for a key that a sweep cannot vary; see `pointers.of_sweep`."""
    if key.startswith("general."):
        return ConfigError(f"{where}: all rows start from the same general models: remove it")
    if (pointer := pointers.of_sweep(key, given, block)) is not None:
        return ConfigError(f"{where}: {pointer}")
    trainings = [
        f"{stage}.{name}" for stage in ROW_TRAININGS for name in schema.fields_of(Training)
    ]
    near = get_close_matches(key, trainings, n=1)
    some = (f"{stage}.KEY" for stage in (*ROW_TRAININGS, CORPUS))
    said = unknown("key", key, {*choices, *near, *some}, (), schema.LIST_OF_KEYS)
    return ConfigError(f"{where}: {said}")


def training_of(key: str) -> str | None:
    """Return the training that a key belongs to, or `corpus`; None for any other key."""
    stage, dot, _ = key.partition(".")
    return stage if stage in (*ROW_TRAININGS, CORPUS) and dot else None


def _of_training(key: str, where: str) -> Any:
    stage, _, name = key.partition(".")
    known = schema.fields_of(Training)
    if key in _SAME_RESULT:
        raise ConfigError(f"{where}: changes no result: remove it")
    if stage == CORPUS:
        return _of_corpus(name, where)
    if name not in known:
        said = unknown(f"key of {stage}", name, known, (), schema.LIST_OF_KEYS)
        raise ConfigError(f"{where}: {said}")
    return known[name].annotation


def _of_corpus(name: str, where: str) -> Any:
    first, _, rest = name.partition(".")
    known = schema.fields_of(CorpusBlock)
    if first not in known:
        said = unknown("key of corpus", first, known, (), schema.LIST_OF_KEYS)
        raise ConfigError(f"{where}: {said}")
    return Any if rest else known[first].annotation


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
            one = f": write [{values}]" if isinstance(values, str | int | float) else ""
            raise ConfigError(f"{schema.wrong(values, 'a list of values', place)}{one}")
        if not values:
            raise ConfigError(f"{place}: is empty: give at least one value")
        for index, value in enumerate(values):
            schema.check(value, annotation, f"{place}[{index}]")
        lists[key] = list(values)
    return lists
