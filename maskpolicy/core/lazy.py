"""Names that a package offers but imports only when they are used, to make importing it quick."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def offers(package: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` (PEP 562) of a package.

    The package offers the names that it imports under `if TYPE_CHECKING`, each as itself
    (`from x import y as y`). That block is read from its file, and type checkers read it too.
    """
    loader: Any = sys.modules[package].__loader__
    imports = [
        node
        for block in ast.parse(loader.get_source(package)).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    ]
    modules = {
        alias.name: str(node.module)
        for node in imports
        for alias in node.names
        if alias.asname == alias.name
    }

    def __getattr__(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:
            return import_module(f"{package}.{name}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return sorted(modules), __getattr__, __dir__
