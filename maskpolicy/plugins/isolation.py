"""Import the user's plugin files, each folder in its own namespace, and check what they read.

A stage's key holds digests of a plugin's code and of the files that it declares. So modules are
compiled from the bytes whose code was hashed, and a plugin may not import or open any other file of
its folder.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from maskpolicy.errors import ConfigError
from maskpolicy.files import sha256
from maskpolicy.plugins.sourcecode import STANDARD, closure, code_digest, digest_of_code

PREFIX = "maskpolicy_plugin_"
_FORMER = {  # modules that plugins of the first version import from, and their new names
    "maskpolicy.registry": "maskpolicy",
    "maskpolicy.sources": "maskpolicy",
    "maskpolicy.derived": "maskpolicy.findings",
    "maskpolicy.hidden": "maskpolicy.findings",
    "maskpolicy.fitting": "maskpolicy.learned",
}
_WRITES = os.O_WRONLY | os.O_RDWR
_HOMES: dict[str, Home] = {}  # by package
_GIVEN: set[str] = set()  # folders that plugins may read, because other keys cover their files
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Home:
    """A folder of plugin files: its modules, which no other folder's plugins see."""

    folder: Path
    package: str
    roots: list[Path] = field(default_factory=list)  # the files that the user named
    followed: set[Path] = field(default_factory=set)  # modules that a key covers
    compiled: dict[Path, str] = field(default_factory=dict)  # digests of imported modules' bytes
    code: dict[Path, str] = field(default_factory=dict)  # and of their code, as a key holds them
    keyed: dict[Path, str] = field(default_factory=dict)  # digests that a key holds
    declared: set[Path] = field(default_factory=set)  # data files and folders of `files`
    early: list[Path] = field(default_factory=list)  # opened before `files` was known
    is_loading: bool = False
    refused: str = ""  # the first refusal, even if the plugin caught its error
    _neighbours: dict[str, bool] = field(default_factory=dict)

    def name_of(self, path: Path) -> str:
        """Return the full name of the module of a plugin file."""
        return f"{self.package}.{path.stem.replace('.', '_')}"

    def load(self, path: Path) -> ModuleType:
        """Import a plugin file, or return the module that it has been imported as."""
        name = self.name_of(path)
        self.followed |= closure(path, self.folder)
        if path not in self.roots:
            self.roots.append(path)
        if name in sys.modules:
            return sys.modules[name]
        loader = _Loader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        assert spec is not None  # a loader was given
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        self.is_loading = True
        try:
            loader.exec_module(module)
        finally:
            self.is_loading = False
        return module

    def drop(self, path: Path) -> None:
        """Forget a plugin file that could not be used."""
        sys.modules.pop(self.name_of(path), None)
        self.compiled.pop(path, None)
        self.code.pop(path, None)
        self.early.clear()
        self.refused = ""
        if path in self.roots:
            self.roots.remove(path)

    def compile(self, path: Path, data: bytes) -> None:
        """Record the bytes of a module before it runs; raises ConfigError if no key covers it."""
        if path not in self.followed:
            raise self._refused(
                f"plugin {self.roots[-1]}: imports {self._short(path)} in a way that its key cannot"
                f" follow: write `import {path.stem}`"
            )
        self.compiled[path] = digest = hashlib.sha256(data).hexdigest()
        if path.suffix == ".py" and not self._is_declared(path):
            digest = digest_of_code(data)
        self.code[path] = digest
        self.compare(path, digest)

    def compare(self, path: Path, digest: str) -> None:
        """Raise ConfigError if a file no longer has the digest that a key holds."""
        if self.keyed.setdefault(path, digest) != digest:
            raise self._refused(changed(path))

    def runs(self, path: Path, now: str) -> str:
        """Return the digest of a file as this command uses it; `now` is that of the file on disk.

        A module that is imported later is compared with the key then. For a declared file it is
        `now`, because libraries may read such a file unnoticed.
        """
        if path in self.code:
            return self.code[path]
        return now if self._is_declared(path) else self.keyed.get(path, now)

    def open(self, path: Path) -> None:
        """Raise ConfigError for a file that a plugin opens and its key does not cover."""
        if path in self.compiled:
            return
        if self._is_declared(path):
            self.compare(path, sha256(path))
        elif self.is_loading:
            self.early.append(path)
        else:
            raise self._refused(self._undeclared(path))

    def declare(self, paths: Iterable[Path]) -> None:
        """Add the paths that the classes of an imported file declare as `files`."""
        self.declared |= set(paths)
        for path in filter(self._is_declared, self.code):  # modules that are read as data, too
            self.code[path] = self.keyed[path] = self.compiled[path]
        early, self.early = self.early, []
        for path in early:
            self.open(path)

    def digest_of(self, path: Path) -> str:
        """Return the digest of a file on disk as a key holds it: of a module, that of its code."""
        return sha256(path) if self._is_declared(path) else code_digest(path)

    def has(self, top: str, importer: str) -> bool:
        """Return whether `import top` in a plugin's module means a module in its folder."""
        if top == "maskpolicy" or top in STANDARD or importer == str(self.folder / f"{top}.py"):
            return False
        known = self._neighbours.get(top)
        if known is None:
            found = PathFinder.find_spec(top, [str(self.folder)])
            known = found is not None
            if found is not None and found.loader is None:  # a folder without __init__.py
                known = importlib.util.find_spec(top) is None
            self._neighbours[top] = known
        return known

    def import_(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Replace `__import__` for the `import` statements of plugins, in functions too."""
        top = name.partition(".")[0]
        if level == 0 and self.has(top, str((globals or {}).get("__file__"))):
            full = f"{self.package}.{name}"
            importlib.import_module(full)
            if fromlist:
                return builtins.__import__(full, globals, locals, fromlist, 0)
            return sys.modules[f"{self.package}.{top}"]
        try:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        except ModuleNotFoundError as error:
            if error.name != name or name not in _FORMER:
                raise
        now = _FORMER[name]
        log.warning("plugin %s: %s is now %s: import from there", self.roots[-1], name, now)
        return builtins.__import__(now, globals, locals, fromlist or (), level)

    def _is_declared(self, path: Path) -> bool:
        return any(path == known or known in path.parents for known in self.declared)

    def _refused(self, line: str) -> ConfigError:
        self.refused = self.refused or line
        return ConfigError(line)

    def _undeclared(self, path: Path) -> str:
        if path.suffix == ".pyc":
            path = Path(importlib.util.source_from_cache(str(path)))
        name = self._short(path)
        advice = f'declare it in the class, files = ["{name}"]'
        if path.suffix == ".py":
            advice = "import it with an `import` statement"
        return f"plugin {self.roots[-1]}: reads {name}, which its key does not cover: {advice}"

    def _short(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


class _Loader(SourceFileLoader):
    """Compiles the bytes that are hashed, and uses no cached bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        data = self.get_data(self.path)
        _HOMES[fullname.partition(".")[0]].compile(Path(self.path), data)
        code: CodeType = self.source_to_code(data, self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        home = _HOMES[module.__name__.partition(".")[0]]
        own = {"__import__": home.import_, "print": _print}
        vars(module)["__builtins__"] = {**vars(builtins), **own}
        super().exec_module(module)


def _print(*values: object, file: Any = None, **more: Any) -> None:
    """Replace `print` in plugins: the standard output belongs to the command, e.g. for JSON."""
    builtins.print(*values, file=sys.stderr if file is None else file, **more)


class _Finder(MetaPathFinder):
    """Finds the modules of homes."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in _HOMES or package == fullname:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = _Loader(fullname, str(found.origin))
        elif found is not None and found.loader is not None and found.origin:  # compiled by others
            _HOMES[package].compile(Path(found.origin), Path(found.origin).read_bytes())
        return found


def changed(path: Path) -> str:
    """Return the message for a plugin file that no longer has the digest that a key holds."""
    return (
        f"plugin file {path}: was changed while a command that uses it is under way: run the "
        "command again"
    )


def home_of(folder: Path) -> Home:
    """Return the home of a folder; the first call creates it."""
    package = f"{PREFIX}{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
    if not _HOMES and not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        sys.addaudithook(_audit)
    if package not in _HOMES:
        _HOMES[package] = Home(folder, package)
        module = sys.modules[package] = ModuleType(package)
        module.__path__ = [str(folder)]
    return _HOMES[package]


def home_with(path: Path) -> Home | None:
    """Return the home whose modules include a file."""
    return next((home for home in _HOMES.values() if path in home.compiled), None)


def forget(home: Home) -> None:
    """Forget the modules of a home, so that they are imported again."""
    for name in [each for each in sys.modules if each.partition(".")[0] == home.package]:
        del sys.modules[name]
    del _HOMES[home.package]
    importlib.invalidate_caches()


def is_stale(home: Home) -> bool:
    """Return whether a module of a home has changed since it was imported."""
    return any(
        not path.is_file() or sha256(path) != digest for path, digest in home.compiled.items()
    )


def give(folder: Path) -> None:
    """Allow plugins to read a folder whose files other keys cover: a store, a task's data."""
    _GIVEN.add(os.path.join(folder.absolute(), ""))  # noqa: PTH118 - with a slash at the end


@contextmanager
def checked() -> Iterator[None]:
    """Raise ConfigError at the end if a plugin was refused a file and caught the error.

    The results that it computed without the file must not be stored.
    """
    for home in _HOMES.values():
        home.refused = ""
    yield
    for home in _HOMES.values():
        if home.refused:
            raise ConfigError(home.refused)


@dataclass(frozen=True)
class State:
    """What a child process needs to run the same plugin code, or to refuse other code."""

    roots: tuple[Path, ...]
    keyed: Mapping[Path, str]
    declared: frozenset[Path]
    given: frozenset[str]


def state() -> State:
    """Return the state for `take` in another process."""
    roots = tuple(path for home in _HOMES.values() for path in home.roots)
    keyed = {path: known for home in _HOMES.values() for path, known in home.keyed.items()}
    declared = frozenset(path for home in _HOMES.values() for path in home.declared)
    return State(roots, keyed, declared, frozenset(_GIVEN))


def take(given: State) -> None:
    """Record the digests of another process's plugin files; importing other code is an error."""
    _GIVEN.update(given.given)
    for root in given.roots:
        home = home_of(root.parent)
        home.declared |= {path for path in given.declared if home.folder in path.parents}
        home.keyed |= {
            path: known for path, known in given.keyed.items() if home.folder in path.parents
        }


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Check each file of its folder that a plugin opens; an audit hook for all files."""
    if event != "open" or not isinstance(arguments[0], str | bytes):
        return
    mode, flags = arguments[1], arguments[2]
    if flags & _WRITES or (isinstance(mode, str) and set(mode) & set("wax")):
        return
    path = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100 - for every file opened
    if not any(path.startswith(f"{home.folder}{os.sep}") for home in _HOMES.values()):
        return
    home = _reader()
    if home is None or not path.startswith(f"{home.folder}{os.sep}"):
        return
    elsewhere = (*_GIVEN, sys.prefix, sys.base_prefix)
    if "site-packages" not in path and not path.startswith(elsewhere):
        home.open(Path(path))


def _reader() -> Home | None:
    """Return the home of the plugin that opens a file; None if maskpolicy itself does.

    Files that an installed package reads while a plugin imports it belong to `Home.import_`.
    """
    frame = sys._getframe(2)
    while frame is not None:
        top = str(frame.f_globals.get("__name__")).partition(".")[0]
        if top == "maskpolicy":
            return None
        if top in _HOMES:
            return _HOMES[top]
        frame = frame.f_back  # type: ignore[assignment]
    return None
