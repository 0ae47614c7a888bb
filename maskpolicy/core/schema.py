"""Check the values of a block against annotations: a dataclass's signature is its schema."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

from maskpolicy.core.distribution import Distribution
from maskpolicy.core.errors import ConfigError, unknown

T = TypeVar("T")
_OLD_NAME = "old_name"  # in the metadata of a field
OMIT = "omit"
"""In a field's metadata: a function of the instance, whether keys omit it; None: at its default."""
_FEW = 4  # the most keys that a message about a block names
LIST_OF_KEYS = "maskpolicy list keys"
NAME_OR_KEYS = "a name or a block of keys"
SYNONYMS = {
    "learning_rate": "lr",
    **dict.fromkeys(("max_steps", "train_steps"), "steps"),
    **dict.fromkeys(("epoch", "num_train_epochs"), "epochs"),
    **dict.fromkeys(("warmup_steps", "num_warmup_steps"), "warmup"),
    **dict.fromkeys(("train_batch_size", "per_device_train_batch_size"), "batch_size"),
    **dict.fromkeys(("max_length", "max_seq_length", "max_source_length"), "max_source"),
    "max_target_length": "max_target",
    "lr_scheduler_type": "schedule",
    "clip": "max_grad_norm",
    "eval_steps": "eval_every",
    "save_steps": "checkpoint_every",
    **dict.fromkeys(("mlm_probability", "mask_ratio", "masking_ratio"), "ratio"),
    **dict.fromkeys(("path", "paths", "data_files"), "files"),
    **dict.fromkeys(("dataset", "dataset_name"), "hub"),
    **dict.fromkeys(("validation", "valid", "val"), "dev"),
}
"""Our keys for names that Transformers and other libraries use; error messages suggest them."""
_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    type(None): "null",
    dict: "a block of keys",
    list: "a list",
    tuple: "a list",
    set: "a set",
    frozenset: "a set",
}


@dataclass(frozen=True)
class Range:
    """The bounds of a number, used as `Annotated[float, Range(gt=0)]`; None: no bound."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def __str__(self) -> str:
        """Return the bounds as words for a message, e.g. ">= 0 and < 1"."""
        bounds = ((">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt))
        return " and ".join(f"{sign} {bound:.10g}" for sign, bound in bounds if bound is not None)

    def holds(self, value: float) -> bool:
        """Return whether `value` is within the bounds."""
        return not (
            (self.ge is not None and value < self.ge)
            or (self.gt is not None and value <= self.gt)
            or (self.le is not None and value > self.le)
            or (self.lt is not None and value >= self.lt)
        )


@dataclass(frozen=True)
class Schedule:
    """A number that goes from `start` at the first step to `end` after the last one."""

    start: float
    end: float
    shape: Literal["linear", "cosine"] = "linear"  # cosine: half a wave, slow at both ends

    def at(self, progress: float) -> float:
        """Return the number when the share `progress` of the training, in [0, 1), is done."""
        if self.shape == "linear":
            return self.start + (self.end - self.start) * progress
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * progress)) / 2


def is_scheduled(value: object) -> bool:
    """Return whether a field's value is a schedule, or a tuple with one in it."""
    return isinstance(value, Schedule) or (
        isinstance(value, tuple) and any(map(is_scheduled, value))
    )


def scheduled_fields(instance: object) -> list[str]:
    """Return the names of a dataclass's fields that hold a schedule."""
    fields = dataclasses.fields(instance) if dataclasses.is_dataclass(instance) else ()
    return [each.name for each in fields if is_scheduled(getattr(instance, each.name))]


def at_progress(value: T, progress: float) -> T:
    """Return a value, or a dataclass, with the numbers of its schedules when `progress` is done."""
    now: Any = value
    if isinstance(value, Schedule):
        now = value.at(progress)
    elif isinstance(value, tuple):
        now = tuple(at_progress(item, progress) for item in value)
    elif names := scheduled_fields(value):
        numbers = {name: at_progress(getattr(value, name), progress) for name in names}
        now = dataclasses.replace(now, **numbers)
    return typing.cast(T, now)


@dataclass(frozen=True)
class Stated:
    """The allowed values in words: `Annotated[Any, Stated("a name or a block of keys")]`."""

    words: str


