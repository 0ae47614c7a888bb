"""Read a Python file without running it: a digest of its code, and the modules it imports."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

STANDARD = sys.stdlib_module_names


def code_digest(path: Path) -> str:
    """Return the sha256 of the code in a Python file, or of the bytes of any other file."""
    data = path.read_bytes()
    return digest_of_code(data) if path.suffix == ".py" else hashlib.sha256(data).hexdigest()


def digest_of_code(data: bytes) -> str:
    """Return the sha256 of the syntax tree of a Python file's bytes.

    Comments and layout do not count, nor do statements that are only a text, such as docstrings,
    unless the file mentions `__doc__` or `getdoc`. Bytes that are no Python are hashed themselves.
    """
    try:
        parsed = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return hashlib.sha256(data).hexdigest()
    found = hashlib.sha256()
    for word in _words(parsed, with_texts=b"__doc__" in data or b"getdoc" in data):
        found.update(word.encode() + b"\n")
    return found.hexdigest()


def _words(parsed: ast.Module, *, with_texts: bool) -> Iterator[str]:
    """Yield the nodes of a syntax tree and their values in their order, without positions.

    Empty fields are left out: versions of Python differ in which they have.
    """
    waiting: list[tuple[str, object]] = [("", parsed)]  # a stack: trees may be deep
    while waiting:
        kind, each = waiting.pop()
        if kind == "word":
            yield str(each)
        elif isinstance(each, ast.AST):
            yield f"({type(each).__name__}"
            waiting.append(("word", ")"))
            for name, value in reversed(list(ast.iter_fields(each))):
                if value is not None and value != [] and name != "kind":  # kind: u"text"
                    waiting += [("", value), ("word", f"{name}=")]
        elif isinstance(each, list):
            yield "["
            items = [item for item in each if with_texts or not _is_text(item)]
            waiting += [("word", "]"), *(("", item) for item in reversed(items))]
        else:  # ascii() and hex() give the same everywhere, of any text and any size
            yield hex(each) if type(each) is int else ascii(each)


def _is_text(node: object) -> bool:
    """Return whether a node is a statement that is only a text."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def closure(path: Path, base: Path) -> set[Path]:
    """Return a Python file and all modules below the folder `base` that it imports, at any depth.

    Imports inside functions count, and so do calls of importlib.import_module with a literal
    relative name. A name of Python's standard library never means a module below `base`.
    """
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += _imported(each, base)
    return found


def _imported(path: Path, base: Path) -> Iterator[Path]:
    try:
        parsed = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # such a file cannot be imported
        return
    for node in ast.walk(parsed):
        for level, name in _names(node):
            top = name.partition(".")[0]
            if level == 0 and (top in STANDARD or top == "maskpolicy"):
                continue
            folder = base if level == 0 else path.parent
            for _ in range(level - 1):
                folder = folder.parent
            if folder == base or base in folder.parents:
                yield from _files(folder, name)


def _names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the level (0: absolute, 1: this package, ..) and name of each module imported."""
    if isinstance(node, ast.Import):
        yield from ((0, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        stem = node.module or ""
        yield node.level, stem
        for alias in node.names:
            yield node.level, f"{stem}.{alias.name}".lstrip(".")
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        first = node.args[0] if node.args else None
        name = first.value if isinstance(first, ast.Constant) else None
        if isinstance(name, str) and name.startswith("."):
            yield len(name) - len(name.lstrip(".")), name.lstrip(".")


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files that importing a module runs: its own, and those of the packages above."""
    stem = folder
    for part in name.split(".") if name else ():
        stem /= part
        endings = ["/__init__.py", ".py", *EXTENSION_SUFFIXES]
        files = (Path(f"{stem}{ending}") for ending in endings)
        yield from (file for file in files if file.is_file())
