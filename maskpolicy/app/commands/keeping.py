"""maskpolicy store: copy, verify, measure and prune stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskpolicy.app.arguments import Cache, StorePlace
from maskpolicy.app.printed import console, log_to, size_text, table
from maskpolicy.core.errors import ConfigError, StoreError
from maskpolicy.pipeline.store import DEFAULT

if TYPE_CHECKING:
    from maskpolicy.pipeline.store.artifacts import Store

_OLDEST = 36_500  # days
app = typer.Typer(help="Copy, verify, measure and prune stores.")


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A folder or a URL.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="A folder or a URL.")],
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Only artifacts of these runs; repeatable."),
    ] = None,
    cache: Cache = None,
) -> None:
    """Copy the artifacts that TO lacks; the same command continues where it stopped."""
    from maskpolicy.app import packing
    from maskpolicy.leaderboard.results import run_folder
    from maskpolicy.pipeline.store import upkeep
    from maskpolicy.pipeline.store.opening import open_store

    log_to(console(err=True))
    keys = None
    if run:
        with packing.opened(run) as runs:
            keys = [key for folder in runs.folders for key in run_folder.stage_keys(folder)]
    one, two = _existing(source, cache), open_store(target, cache)
    copied = upkeep.copy(one, two, keys, _tracked("copying"))
    for key, names in copied.different.items():
        cards = copied.by_gpu.get(key)
        why = f", as {cards} rounds differently each time" if cards else ""
        typer.echo(f"{key} has different files in both{why}: {', '.join(names)}", err=True)
    for key in copied.damaged:
        typer.echo(f"{key} is damaged in {one.place}: not copied", err=True)
    missing = f", {len(copied.missing)} not in {one.place}" if copied.missing else ""
    typer.echo(f"{len(copied.new)} artifacts copied to {two.place}{missing}")
    if copied.different.keys() - copied.by_gpu.keys() or copied.damaged:
        raise typer.Exit(1)


@app.command()
def verify(store: StorePlace = DEFAULT, cache: Cache = None) -> None:
    """Read all files of a store again; exit code 1 if some do not match their manifests."""
    log_to(console(err=True))
    artifacts = _existing(store, cache)
    keys = sorted(artifacts.committed())
    checks = [artifacts.verify(key) for key in _tracked("verifying")(keys)]
    damages = [damage for damage in checks if damage is not None]
    for damage in damages:
        typer.echo(damage)
    typer.echo(f"{len(keys)} artifacts, {len(damages)} damaged: {artifacts.place}")
    if damages:
        typer.echo("the next run that needs a damaged artifact computes it again", err=True)
        raise typer.Exit(1)


@app.command()
def du(store: StorePlace = DEFAULT, cache: Cache = None) -> None:
    """Print what a store holds: bytes by folder, and by kind of stage."""
    from maskpolicy.pipeline.store import upkeep

    artifacts = _existing(store, cache)
    screen = console()
    for name, size in upkeep.size(artifacts).items():
        if size:
            screen.print(f"{name:<12} {size_text(size):>10}")
    counts, sizes = Counter[str](), Counter[str]()
    for manifest in artifacts.records(dropped=False):
        kind = str(manifest["record"].get("kind", "?"))
        counts[kind] += 1
        sizes[kind] += sum(entry["size"] for entry in manifest["files"])
    shown = table("kind", "artifacts", "size")
    for kind, size in sizes.most_common():
        shown.add_row(kind, str(counts[kind]), size_text(size))
    screen.print(shown)


@app.command()
def prune(
    store: StorePlace = DEFAULT,
    cache: Cache = None,
    older: Annotated[
        float | None,
        typer.Option(min=0, metavar="DAYS", help="Also delete what no run has used for DAYS days."),
    ] = None,
    cache_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Shrink a bucket's cache to it, e.g. 20GB; 0: empty it."),
    ] = None,
) -> None:
    """Delete files that no command needs from a store; deletes artifacts only with --older."""
    from maskpolicy.pipeline.store import upkeep
    from maskpolicy.pipeline.store.opening import is_url

    log_to(console(err=True))
    if older is not None and older > _OLDEST:
        raise ConfigError(f"--older {older:g}: write a number of days, at most {_OLDEST}")
    most = None if cache_size is None else _bytes(cache_size)
    if most is not None and not is_url(store):
        raise ConfigError(f"--cache-size: {store} is a folder, and only a bucket has a cache")
    artifacts = _existing(store, cache)
    freed = upkeep.prune(artifacts, older, most)
    typer.echo(f"freed {size_text(sum(freed.values()))} of {artifacts.place}")


def _existing(place: str, cache: Path | None) -> Store:
    """Open a store for reading; raises StoreError for a folder that is not a store."""
    from maskpolicy.pipeline.store import upkeep
    from maskpolicy.pipeline.store.opening import is_url, open_store

    store = open_store(place, cache)
    if not store.root.is_dir():
        raise StoreError(f"store {place}: there is no such folder: name one with artifacts")
    if not is_url(place) and not any((store.root / name).is_dir() for name in upkeep.FOLDERS):
        raise StoreError(f"store {place}: nothing has written artifacts there: name another folder")
    return store


def _bytes(text: str) -> int:
    """Return the number of bytes that a text like 20GB or 500 MiB names."""
    from accelerate.utils import convert_file_size_to_int

    size = text.upper().replace(" ", "")
    try:
        return int(size) if size.isdecimal() else convert_file_size_to_int(size)
    except (ValueError, OverflowError):
        raise ConfigError(f"--cache-size {text}: write a number and a unit, like 20GB") from None


def _tracked(what: str) -> Callable[[Sequence[str]], Iterable[str]]:
    """Return a function that shows on a terminal how many of some keys are done."""
    from rich.progress import track

    screen = console(err=True)
    hidden = not screen.is_terminal
    return lambda keys: track(keys, what, console=screen, transient=True, disable=hidden)