Steps = Annotated[int, Range(ge=0)]
Count = Annotated[int, Range(ge=1)]
NotNegative = Annotated[float, Range(ge=0)]
Positive = Annotated[float, Range(gt=0)]
Share = Annotated[float, Range(ge=0, le=1)]
# a schedule or a distribution may replace the number in a block
Rate = Annotated[float, Schedule, Distribution, Range(ge=0, le=1)]
Weight = Annotated[float, Schedule, Range(ge=0)]
Seed = Annotated[int, Range(ge=0, lt=2**32)]
NameOrKeys = Annotated[Any, Stated(NAME_OR_KEYS)]


@dataclass(frozen=True)
class Field:
    """One key of a block: its annotation, and its default or MISSING."""

    annotation: Any
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether the key has no default."""
        return self.default is MISSING


def fields_of(plugin: Any) -> dict[str, Field]:
    """Return the keys of a dataclass, one for each field; {} for anything else."""
    if not dataclasses.is_dataclass(plugin):
        return {}
    try:
        hints = _hints(plugin if isinstance(plugin, type) else type(plugin))
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        name = getattr(plugin, "__name__", plugin)
        raise ConfigError(f"{name}: a field's annotation cannot be read: {error}") from error
    return {
        each.name: Field(
            _or_null(hints[each.name]) if each.default is None else hints[each.name],
            each.default if each.default_factory is MISSING else each.default_factory(),
        )
        for each in dataclasses.fields(plugin)
        if each.init
    }


def _or_null(annotation: Any) -> Any:
    """Return the annotation of a field whose default is None, which its type may not mention."""
    try:
        check(None, annotation, "")
    except ConfigError:
        return annotation | None
    return annotation


@lru_cache(maxsize=256)  # the rows of an experiment have the same classes
def _hints(plugin: type) -> dict[str, Any]:
    return typing.get_type_hints(plugin, include_extras=True)


def omitted(default: T, when: Callable[[Any], bool] | None = None) -> T:
    """Return a dataclass field that keys omit at its default, or if `when(instance)` is true.

    Use it to add a field without changing the keys that are already in use.
    """
    return dataclasses.field(default=default, metadata={OMIT: when})


def unkeyed(default: T) -> T:
    """Return a dataclass field that keys always omit, because it changes no result."""
    return omitted(default, lambda instance: True)


def renamed(old: str, default: T) -> T:
    """Return a dataclass field that stages' keys, which must not change, know as `old`."""
    return dataclasses.field(default=default, metadata={_OLD_NAME: old})


def old_name(field: dataclasses.Field[Any]) -> str:
    """Return the name of a field in keys of stages."""
    return field.metadata.get(_OLD_NAME, field.name)


def block(
    plugin: Any,
    given: Any,
    where: str,
    defaults: Mapping[str, Any] | None = None,
    others: Iterable[str] = (),
    elsewhere: Callable[[str], str | None] = lambda key: None,
) -> dict[str, Any]:
    """Return a value for every key of `plugin`: the given one, checked, or the default.

    `where` ends in the key path of the block, or in ": " at the top. Messages also name `others`,
    keys of the block that the caller reads, and elsewhere(key): where an unknown key belongs.
    Raises ConfigError for an unknown or missing key, a wrong type, or a number out of range.
    """
    known = fields_of(plugin)
    if not isinstance(given, Mapping):
        keys = ", ".join(f"{name}: .." for name in known) if len(known) <= _FEW else ""
        write = f": write {{{keys}}}" if keys and given is not None else ""
        raise ConfigError(f"{wrong(given, 'a block of keys', where)}{write}")
    for key in given:
        if key not in known:
            if advice := elsewhere(key):
                raise ConfigError(f"{at(where, key)}: {advice}")
            raise _unknown_key(plugin, str(key), {*known, *others}, at(where, key))
    values: dict[str, Any] = {}
    for name, field in known.items():
        default = (defaults or {}).get(name, field.default)
        if name in given:
            values[name] = check(given[name], field.annotation, at(where, name))
        elif default is MISSING:
            wanted = words(field.annotation)
            raise ConfigError(f"{at(where, name)}: missing; it has no default: give {wanted}")
        else:  # a user's class may contradict its own types
            check(default, field.annotation, f"{at(where, name)} (the default)")
            values[name] = default
    return values


