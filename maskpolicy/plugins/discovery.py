"""Find plugins: those of the built-in packages, of the user's files and of entry points."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from maskpolicy.core import keys, schema
from maskpolicy.core.errors import ConfigError, MaskpolicyError, cause, cause_at, unknown
from maskpolicy.core.files import files_below, sha256
from maskpolicy.core.metrics import METRICS, Metric
from maskpolicy.plugins import evaluate_metrics, hooks, isolation, registry
from maskpolicy.plugins.registry import Registered

PACKAGES = {  # where the plugins of each kind that come with maskpolicy lie
    "policy": "maskpolicy.policies",
    "task": "maskpolicy.tasks",
    "analysis": "maskpolicy.analyses.builtin",
}
LISTS = {  # the commands that show the plugins of each kind
    "policy": "maskpolicy list policies",
    "task": "maskpolicy list tasks",
    "metric": "maskpolicy list metrics",
    "analysis": "maskpolicy list analyses",
}
OTHER_NAMES: Mapping[str, Mapping[str, str]] = {  # of papers, for the plugins that messages suggest
    "policy": {
        **dict.fromkeys(("mlm", "bert", "uniform", "+rand"), "random"),
        **dict.fromkeys(("ssm", "+ssm", "entity", "entities"), "salient-span"),
        **dict.fromkeys(("bart", "infilling", "text-infilling"), "poisson"),
        **{"wwm": "whole-word", "spanbert": "span", "t5": "span-corruption", "+orig": "original"},
        **{"pegasus": "gap-sentences", "ernie": "phrases", "ptw": "pos-weighted"},
    },
    "task": {
        **dict.fromkeys(("natural-questions", "naturalquestions", "nq-open", "nqopen"), "nq"),
        **{"wizard-of-wikipedia": "wow", "aida": "aidayago2", "csv": "table"},
    },
    "metric": {"em": "exact_match", "acc": "accuracy", "mcc": "matthews"},
}
GROUP = "maskpolicy.plugins"
NOT_LOADED = "a plugin that only a run names is not loaded"
_ROOTS: dict[tuple[str, str], Path] = {}  # the file whose import registered a plugin


def find_plugin(kind: str, name: str, others: Sequence[str] = (), where: str = "") -> Registered:
    """Return the plugin `name`; entry points are imported only if it is unknown without them.

    Raises ConfigError at `where` for a name that two plugins define, and for an unknown name. The
    message then has the choices, with `others` among them, or a package that failed to load.
    """
    load_builtin(kind)
    place = f"{where}: " if where else ""
    broken = load_entry_points() if name not in registry.names(kind) else []
    if name not in registry.names(kind):
        if name.endswith(".py"):
            advice = f"give --plugin {name}, and name the {kind} that it registers"
            raise ConfigError(f"{place}{kind} {name!r} is a file: {advice}")
        if "," in name:
            raise ConfigError(f"{place}{kind} {name!r} is several: write [{name}]")
        more = "; one of your own is found by --plugin FILE"
        if broken:
            more = f"; a package that may hold it failed: {broken[0]}"
        names = [*registry.names(kind), *others]
        meant = OTHER_NAMES.get(kind, {}).get(name.casefold(), "")
        raise ConfigError(place + unknown(kind, name, names, (meant,), LISTS[kind]) + more)
    found = registry.entry(kind, name)
    clash = registry.clash(kind, name)
    if clash and not registry.is_builtin(found.plugin):
        raise ConfigError(place + clash)
    return found


def find_metric(name: str) -> Metric:
    """Return a metric by name; the version of a plugin's metric is a digest of its code.

    A metric `evaluate:NAME` is imported from the local cache of `evaluate`. Raises ConfigError for
    an unknown name, with the choices.
    """
    if name.startswith(evaluate_metrics.PREFIX):
        whole = f"{evaluate_metrics.PREFIX}{evaluate_metrics.module_of(name)}"
        if whole not in METRICS:  # else another figure of a module that is loaded
            load_file(evaluate_metrics.cached(name))
    if name not in METRICS:
        find_plugin("metric", name, others=tuple(METRICS))
    if name not in registry.names("metric"):
        return METRICS[name]
    digest = keys.digest(code_digests(find_plugin("metric", name)))
    return replace(METRICS[name], version=digest[:12])


def instance(kind: str, name: str, given: Mapping[str, Any], where: str = "") -> Any:
    """Return an instance of the plugin `name` with the fields `given`; the others have defaults.

    Fields may be JSON: lists become tuples, and blocks become dataclasses. Raises ConfigError at
    `where` for an unknown name, and for values that its annotations or its class do not allow.
    """
    entry, place = find_plugin(kind, name), where or f"{kind} {name}"
    return build(entry, schema.block(entry.plugin, given, place), place)


def build(entry: Registered, values: Mapping[str, Any], where: str) -> Any:
    """Return an instance of a plugin's class, from a value for every field.

    Raises ConfigError at `where` if the class raises an error for a value; a message of the class
    that begins with a field's name is placed at that field.
    """
    try:
        return entry.plugin(**values)
    except Exception as error:
        if not isinstance(error, MaskpolicyError | ValueError | TypeError):
            raise ConfigError(f"{where}: {cause_at(error, entry.file)}") from error
        field, _, reason = str(error).partition(": ")
        if field in values:
            raise ConfigError(f"{schema.at(where, field)}: {reason}") from error
        raise ConfigError(f"{where}: {error}") from error


def plugin_of_run(kind: str, name: str, files: Sequence[str] = ()) -> Registered:
    """Return the plugin that a finished run names.

    A file that only the run names is not imported: raises ConfigError if the plugin is in such a
    file. `files` are the plugin files of the run, for the message.
    """
    load_builtin(kind)
    if name not in registry.names(kind):
        load_entry_points()
    if name in registry.names(kind):
        return find_plugin(kind, name)
    used = f" (the run used {', '.join(files)})" if files else ""
    raise ConfigError(
        f"{kind} {name!r} is a plugin, and {NOT_LOADED}: if you trust its file, give --plugin "
        f"FILE{used}"
    )


@cache
def load_builtin(kind: str) -> None:
    """Import every module of the built-in package of one kind, if there is one."""
    if kind not in PACKAGES:
        return
    package = importlib.import_module(PACKAGES[kind])
    for path in sorted(Path(str(package.__file__)).parent.glob("[!_]*.py")):
        importlib.import_module(f"{PACKAGES[kind]}.{path.stem}")


def load_entry_points() -> list[str]:
    """Import the plugins of other installed packages; return a line for each that fails."""
    for name in sorted(isolation.IMPORTED):  # in the process of the command
        with suppress(Exception):
            importlib.import_module(name)
    broken = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        before = registry.entries()
        try:
            point.load()
            for entry in registry.entries():
                if entry not in before:
                    code_digests(entry)
                    vars(sys.modules[entry.plugin.__module__])["print"] = isolation.print_aside
        except (Exception, SystemExit) as error:  # noqa: BLE001 - others must still be found
            package = f" of {point.dist.name}" if point.dist else ""
            broken.append(f"plugin {point.name!r}{package} ({point.value}): {cause(error)}")
    return broken


def load_files(paths: Iterable[str | Path] | None = None, *, fresh: bool = False) -> None:
    """Import plugin files of the user, each once.

    With `fresh`, files whose code has changed since are imported again, or forgotten if they lie in
    other folders than `paths`; without `paths`, all are imported again.
    """
    files = [Path(path).resolve() for path in paths or ()]
    folders = {path.parent for path in files}
    for home in isolation.stale() if fresh else ():
        registry.forget(home.code)
        isolation.forget(home)
        roots = home.roots if paths is None or home.folder in folders else []
        files = [*(root for root in roots if root not in files and root.is_file()), *files]
    for path in files:
        load_file(path)


@dataclass(frozen=True)
class Carried:
    """A function whose unpickling first imports the plugin files of the process that pickled it.

    Unpickling raises ConfigError if one of them has changed since.
    """

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)

    def __reduce__(self) -> Any:
        return _unpickled, (isolation.state(), pickle.dumps(self.function))


def _unpickled(state: isolation.State, pickled: bytes) -> Any:
    isolation.take(state)
    load_files(state.roots)
    load_builtin("policy")
    return pickle.loads(pickled)


def fault_of_path(path: Path) -> str:
    """Return why a path cannot be a plugin file, and what to do, or ""."""
    if path.is_dir():
        return "is a folder: name a Python file in it"
    if not path.is_file():
        return "no such file"
    if path.suffix != ".py":
        return "not a Python file (its name must end in .py)"
    return ""


def load_file(path: Path) -> ModuleType:
    """Import one plugin file, which may import the modules in its folder, now and later.

    Raises ConfigError if it fails or registers no plugin.
    """
    path = path.resolve()
    if fault := fault_of_path(path):
        raise ConfigError(f"plugin {path}: {fault}")
    home, before = isolation.home_of(path.parent), registry.entries()
    if path in home.roots:
        return home.load(path)
    try:
        module = home.load(path)
        evaluate_metrics.register_from(module, path)
        entries = registry.entries()
        news = [entry for entry in entries if entry not in before]
        held = {id(value) for value in vars(module).values()}  # perhaps from a module beside it
        if not news and not any(e.file == module.__file__ or id(e.plugin) in held for e in entries):
            raise ConfigError(
                f"plugin {path}: registers nothing: put @policy(NAME), @task(NAME, ..) or "
                "@analysis(NAME) above its class, or @metric(NAME) above its function"
            )
        _ROOTS.update({(new.kind, new.name): path for new in news})
    except BaseException as error:
        home.drop(path)
        registry.forget([path])
        if isinstance(error, ConfigError) or not isinstance(error, Exception | SystemExit):
            raise
        why = cause_at(error, str(path))
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and home.has(missing.partition(".")[0]):
            why += f"; write `import {missing}`: importlib would hide it from the plugin's key"
        raise ConfigError(f"plugin {path} failed: {why}") from error
    return module


def code_digests(entry: Registered) -> dict[str, str]:
    """Return a digest of each file of a user's plugin, by its name relative to `folder_of`.

    These are the plugin's file, the modules in its folder that it imports, at any depth, and the
    files that its class declares; imports of installed distributions are left out. The digest of a
    module is that of its code, without comments and layout. Built-in plugins have no digests: the
    version of their stages stands for their code.
    """
    path = Path(entry.file)
    if registry.is_builtin(entry.plugin):
        return {}
    if not path.is_file():
        raise ConfigError(
            f"{entry.kind} {entry.name!r}: is in no file, so an edit would compute nothing again: "
            "write it to a file, and name that in `plugins`"
        )
    home = _home(entry)
    if home is None:  # imported by others: the digests of what was imported
        for file, imported in entry.code.items():
            if not file.is_file() or isolation.digest_now(isolation.code_digest, file) != imported:
                raise ConfigError(f"{file}: was edited since it was imported: start Python again")
        data = {file: isolation.digest_now(sha256, file) for file in _files(entry)}
        return _named({**entry.code, **data}, entry.base)
    root = _ROOTS.get((entry.kind, entry.name), path)
    modules = isolation.closure(path, home.folder)
    if path not in home.roots:
        modules |= isolation.closure(root, home.folder)
    code = {module: home.code.get(module) or isolation.code_digest(module) for module in modules}
    data = {path: sha256(path) for path in _files(entry)}
    home.keyed |= {**data, **code}
    return _named({**code, **data}, home.folder)


def _home(entry: Registered) -> isolation.Home | None:
    """Return the home that imported a plugin's file; None if others did, perhaps later."""
    return None if entry.code else isolation.home_with(Path(entry.file))


