"""The files of a package's folder `assets`, from which its HTML pages are made."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def templates(package: str) -> Environment:
    """Return the templates in a package's `assets`.

    They escape what they are given, and an unknown name is an error.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(package, "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def asset(package: str, name: str) -> Markup:
    """Return a text file in a package's `assets`, which templates do not escape."""
    from markupsafe import Markup

    path = resources.files(package).joinpath("assets", name)
    return Markup(path.read_text(encoding="utf-8"))