def _unknown_key(plugin: Any, key: str, choices: Collection[str], place: str) -> ConfigError:
    """Return the error for a key that is not one of `choices`, with a suggestion."""
    value = getattr(plugin, key, None) if key in vars(plugin) else None
    if isinstance(value, (bool, int, float, str, tuple, list)) and not key.startswith("_"):
        why = f"gives {key} no type: write {key}: {type(value).__name__} = .."
        if key in vars(plugin).get("__annotations__", {}) and not dataclasses.is_dataclass(plugin):
            why = "is not a dataclass: write @dataclass(frozen=True) above it"
        return ConfigError(f"{place}: is not a key, because the class {plugin.__name__} {why}")
    meant = (SYNONYMS.get(key, ""),)
    return ConfigError(f"{place}: {unknown('key', key, choices, meant, LIST_OF_KEYS)}")


def check(value: Any, annotation: Any, where: str) -> Any:
    """Return `value` as the type of `annotation` (lists become tuples), or raise ConfigError."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return value
    if origin is Annotated:
        kind = args[0]
        if isinstance(value, Mapping) and Schedule in args[1:]:
            kind = Distribution if Distribution in args and "distribution" in value else Schedule
        elif type(value) in args[1:]:  # a default
            kind = type(value)
        if isinstance(value, bool) and kind in (int, float):
            raise wrong(value, words(annotation), where)
        checked = check(value, kind, where)
        for extra in args[1:]:
            if isinstance(extra, Range):
                _check_range(checked, extra, where)
        return checked
    if origin in (typing.Union, types.UnionType):
        return _union(value, args, where)
    if origin is Literal:
        if not any(value == arg and type(value) is type(arg) for arg in args):
            if isinstance(value, (list, dict)):
                raise wrong(value, " | ".join(map(str, args)), where)
            raise ConfigError(f"{where}: {unknown('value', str(value), map(str, args))}")
        return value
    if dataclasses.is_dataclass(annotation):
        if isinstance(annotation, type) and isinstance(value, annotation):  # a default
            return value
        if isinstance(value, Mapping):  # keys of stages have old names
            names = {old_name(field): field.name for field in dataclasses.fields(annotation)}
            value = {names.get(key, key): item for key, item in value.items()}
        return _made(annotation, block(annotation, value, where), where)
    kind = origin or annotation
    if kind in (tuple, list) or kind is Sequence:
        return _sequence(value, kind, args, where)
    if kind is dict or kind is Mapping or typing.is_typeddict(kind):
        return _mapping(value, args, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(check(value.value if isinstance(value, kind) else value, _choices(kind), where))
    return _scalar(value, kind, where)


def _choices(kind: type[Enum]) -> Any:
    return Literal[tuple(member.value for member in kind)]


def _made(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """Return an instance of a dataclass; its own errors are preceded by the place `where`."""
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(at(where, str(error))) from error


def words(annotation: Any) -> str:
    """Return the values that an annotation allows, e.g. "a number" or "full | spans"."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " | ".join(map(str, args))
    if origin is Annotated:
        stated = [extra.words for extra in args[1:] if isinstance(extra, Stated)]
        if Schedule in args[1:]:
            drawn = ", a schedule or a distribution" if Distribution in args else " or a schedule"
            stated = [f"{words(args[0])}{drawn}"]
        bounds = [str(extra) for extra in args[1:] if isinstance(extra, Range)]
        return " ".join([*(stated or [words(args[0])]), *bounds])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(words, args))
    if origin in (tuple, list) and args:
        return f"a list, of {words(args[0])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return words(_choices(annotation))
    kind = dict if dataclasses.is_dataclass(annotation) else origin or annotation
    return _NAMES.get(kind, getattr(kind, "__name__", str(kind)))


def at(where: str, key: object) -> str:
    """Return the place of `key` inside the block at `where`, on one line."""
    name = key if isinstance(key, str) and key.isprintable() else repr(key)
    return f"{where}{name}" if not where or where.endswith(" ") else f"{where}.{name}"