def _named(files: Mapping[Path, str], folder: Path) -> dict[str, str]:
    """Return the digests of files by their names relative to a folder."""
    return {os.path.relpath(path, folder): digest for path, digest in sorted(files.items())}


def digest_of(entry: Registered, path: Path) -> tuple[str, str]:
    """Return the digests of a plugin's file: on disk, "" without a file, and as it is in use.

    They are computed as in `code_digests`. An imported module is in use as it was at its import; a
    module that is imported later is compared with the key then. When a data file, or a module of
    an installed package, was read is unknown: these are in use as they are on disk.
    """
    is_data, home = path in _files(entry), _home(entry)
    now = (sha256 if is_data else isolation.code_digest)(path) if path.is_file() else ""
    return now, now if is_data or home is None else home.code.get(path, home.keyed.get(path, now))


def changed_since(entry: Registered, recorded: Mapping[str, str]) -> list[str]:
    """Return the names of a plugin's files whose digests differ from those in a finished run."""
    now = code_digests(entry)
    return sorted(name for name in {*recorded, *now} if recorded.get(name) != now.get(name))


def folder_of(entry: Registered) -> Path:
    """Return the folder that the names in `code_digests` are relative to."""
    home = _home(entry)
    return home.folder if home else entry.base


def file_of(plugin: Any, name: str) -> Path:
    """Return the path of a file that a plugin, an instance or its class, declares in `files`.

    The file is in the folder of the plugin's own file; its digest is in the keys of the plugin's
    stages. Raises ConfigError for a name that is not declared, and for a file that has changed
    since a key was computed.
    """
    made = plugin if isinstance(plugin, type) else type(plugin)
    if name not in hooks.FILES.of(made):
        raise ConfigError(f"{made.__name__}: {name!r} is not declared: files = [{name!r}]")
    beside = Path(inspect.getsourcefile(made) or "").resolve()
    home, path = isolation.home_with(beside), beside.parent / name
    if home is not None and path.is_file() and path not in home.code:
        home.compare(path, sha256(path))
    return path


def _files(entry: Registered) -> list[Path]:
    """Return the files that a plugin declares, and those in a declared folder.

    A dataclass field called `files` is a setting, whose value is in the key. Raises ConfigError for
    a file that does not exist.
    """
    found: list[Path] = []
    is_field = hooks.FILES.name in hooks.field_names(entry.plugin)
    for name in () if is_field else hooks.FILES.of(entry.plugin):
        path = Path(entry.file).parent / name
        if not path.exists():
            raise ConfigError(f"{entry.where}: files: there is no {path}")
        found += [path] if path.is_file() else files_below(path) if path.is_dir() else []
    return found
