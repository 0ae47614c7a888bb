"""The registered names of policies, tasks, metrics and analyses; errors in the code of plugins."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias, TypeVar

from maskpolicy.core import keys, schema
from maskpolicy.core.errors import (
    ConfigError,
    MaskpolicyError,
    PluginError,
    StageError,
    cause_at,
    unknown,
)
from maskpolicy.core.metrics import METRICS, Metric, Part
from maskpolicy.core.types import Denoising, Json
from maskpolicy.plugins import hooks, isolation
from maskpolicy.plugins.hooks import Hook
from maskpolicy.plugins.statistics import Statistics

T = TypeVar("T")
DENOISING_KEYS = tuple(field.name for field in fields(Denoising))
ROW_TRAININGS = ("fit", "intermediate", "finetune")
"""The trainings that rows of one experiment may differ in."""
CORPUS = "corpus"
ROW_KEYS = (*ROW_TRAININGS, CORPUS, "grid", "zip", "tune")  # of a row's block, whatever its policy
RESERVED = {
    "policy": {"name", "label", *DENOISING_KEYS, *ROW_KEYS},
    "task": {
        *("name", "label", "data", "revision", "on_error", "context", "limit", "metrics"),
        "finetune",
    },
    "metric": set(),
    "analysis": {"name"},
}
_LARGEST = sys.float_info.max
_SIMILAR = 0.8  # difflib's ratio from which a name counts as a misspelt hook
Scorer: TypeAlias = Callable[[str, Sequence[str]], float]
"""(prediction, the acceptable answers of its example) -> a score from 0 to 1."""
_FIELDS = "__dataclass_fields__"  # in the dictionary of a class that @dataclass has seen
OWN_NAMES = {"policy": "none", "analysis": "all"}  # names with a meaning of their own


@dataclass(frozen=True)
class Registered:
    """A registered name: the plugin's class or function, its facts, and where it is defined."""

    kind: str
    name: str
    plugin: Any
    facts: dict[str, Any]
    file: str
    line: int
    # digests of its file and of the modules that it imports; {} for built-in plugins and those of
    # plugin files
    code: Mapping[Path, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """File and line of the definition, for messages."""
        return f"{self.file}:{self.line}"

    def is_same(self, other: Registered) -> bool:
        """Return whether two entries have the same definition, imported or typed again."""
        if self.plugin is other.plugin or self.file != other.file:
            return self.plugin is other.plugin
        if not self.line:  # typed into an interpreter or a notebook
            return True
        # a plugin file runs once, so that two of its lines are two plugins; others may be reloaded
        may_be = self.line == other.line or bool(self.code or other.code)
        return may_be and self.plugin.__qualname__ == other.plugin.__qualname__

    @property
    def base(self) -> Path:
        """The folder from which its module was imported."""
        path, module = Path(self.file), str(self.plugin.__module__)
        above = module.count(".") + (path.name == "__init__.py")
        return path.parents[: above + 1][-1]  # a loader may give a file any dotted name

    @property
    def summary(self) -> str:
        """The first line of the plugin's docstring."""
        return (inspect.getdoc(self.plugin) or "").partition("\n")[0]


_ENTRIES: dict[tuple[str, str], Registered] = {}
_CLASHES: dict[tuple[str, str], Registered] = {}  # the second plugin of each name


def register(kind: str, name: str, /, **facts: Any) -> Callable[[T], T]:
    """Return a decorator that registers a plugin of some kind under `name`.

    It raises ConfigError, with file and line, for a name in use, a field with a reserved name, and
    a class that does not fit the hooks of its kind.
    """

    def decorate(plugin: T) -> T:
        entry = _entry(kind, name, plugin, facts, inspect.currentframe())
        _check(entry)
        if kind in hooks.HOOKS:
            check_hooks(kind, entry.plugin, f"{entry.where}: {kind} {name!r}")
        _add(entry)
        return plugin

    return decorate


def _add(new: Registered) -> None:
    """Add an entry; raises ConfigError if another plugin has its name."""
    place = new.kind, new.name
    if not new.is_same(_ENTRIES.setdefault(place, new)):
        _CLASHES[place] = new
        raise ConfigError(clash(*place))
    _ENTRIES[place] = new
    _CLASHES.pop(place, None)


def policy(name: str, **denoising: Any) -> Callable[[T], T]:
    """Register a masking policy; `denoising` are its defaults for fields of `Denoising`."""
    strange = sorted(set(denoising) - set(DENOISING_KEYS))
    if strange:
        raise ConfigError(f"policy {name!r}: {unknown('setting', strange[0], DENOISING_KEYS)}")
    return register("policy", name, **denoising)


def task(name: str, **facts: Any) -> Callable[[T], T]:
    """Register a downstream task with its facts (see `data.taskfiles.sources.TaskFacts`)."""
    return register("task", name, **facts)


def analysis(
    name: str, *, heading: str = "", of_masks: bool = False, place: int = 0, version: int = 1
) -> Callable[[T], T]:
    """Register an analysis of finished runs.

    A run's page shows it under `heading` (default: its name), among the analyses of masks if it
    shows what was masked, else among those of scores. Analyses with a lower `place` come first, and
    get room for their plots first; the built-in ones have 10, 20, ... Raise `version` if the same
    results give other findings.
    """
    facts = {"heading": heading, "of_masks": of_masks, "place": place, "version": version}
    return register("analysis", name, **facts)


def metric(
    name: str,
    *,
    graded: bool = False,
    parts: Mapping[str, Part] | None = None,
    besides: Mapping[str, Part] | None = None,
) -> Callable[[Scorer], Scorer]:
    """Register a function as the metric `name`, which tasks state as `metric="NAME"`.

    The function takes a prediction and the acceptable answers of its example, and returns a score
    from 0 to 1; a task's score is the mean over its examples. State `graded=True` if a prediction
    can be partly right. `parts` and `besides` are figures of all predictions together, functions of
    (predictions, the answers of each): the score is the mean of `parts` if there are any, and
    `besides` are reported with it. Raises ConfigError for a name in use, and for a function that
    cannot be called this way.
    """

    def decorate(score: Scorer) -> Scorer:
        if name in METRICS and name not in names("metric"):
            raise ConfigError(f"metric {name!r} is one of maskpolicy's own: rename it")
        try:
            inspect.signature(score).bind("prediction", ["answer"])
        except TypeError as error:
            raise ConfigError(
                f"metric {name!r} cannot be called with (prediction, answers): {error}: write "
                "def NAME(prediction, answers) -> float"
            ) from None
        register("metric", name)(score)
        new = entry("metric", name)
        own = {key: _checked(new, part, -1) for key, part in (parts or {}).items()}
        more = {key: _checked(new, f, -_LARGEST, _LARGEST) for key, f in (besides or {}).items()}
        _add_scorer(new, score, {"parts": own, "besides": more, "graded": graded})
        return score

    return decorate


def add_metric(new: Registered, score: Scorer, parts: Mapping[str, Part]) -> None:
    """Register a metric that is not a function of a plugin file; see `metric`."""
    _add(new)
    checked = {key: _checked(new, part) for key, part in parts.items()}
    _add_scorer(new, score, {"parts": checked, "graded": True})


def _add_scorer(new: Registered, score: Scorer, about: Mapping[str, Any]) -> None:
    title = new.name.replace("_", " ")
    METRICS[new.name] = Metric(new.name, _checked(new, score), title, **about)


def _checked(
    new: Registered, score: Callable[..., float], least: float = 0, most: float = 1
) -> Callable[..., float]:
    """Wrap a function of a metric: errors and values beyond the bounds name the metric."""

    def checked(predicted: Any, answers: Any) -> float:
        try:
            value = float(score(predicted, answers))
        except MaskpolicyError:
            raise
        except Exception as error:
            why = cause_at(error, new.file)
            raise PluginError(f"metric {new.name!r} failed: {why}") from error
        if not least - 1e-9 <= value <= most + 1e-9:  # rounded
            what = repr(predicted) if isinstance(predicted, str) else "all predictions"
            bounds = "finite number" if most > 1 else f"number from {least} to 1"
            raise PluginError(f"metric {new.name!r} returned {value} for {what}: return a {bounds}")
        return min(max(value, least), most)

    return checked


def entry(kind: str, name: str) -> Registered:
    """Return the plugin registered as `name`; raises ConfigError with the choices if none is."""
    try:
        return _ENTRIES[kind, name]
    except KeyError:
        raise ConfigError(unknown(kind, name, names(kind))) from None


def clash(kind: str, name: str) -> str | None:
    """Return the message about a second plugin of this name, or None if there is no second."""
    if (second := _CLASHES.get((kind, name))) is None:
        return None
    where = f"{_ENTRIES[kind, name].where} and {second.where}"
    return f"{kind} {name!r} is defined twice: {where}; rename one of them"


def names(kind: str) -> list[str]:
    """Return all registered names of one kind, sorted."""
    return sorted(name for of, name in _ENTRIES if of == kind)


def entries() -> tuple[Registered, ...]:
    """Return every registered plugin, in the order of registration."""
    return tuple(_ENTRIES.values())


def forget(files: Iterable[Path]) -> None:
    """Remove the plugins that these plugin files define, so that they can be imported again."""
    gone = {str(path) for path in files}
    for table in (_CLASHES, _ENTRIES):
        for key in [key for key, each in table.items() if each.file in gone and not each.code]:
            del table[key]
            if key[0] == "metric" and table is _ENTRIES:
                METRICS.pop(key[1], None)


def is_builtin(plugin: Any) -> bool:
    """Return whether a plugin's class, or its function, comes with maskpolicy."""
    return str(plugin.__module__).startswith("maskpolicy.")


def _entry(
    kind: str, name: str, plugin: Any, facts: dict[str, Any], decorator: FrameType | None
) -> Registered:
    """Return a plugin's entry; its line is that of the decorator, whose frame is `decorator`."""
    caller = decorator.f_back if decorator else None
    try:
        own = inspect.unwrap(plugin)  # of a decorator from another file, such as lru_cache
        file = inspect.getsourcefile(own) or "<unknown>"
        if caller is not None and caller.f_code.co_filename == file:
            line = caller.f_lineno
        else:  # decorated in another file; slower, because this parses the file
            line = inspect.getsourcelines(own)[1]
    except (OSError, TypeError):  # typed into an interpreter
        file, line = "", 0
    if not Path(file).is_file():  # or a cell of a notebook
        file, line = f"<{plugin.__module__}>", 0
    new, path = Registered(kind, name, plugin, facts, file, line), Path(file)
    is_known = is_builtin(plugin) or str(plugin.__module__).startswith(isolation.PREFIX)
    if is_known or not line:
        return new
    isolation.IMPORTED.add(str(plugin.__module__))
    package = str(plugin.__module__).partition(".")[0]
    return replace(new, code=isolation.imported_code(path, new.base, package))


def _check(new: Registered) -> None:
    """Raise ConfigError for an invalid name, kind of object or field of a plugin."""
    what = f"{new.where}: {new.kind} {new.name!r}"
    if not isinstance(new.name, str) or not new.name.strip():
        raise ConfigError(f'{new.where}: @{new.kind} needs a name first, as in @{new.kind}("mine")')
    own, is_metric = inspect.unwrap(new.plugin), new.kind == "metric"
    if not (inspect.isroutine(own) if is_metric else inspect.isclass(own)):
        raise ConfigError(f"{what} must be {'a function' if is_metric else 'a class'}")
    if new.name == OWN_NAMES.get(new.kind):
        raise ConfigError(f"{what} is a name of maskpolicy's own: rename it")
    reserved = sorted(hooks.field_names(new.plugin) & RESERVED[new.kind])
    if reserved:
        raise ConfigError(f"{what} has a field {reserved[0]!r}, a reserved name: rename it")


def check_hooks(kind: str, plugin: type, what: str) -> None:
    """Raise ConfigError if a class does not fit the hooks of its kind; messages begin with `what`.

    A hook must have the form and the parameters of the table. A public attribute whose name is
    close to that of a missing hook is reported as a misspelling; other attributes are ignored, and
    so are the hooks of statistics if the class reads no statistics.
    """
    known, own = {hook.name: hook for hook in hooks.HOOKS[kind]}, hooks.field_names(plugin)
    if kind == "policy" and not hooks.reads_statistics(plugin):
        known = {name: hook for name, hook in known.items() if hook not in hooks.OF_STATISTICS}
    _check_defaults(plugin, own, what)
    there = {name for name in dir(plugin) if not name.startswith("_")} | own
    for name in sorted(there - own - known.keys()):
        near = get_close_matches(name, known, n=1, cutoff=_SIMILAR)
        if near and near[0] not in there:
            raise ConfigError(
                f"{what} defines `{name}`, which maskpolicy does not use: did you mean "
                f"`{near[0]}`? Call it `_{name}` if it is a helper of yours"
            )
    for hook in known.values():
        if hook.name in there:
            _check_form(hook, plugin, hook.name in own, what)
            if hook.needs and hook.needs not in there:
                raise ConfigError(f"{what} has `{hook.name}` but no `{hook.needs}`: add it")
        elif hook.required and hook.instead not in there:
            raise ConfigError(f"{what} has no {hook.form} `{hook.name}`: add {hook.signature}")
    if hooks.COUNT.name in known and hooks.COUNT.name not in there:
        count = hooks.COUNT
        raise ConfigError(
            f"{what} takes `{hooks.STATISTICS}` but has no `{count.name}`: add {count.signature}"
        )
    again = hooks.COUNT.name in known and hooks.STATISTICS in hooks.COUNT.extra(plugin)
    if again and hooks.PASSES.of(plugin) < 2:
        raise ConfigError(
            f"{what}: the `{hooks.STATISTICS}` of `count` are None in its only pass: write "
            "passes: ClassVar = 2, or leave the parameter out"
        )
    only = hooks.ONLY_SELECT
    for name in only.of(plugin) if kind == "policy" and only.name not in own else ():
        if name not in own:
            raise ConfigError(f"{what}: {only.name}: {unknown('field', name, own)}")


def _check_defaults(plugin: type, own: set[str], what: str) -> None:
    """Raise ConfigError for a subclass of a dataclass with fields that `dataclass` did not see."""
    types = {} if not own or _FIELDS in vars(plugin) else inspect.get_annotations(plugin)
    typed = {
        n for n, t in types.items() if not (n[0] == "_" or n.isupper() or "ClassVar" in str(t))
    }
    for name in sorted({name for name in own if _is_unseen(plugin, name)} | typed):
        raise ConfigError(
            f"{what}: `{name}` has no effect in this subclass: write `{name}: TYPE = ..`, and "
            "@dataclass(frozen=True) above the class"
        )


def _is_unseen(plugin: type, field: str) -> bool:
    """Return whether a class, or one before that of the field, has another default for it."""
    for each in plugin.__mro__:
        if _FIELDS in vars(each) and field in inspect.get_annotations(each):
            break
        if field in vars(each):
            return not hasattr(vars(each)[field], "__get__")
    return False


def _check_form(hook: hooks.Hook[Any], plugin: type, is_field: bool, what: str) -> None:
    """Raise ConfigError for a method that cannot be called, or a variable of another type."""
    found = inspect.getattr_static(plugin, hook.name, None)
    if hook.form != "method":
        if inspect.isroutine(found):
            raise ConfigError(f"{what}: `{hook.name}` must be a {hook.form}, not a method")
        if hook.form == "class variable" and not is_field:
            schema.check(hook.of(plugin), hook.annotation, f"{what}: {hook.name}")
        return
    if is_field or not callable(hook.of(plugin)):
        raise ConfigError(f"{what}: `{hook.name}` must be a method, {hook.signature}")
    selves = () if isinstance(found, staticmethod | classmethod) else ("self",)
    try:
        signature = inspect.signature(hook.of(plugin))
    except (TypeError, ValueError):  # compiled code has no signature
        return
    try:
        extra = set(hook.may_take) & signature.parameters.keys()
        signature.bind(*selves, *hook.takes, **dict.fromkeys(extra))
    except TypeError as error:
        known = {*selves, *hook.takes, *hook.may_take}
        for name in sorted(signature.parameters.keys() - known):
            if near := get_close_matches(name, known, n=1):
                raise ConfigError(
                    f"{what}: `{hook.name}` has a parameter {name!r}: did you mean {near[0]!r}?"
                ) from None
        wrong = f"cannot be called with ({', '.join((*selves, *hook.takes))}): {error}"
        raise ConfigError(f"{what}: `{hook.name}` {wrong}: write {hook.signature}") from None


def cause_in(plugin: Any, error: BaseException) -> str:
    """Return the cause of an error, with the line in the file that defines `plugin`'s class."""
    try:
        file = inspect.getsourcefile(type(plugin)) or ""
    except (OSError, TypeError):  # typed into an interpreter
        file = ""
    return cause_at(error, file)


@contextmanager
def policy_errors(policy: Any, doing: Callable[[], str]) -> Iterator[None]:
    """Raise a `policy_fault` for an exception in the block, unless it is one of ours."""
    try:
        yield
    except MaskpolicyError:
        raise
    except Exception as error:
        what = f"{doing()} failed: {cause_in(policy, error)}"
        raise policy_fault(policy, what) from error


def depends(policy: Any) -> Json:
    """Return what a policy's `depends` returns; raises a `policy_fault` if it fails."""
    with policy_errors(policy, lambda: "depends"):
        found = hooks.DEPENDS.of(policy)()
    return keys.plain(found, f"{policy_name(policy)}: depends")


def gives_examples(policy: Any) -> bool:
    """Return whether a policy decides how many examples a passage gives."""
    count = hooks.EXAMPLES_OF.of(policy)
    with policy_errors(policy, lambda: "examples_of no passages"):
        return count is not None and count([]) is not None


def policy_fault(policy: Any, what: str) -> StageError:
    """Return the error for what a policy did wrong.

    It is a PluginError for a user's policy, and a StageError for a built-in one.
    """
    fault = StageError if is_builtin(type(policy)) else PluginError
    return fault(f"{policy_name(policy)}: {what}")


def policy_name(policy: Any) -> str:
    """Return e.g. "policy mine" for an instance: all names of its class, else the class's own."""
    own = sorted(
        each.name for each in entries() if each.kind == "policy" and each.plugin is type(policy)
    )
    return f"policy {' or '.join(own) or type(policy).__name__}"


def statistics_for(hook: Hook[Any], plugin: Any, statistics: Statistics | None) -> dict[str, Any]:
    """Return the keyword argument `statistics` of a policy's method; {} if it has none.

    Raises ConfigError if the method has the parameter and `statistics` is None.
    """
    if hooks.STATISTICS not in hook.extra(plugin):
        return {}
    if statistics is None:
        raise ConfigError(
            f"{policy_name(plugin)}: needs the statistics of a corpus: name a finished "
            "run with --run (or `statistics=` in Python)"
        )
    return {hooks.STATISTICS: statistics}
