"""Import the user's plugin files, each folder in its own namespace, and digest their code.

A stage's key holds digests of a plugin's code and of the files that it declares. So modules are
compiled from the bytes whose code was hashed, and code that has changed since is not imported.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import logging
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from maskpolicy.core.errors import ConfigError, listed
from maskpolicy.core.files import file_times, sha256

PREFIX = "maskpolicy_plugin_"
IMPORTED: set[str] = set()  # modules with plugins that others imported, here or in the command
_HOMES: dict[str, Home] = {}  # by package
_OPENED: dict[Path, Path | None] = {}  # a file: the plugin's folder; None: not to be reported
_UNREPORTED = re.compile(  # installed packages, devices, and files with the name of their digest
    rf"{re.escape(sysconfig.get_path('stdlib'))}/|.*/(?:site|dist)-packages/|/(?:dev|proc|sys)/"
    rf"|{re.escape(str(Path(__file__).parents[2]))}/(?:maskpolicy|policies|tasks)/"
    r"|.*/(?:[0-9a-f]{40}|[0-9a-f]{64})\b"
)
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Home:
    """A folder of plugin files: its modules, which no other folder's plugins see."""

    folder: Path
    package: str
    roots: list[Path] = field(default_factory=list)  # the files that the user named
    followed: set[Path] = field(default_factory=set)  # modules whose code a key holds
    code: dict[Path, str] = field(default_factory=dict)  # digests of imported modules
    keyed: dict[Path, str] = field(default_factory=dict)  # digests that a key holds

    def load(self, path: Path) -> ModuleType:
        """Import a plugin file, or return the module that it has been imported as."""
        name = self._name(path)
        self.followed |= closure(path, self.folder)
        if path not in self.roots:
            self.roots.append(path)
        if name in sys.modules:
            return sys.modules[name]
        loader = _Loader(name, str(path))
        spec = importlib.util.spec_from_file_location(name, path, loader=loader)
        assert spec is not None  # a loader was given
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        return module

    def drop(self, path: Path) -> None:
        """Forget a plugin file that could not be used."""
        sys.modules.pop(self._name(path), None)
        self.code.pop(path, None)
        self.keyed.pop(path, None)
        if path in self.roots:
            self.roots.remove(path)

    def record(self, path: Path, data: bytes) -> None:
        """Record the bytes of a module before it runs; raises ConfigError if it is in no key."""
        if path not in self.followed:
            raise ConfigError(
                f"plugin {self.roots[-1]}: imports {path.relative_to(self.folder).as_posix()} in a "
                f"way that its key cannot follow: write `import {path.stem}`"
            )
        self.code[path] = digest_of_code(data) if path.suffix == ".py" else _sha256(data)
        self.compare(path, self.code[path])

    def compare(self, path: Path, digest: str) -> None:
        """Raise ConfigError if a file no longer has the digest that a key holds."""
        if self.keyed.setdefault(path, digest) != digest:
            raise ConfigError(changed(path))

    def has(self, top: str) -> bool:
        """Return whether `import top` in a plugin's module means a module in its folder."""
        if top == "maskpolicy" or top in sys.stdlib_module_names:
            return False
        beside = PathFinder.find_spec(top, [str(self.folder)])
        if beside is not None and beside.loader is None:  # a folder without __init__.py
            return importlib.util.find_spec(top) is None
        return beside is not None

    def compile(self, path: Path, data: bytes) -> CodeType:
        """Compile a module; its imports of neighbouring files become imports of this package."""
        parsed = ast.parse(data, str(path))
        for node in ast.walk(parsed):
            for name in ("body", "orelse", "finalbody"):
                statements = getattr(node, name, None)
                if isinstance(statements, list):
                    own = [each for one in statements for each in self._own(one, path)]
                    setattr(node, name, own)
        return compile(ast.fix_missing_locations(parsed), path, "exec", dont_inherit=True)

    def _own(self, statement: ast.stmt, path: Path) -> Iterator[ast.stmt]:
        """Yield what replaces a statement: `import helper` then imports from this package.

        A module does not import itself: torch.py may import the installed torch.
        """

        def is_beside(name: str) -> bool:
            top = name.partition(".")[0]
            return path != self.folder / f"{top}.py" and self.has(top)

        if isinstance(statement, ast.ImportFrom):
            if not statement.level and is_beside(statement.module or ""):
                statement.module = f"{self.package}.{statement.module}"
            yield statement
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                bound, top = alias.asname, alias.name.partition(".")[0]
                names = [(alias.name, bound)]
                if is_beside(alias.name):  # `import pack.one` binds pack
                    names = [(f"{self.package}.{alias.name}", bound or top)]
                    names += [] if bound else [(f"{self.package}.{top}", top)]
                for name in names:
                    yield ast.copy_location(ast.Import([ast.alias(*name)]), statement)
        else:
            yield statement

    def _name(self, path: Path) -> str:
        name = path.stem
        if "." in name:  # a digest, because my_policy.py may lie beside my.policy.py
            name = f"{name.replace('.', '_')}_{_sha256(name.encode())[:8]}"
        return f"{self.package}.{name}"


