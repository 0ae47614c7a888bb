"""Names that a package offers and loads only when they are used, so that importing it is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def offers(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` (PEP 562) of a package.

    `homes` maps each module to the names that it provides; those of the package itself are its
    modules. The package imports the same names under TYPE_CHECKING, each as itself, which tells
    type checkers that it offers them.
    """
    modules = {name: module for module, names in homes.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:
            return import_module(f"{package}.{name}")
        found = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return sorted(modules), __getattr__, __dir__