def wrong(value: Any, wanted: str, where: str) -> ConfigError:
    """Return the error for a value of a wrong type."""
    actual = _NAMES.get(type(value), type(value).__name__)
    shown = "" if isinstance(value, (dict, list)) else f" {value!r:.60}"
    if isinstance(value, bool):
        actual, shown = str(value).lower(), ""
    elif value is None:
        shown = ": leave it out, or give a value"
    return ConfigError(f"{where.rstrip(': ')}: must be {wanted}, not {actual}{shown}")


def _check_range(value: Any, bounds: Range, where: str) -> None:
    """Raise ConfigError for a number, or the ends of a schedule, outside `bounds`."""
    if isinstance(value, Schedule):
        for name in ("start", "end"):
            _check_range(getattr(value, name), bounds, at(where, name))
    elif not isinstance(value, Distribution | None) and not bounds.holds(value):
        is_share = {bounds.le, bounds.lt} == {1, None} and {bounds.ge, bounds.gt} == {0, None}
        percent = is_share and 2 <= value < 100
        instead = f": write {value / 100:g} for {value:g}%" if percent else ""
        raise ConfigError(f"{where}: must be {bounds}, not {value}{instead}")


def _union(value: Any, members: tuple[Any, ...], where: str) -> Any:
    others = [member for member in members if member is not type(None)]
    if value is None and len(others) < len(members):
        return None
    if len(others) == 1:
        return check(value, others[0], where)
    for member in others:
        try:
            return check(value, member, where)
        except ConfigError:
            continue
    raise wrong(value, " or ".join(words(member) for member in members), where)


def _sequence(value: Any, kind: Any, args: tuple[Any, ...], where: str) -> Any:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{wrong(value, 'a list', where)}{_as_list(value, args)}")
    if kind is tuple and args and args[-1] is not Ellipsis:
        if len(value) != len(args):
            raise ConfigError(f"{where}: must be a list of {len(args)}, not of {len(value)}")
        each: Sequence[Any] = args
    else:
        each = [args[0] if args else Any] * len(value)
    items = (check(v, a, f"{where}[{i}]") for i, (v, a) in enumerate(zip(value, each, strict=True)))
    return list(items) if kind is list else tuple(items)


def _as_list(value: Any, args: tuple[Any, ...]) -> str:
    """Return ": write [..]" if a value, or a block of names, is meant as a list, or ""."""
    each = words(args[0]) if args else ""
    if isinstance(value, Mapping) and each.startswith(NAME_OR_KEYS):
        if isinstance(name := value.get("name"), str):
            return f": write [{{name: {name}, ..}}]"
        items = (f"{{name: {key}, ..}}" if inner else str(key) for key, inner in value.items())
        return f": write [{', '.join(items)}]"
    if not isinstance(value, (str, int, float)) or (isinstance(value, str) and "number" in each):
        return ""
    return f": write [{value}]"


def _mapping(value: Any, args: tuple[Any, ...], where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise wrong(value, "a block of keys", where)
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(f"{at(where, key)}: a key must be text: quote it")
    inner = args[1] if len(args) == 2 else Any
    return {key: check(item, inner, at(where, key)) for key, item in value.items()}


def _scalar(value: Any, kind: Any, where: str) -> Any:
    if kind is float and type(value) in (int, float):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ConfigError(f"{where}: must be a finite number")
        return number
    if kind in (bool, int, str) and type(value) is not kind:
        quote = ": put it in quotes" if kind is str and type(value) in (bool, int, float) else ""
        raise ConfigError(f"{wrong(value, _NAMES[kind], where)}{quote or _as_number(value, kind)}")
    if isinstance(kind, type) and not isinstance(value, kind):
        wanted = _NAMES.get(kind, f"a value of type {kind.__name__}")
        raise ConfigError(f"{wrong(value, wanted, where)}{_as_number(value, kind)}")
    return value


def _as_number(value: Any, kind: type) -> str:
    """Return ": write NUMBER" for text, or a float, that is meant as a number, or ""."""
    if kind not in (int, float) or not isinstance(value, (str, float)):
        return ""
    percent = isinstance(value, str) and value.strip().endswith("%")
    try:
        number = float(value.strip().rstrip("%")) if isinstance(value, str) else value
    except ValueError:
        return ""
    number = number / 100 if percent else number
    if not math.isfinite(number) or (kind is int and number != int(number)):
        return ""
    return f": write {int(number) if kind is int else f'{number:g}'}"
