"""The embedded world: an encyclopaedia of invented subjects, and the tasks over it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskpolicy.world.build import MARKS, kinds_by_file, write
    from maskpolicy.world.figures import figures
    from maskpolicy.world.settings import Settings, make

__all__ = ["MARKS", "Settings", "figures", "kinds_by_file", "make", "write"]

_HOMES = {
    "MARKS": "build",
    "Settings": "settings",
    "make": "settings",
    "write": "build",
    "kinds_by_file": "build",
    "figures": "figures",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # `figures` is both a module and the function in it
    return value
