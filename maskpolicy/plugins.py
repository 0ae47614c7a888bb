"""Finds policies, tasks and analyses: built-in folders, files of the user, entry points."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from maskpolicy import faults, registry
from maskpolicy.errors import ConfigError, cause, unknown

FOLDERS = {"policy": "policies", "task": "tasks", "analysis": "maskpolicy.analyses"}
GROUP = "maskpolicy.plugins"
_ROOT = Path(__file__).resolve().parent.parent


def find(kind: str, name: str, others: Sequence[str] = ()) -> registry.Entry:
    """Return the plugin `name`; entry points are imported only for a name not known without them.

    Raises ConfigError for an unknown name, with the choices (`others` are some besides) and what
    packages failed to load, and for a name that two plugins define.
    """
    load_builtin(kind)
    broken = load_entry_points() if name not in registry.names(kind) else []
    if name not in registry.names(kind):
        more = f"; a package that may hold it failed: {broken[0]}" if broken else ""
        raise ConfigError(unknown(kind, name, [*registry.names(kind), *others]) + more)
    found = registry.entry(kind, name)
    clash = registry.clash(kind, name)
    if clash and not is_builtin(found):
        raise ConfigError(clash)
    return found


def of_run(kind: str, name: str, files: Sequence[str] = ()) -> registry.Entry:
    """Return the plugin that a finished run names.

    Nothing is imported because a run says so: a plugin of a file that this command was not given
    raises ConfigError. `files` are those that the run says it had, for the message.
    """
    load_builtin(kind)
    if name not in registry.names(kind):
        load_entry_points()
    if name in registry.names(kind):
        return find(kind, name)
    had = f" (the run had {', '.join(files)})" if files else ""
    raise ConfigError(
        f"{kind} {name!r} is a plugin, and no plugin is loaded because a run names it: if you "
        f"trust its file, give --plugin FILE{had}"
    )


def load_builtin(kind: str) -> None:
    """Import every module of the built-in folder of one kind."""
    package = _package(FOLDERS[kind])
    for path in sorted(Path(next(iter(package.__path__))).glob("[!_]*.py")):
        importlib.import_module(f"{package.__name__}.{path.stem}")


def load_entry_points() -> list[str]:
    """Import what other installed packages offer; return a line for each that is broken."""
    broken = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - others must still be found
            package = f" of {point.dist.name}" if point.dist else ""
            broken.append(f"plugin {point.name!r}{package} ({point.value}): {cause(error)}")
    return broken


def load_files(paths: Iterable[str | Path]) -> None:
    """Import plugin files of the user, once each, whatever the working directory."""
    for path in paths:
        load_file(Path(path))


def load_file(path: Path) -> ModuleType:
    """Import one plugin file; its folder is importable while it loads."""
    path = path.resolve()
    if path.is_dir():
        raise ConfigError(f"plugin {path}: is a folder: name a Python file in it")
    if not path.is_file():
        raise ConfigError(f"plugin {path}: no such file")
    name = f"maskpolicy_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"plugin {path}: not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before = registry.entries()
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except ConfigError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(f"plugin {path} failed: {faults.told(error, str(path))}") from error
    finally:
        sys.path.remove(str(path.parent))
    if not _registers(module, before):
        del sys.modules[name]
        raise ConfigError(
            f"plugin {path}: registers nothing: put @policy(NAME), @task(NAME, ..) or "
            "@analysis(NAME) of maskpolicy.registry above its class"
        )
    return module


def _registers(module: ModuleType, before: Sequence[registry.Entry]) -> bool:
    """Whether a plugin file brings any plugin: its own, or one that it imports from beside it."""
    held = {id(value) for value in vars(module).values()}
    return any(
        entry not in before or entry.file == module.__file__ or id(entry.plugin) in held
        for entry in registry.entries()
    )


def code(entry: registry.Entry) -> dict[str, str]:
    """Return the sha256 of a user's plugin file and of what it imports from beside it, by name.

    Empty for built-in plugins: their stages' VERSION stands for them. Files are told by name and
    not by path, so that a plugin may move. Other imports belong to installed distributions.
    """
    if is_builtin(entry):
        return {}
    path = Path(entry.file)
    files: dict[str, Path] = {}
    _follow(path, files)
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}


def is_builtin(entry: registry.Entry) -> bool:
    """Return whether a plugin comes with maskpolicy."""
    folders = [_ROOT / name.replace(".", "/") for name in FOLDERS.values()]
    return Path(entry.file).parent in folders


def _follow(path: Path, files: dict[str, Path], base: Path | None = None) -> None:
    """Collect a Python file and, recursively, the modules beside it that it imports."""
    base = base or path.parent
    name = path.relative_to(base).as_posix()
    if name in files:
        return
    files[name] = path
    try:
        parsed = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # whoever imports it does without
        return
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "", *(f"{node.module or ''}.{a.name}" for a in node.names)]
        else:
            continue
        for module in modules:
            stem = base.joinpath(*module.strip(".").split("."))
            for found in (stem.with_suffix(".py"), stem / "__init__.py"):
                if found.is_file() and found.is_relative_to(base):
                    _follow(found, files, base)


def _package(name: str) -> ModuleType:
    """Import a built-in folder from beside maskpolicy, not from the working directory."""
    if name.startswith("maskpolicy."):
        return importlib.import_module(name)
    known = sys.modules.get(name)
    if known is None:
        folder = _ROOT / name
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None or not (folder / "__init__.py").is_file():
            raise ConfigError(f"{folder} is missing: reinstall maskpolicy")
        known = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(known)
    if Path(next(iter(known.__path__))).resolve() != _ROOT / name:
        raise ConfigError(
            f"another package called {name!r} is already imported from {next(iter(known.__path__))}"
        )
    return known
