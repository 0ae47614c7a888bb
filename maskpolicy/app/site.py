"""Write a static site of many leaderboards: an index, and a folder with the page of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from maskpolicy.app import packing
from maskpolicy.core.files import claim_folder, slug
from maskpolicy.leaderboard import stored_board
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.page import save_forms, site_index
from maskpolicy.leaderboard.results.cell import read_run


def write(places: Sequence[str], out: Path, heading: str, told: Callable[[str], object]) -> int:
    """Write a site of runs and boards to a folder; returns its number of leaderboards.

    Writes pages from results, and copies none, because they may come from strangers. Calls `told`
    with each place. Raises StoreError if the folder holds other files, and DataError for a place
    without a run or board.
    """
    claim_folder(out, (site_index.INDEX,))
    if not (out / site_index.INDEX).exists():  # marks the folder, for a second attempt
        site_index.save_index([], out / site_index.INDEX, heading)
    entries, names = list[site_index.Entry](), {site_index.INDEX}
    for number, place in enumerate(places, 1):
        told(f"{number} of {len(places)}: {place}")
        with packing.opened([place]) as opened:
            for folder in opened.folders:
                board, file = _board(folder), packing.default_file(folder)
                if opened.is_packed(folder):
                    file = Path(opened.called(folder))
                name = _unused(slug(file.stem), names)
                save_forms(board, out / name, home=f"../{site_index.INDEX}")
                entries.append(site_index.entry(board, name))
    site_index.save_index(entries, out / site_index.INDEX, heading)
    return len(entries)


def _board(folder: Path) -> Board:
    if (folder / stored_board.FILE).is_file() and not (folder / "results").is_dir():
        return stored_board.read_board(folder)
    return build_leaderboard([read_run(folder)])


def _unused(name: str, names: set[str]) -> str:
    """Return a name that no entry of `names` has, on any disk, and add it to them."""
    number, free = 1, name
    while free.casefold() in names:
        number += 1
        free = f"{name}-{number}"
    names.add(free.casefold())
    return free
