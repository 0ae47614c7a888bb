"""--push and --private: what a command wrote goes to the Hub as well."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from maskpolicy.cli.arguments import console
from maskpolicy.errors import ConfigError

Push: TypeAlias = Annotated[
    str | None, typer.Option("--push", metavar="OWNER/NAME", help="Upload it to the Hub, too.")
]
Private: TypeAlias = Annotated[
    bool, typer.Option("--private", help="--push: create a private repository.")
]


def check(name: str | None, *, private: bool) -> None:
    """Raise ConfigError for a name that the Hub cannot have, before any work."""
    from maskpolicy.publishing import hub_upload

    if name:
        hub_upload.check_name(name)
    elif private:
        raise ConfigError("--private: is for --push OWNER/NAME: give both")


def push(path: Path, name: str | None, kind: Literal["model", "dataset"], *, private: bool) -> None:
    """Upload a file or folder to a repository of the Hub, if there is a name, and print where."""
    from maskpolicy.publishing import hub_upload

    if name:
        address = hub_upload.push(path, name, kind, private=private)
        console().print(f"pushed to {address}", soft_wrap=True)