class _Loader(SourceFileLoader):
    """Compiles the bytes that are hashed, and uses no cached bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        home, data = _HOMES[fullname.partition(".")[0]], self.get_data(self.path)
        home.record(Path(self.path), data)
        return home.compile(Path(self.path), data)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["print"] = print_aside
        super().exec_module(module)


def print_aside(*values: object, file: Any = None, **more: Any) -> None:
    """Replace `print` in plugins, because the command writes its standard output, e.g. JSON."""
    print(*values, file=sys.stderr if file is None else file, **more)


class _Finder(MetaPathFinder):
    """Finds the modules of homes."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in _HOMES or package == fullname:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, str(spec.origin))
        elif spec is not None and spec.loader is not None and spec.origin:  # compiled by others
            _HOMES[package].record(Path(spec.origin), Path(spec.origin).read_bytes())
        return spec


def changed(path: Path) -> str:
    """Return the message for a plugin file that no longer has the digest that a key holds."""
    return (
        f"plugin file {path}: was changed while a command that uses it is under way: run the "
        "command again"
    )


def home_of(folder: Path) -> Home:
    """Return the home of a folder; the first call creates it."""
    package = f"{PREFIX}{_sha256(str(folder).encode())[:8]}"
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
        sys.addaudithook(_note_opened)
    if package not in _HOMES:
        _HOMES[package] = Home(folder, package)
        module = sys.modules[package] = ModuleType(package)
        module.__path__ = [str(folder)]
    return _HOMES[package]


def home_with(path: Path) -> Home | None:
    """Return the home whose modules include a file."""
    return next((home for home in _HOMES.values() if path in home.code), None)


def forget(home: Home) -> None:
    """Forget the modules of a home, so that they are imported again."""
    for name in [name for name in sys.modules if name.partition(".")[0] == home.package]:
        del sys.modules[name]
    del _HOMES[home.package]
    importlib.invalidate_caches()


def stale() -> list[Home]:
    """Return the homes with a module, or a file that a plugin reads, that changed after that."""
    return [
        home
        for home in _HOMES.values()
        if any(_has_changed(*each) for each in {**home.keyed, **home.code}.items())
    ]


def _has_changed(path: Path, digest: str) -> bool:
    if not path.is_file():
        return True
    return digest not in (digest_now(code_digest, path), digest_now(sha256, path))


def digest_now(of: Callable[[Path], str], path: Path) -> str:
    """Return a digest of a file, which is computed again if the file is written."""
    return _digest_at(of, path, file_times([path]))


@cache
def _digest_at(of: Callable[[Path], str], path: Path, times: tuple[int, ...]) -> str:
    return of(path)


@dataclass(frozen=True)
class State:
    """What a child process needs to run the same plugin code, or to notice other code."""

    roots: tuple[Path, ...]
    keyed: Mapping[Path, str]
    reported: frozenset[Path] = frozenset()  # files that were reported already
    modules: tuple[str, ...] = ()  # IMPORTED


def state() -> State:
    """Return the state for `take` in another process."""
    roots = tuple(path for home in _HOMES.values() for path in home.roots)
    keyed = {path: digest for home in _HOMES.values() for path, digest in home.keyed.items()}
    reported = frozenset(path for path in _OPENED if _OPENED[path] is None)
    return State(roots, keyed, reported, (*IMPORTED,))


def take(state: State) -> None:
    """Record the digests of another process's plugin files; importing other code is an error."""
    _OPENED.update(dict.fromkeys(state.reported))
    IMPORTED.update(state.modules)
    for root in state.roots:
        home = home_of(root.parent)
        home.keyed |= {
            path: digest for path, digest in state.keyed.items() if home.folder in path.parents
        }


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    """Note a file that a plugin opens, itself or through a library: an audit hook.

    Ignores what maskpolicy opens for a plugin, what a plugin writes, and what it reads in
    `depends`, whose value is in its key.
    """
    if event != "open" or isinstance(arguments[0], int):
        return
    text = os.path.abspath(os.fsdecode(arguments[0]))  # noqa: PTH100 - `resolve` would open it
    frame = None if _UNREPORTED.match(text) else sys._getframe(1)
    is_keyed = bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR))
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        code = frame.f_code
        is_import = code.co_name == "<module>" and _UNREPORTED.match(code.co_filename)
        if package == "maskpolicy" or is_import:  # packages read their settings
            return
        is_keyed |= code.co_name == "depends"
        if package in _HOMES:
            _OPENED.setdefault(Path(text), _HOMES[package].folder)
            if is_keyed:
                _OPENED[Path(text)] = None
            return
        frame = frame.f_back


def name_unkeyed(keyed: Collection[Path]) -> None:
    """Log the files that plugins have read and no key holds, once, in a line for each folder.

    These are modules from elsewhere, such as PYTHONPATH, and data files. `keyed` are the files of
    stages. Files that compiled code of a library opens are not noticed.
    """
    every = [*keyed, *(path for home in _HOMES.values() for path in home.keyed)]
    known = {path.resolve() for path in every}
    unkeyed: dict[Path, list[str]] = {}
    for path, folder in sorted(_OPENED.items()):
        if folder is not None and path.is_file() and path.resolve() not in known:
            is_cache = path.parent.name == "__pycache__"
            unkeyed.setdefault(folder, []).append(
                importlib.util.source_from_cache(str(path)) if is_cache else str(path)
            )
        _OPENED[path] = None
    for folder, names in unkeyed.items():
        _log.warning(
            "plugin of %s: reads %s, in no key: an edit computes nothing again. Put modules "
            "beside the plugin, declare data in `files`, or return its digest from `depends`",
            folder,
            listed(names, most=3),
        )


def code_digest(path: Path) -> str:
    """Return the sha256 of the code in a Python file, or of the bytes of any other file."""
    return digest_of_code(path.read_bytes()) if path.suffix == ".py" else sha256(path)


def digest_of_code(data: bytes) -> str:
    """Return the sha256 of the syntax tree of a Python file's bytes.

    Comments and layout do not count, nor do statements that are only a text, such as docstrings,
    unless the file mentions `__doc__` or `getdoc`. Bytes that are not Python are hashed themselves.
    """
    try:
        parsed = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _sha256(data)
    digest = hashlib.sha256()
    for word in _words(parsed, with_texts=b"__doc__" in data or b"getdoc" in data):
        digest.update(word.encode() + b"\n")
    return digest.hexdigest()


def _words(parsed: ast.Module, *, with_texts: bool) -> Iterator[str]:
    """Yield the nodes of a syntax tree and their values in their order, without positions.

    Empty fields are left out: versions of Python differ in which they have.
    """

    def is_text(node: object) -> bool:
        value = node.value if isinstance(node, ast.Expr) else None
        return isinstance(value, ast.Constant) and isinstance(value.value, str)

    waiting: list[tuple[str, object]] = [("", parsed)]  # a stack: trees may be deep
    while waiting:
        kind, node = waiting.pop()
        if kind == "word":
            yield str(node)
        elif isinstance(node, ast.AST):
            yield f"({type(node).__name__}"
            waiting.append(("word", ")"))
            for name, value in reversed(list(ast.iter_fields(node))):
                if value is not None and value != [] and name != "kind":  # kind: u"text"
                    waiting += [("", value), ("word", f"{name}=")]
        elif isinstance(node, list):
            yield "["
            items = [item for item in node if with_texts or not is_text(item)]
            waiting += [("word", "]"), *(("", item) for item in reversed(items))]
        else:  # ascii() and hex() give the same everywhere, of any text and any size
            yield hex(node) if type(node) is int else ascii(node)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def closure(path: Path, base: Path, within: Path | None = None) -> set[Path]:
    """Return a Python file and all modules below the folder `base` that it imports, at any depth.

    Imports inside functions count. A name of Python's standard library never means a module below
    `base`. Modules outside of the folder `within` (default: `base`) are not followed: other
    packages, such as torch, have thousands.
    """
    reached: set[Path] = set()
    waiting = [path]
    while waiting:
        module = waiting.pop()
        if module not in reached and (module == path or (within or base) in module.parents):
            reached.add(module)
            waiting += _imported(module, base)
    return reached


def imported_code(path: Path, base: Path, package: str) -> dict[Path, str]:
    """Return the digests of a module that others imported, and of those that it imports below base.

    If `base` holds other packages too, only those of its own `package` count.
    """
    is_shared = {"site-packages", "dist-packages"} & {*base.parts}
    files = closure(path, base, base / package if is_shared else base)
    return {file: code_digest(file) for file in files}


def _imported(path: Path, base: Path) -> Iterator[Path]:
    """Yield the files below `base` that importing the modules named in a file would run."""
    try:
        parsed = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # such a file cannot be imported
        return
    for level, name in (pair for node in ast.walk(parsed) for pair in _names(node)):
        top = name.partition(".")[0]
        if level == 0 and (top in sys.stdlib_module_names or top == "maskpolicy"):
            continue
        stem = base if level == 0 else path.parents[level - 1]
        if stem != base and base not in stem.parents:
            continue
        for part in name.split(".") if name else ():
            stem /= part
            for ending in ("/__init__.py", ".py", *EXTENSION_SUFFIXES):
                if (file := Path(f"{stem}{ending}")).is_file():
                    yield file


def _names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the level (0: absolute, 1: this package, ..) and name of each module imported."""
    if isinstance(node, ast.Import):
        yield from ((0, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        stem = node.module or ""
        yield node.level, stem
        for alias in node.names:
            yield node.level, f"{stem}.{alias.name}".lstrip(".")
