"""Write a static site of many leaderboards: an index, and a folder with the page of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from maskpolicy.app import packing
from maskpolicy.app.packing import OpenedRuns
from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.core.files import check_folder, claim_folder, slug, write_file
from maskpolicy.leaderboard import stored_board
from maskpolicy.leaderboard.board import Board
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.page import save_forms, site_index
from maskpolicy.leaderboard.results import verification
from maskpolicy.leaderboard.results.cell import read_run

OURS = b'<meta name="generator" content="maskpolicy">'  # in the head of a site's index


def write(
    places: Sequence[str],
    out: Path,
    heading: str,
    told: Callable[[str], object],
    *,
    unverified: bool = False,
) -> int:
    """Write the site of runs and of boards to a folder; return how many leaderboards it has.

    Pages are made from results, not copied from strangers, and nothing is written before all of
    them are made. `told` is called with the progress. Raises StoreError for a folder with other
    files, and DataError for no run and no board, and unless `unverified` for a fault of digests.
    """
    places = list(dict.fromkeys(places))
    check_folder(out, (site_index.INDEX,))
    if (index := out / site_index.INDEX).is_file() and OURS not in index.read_bytes():
        raise StoreError(f"{index}: is another page, which would be replaced: choose another --out")
    entries, names = list[site_index.Entry](), {site_index.INDEX}
    with TemporaryDirectory() as home:
        made = Path(home)
        for number, place in enumerate(places, 1):
            told(f"{number} of {len(places)}: {place}")
            with packing.opened([place]) as opened:
                for folder in opened.folders:
                    file = packing.default_file(folder)
                    _, lines = (0, []) if unverified else faults(opened, folder)
                    if lines:
                        raise DataError(
                            f"{lines[0]}{f' (and {len(lines) - 1} more)' if lines[1:] else ''}: "
                            "leave it out; `maskpolicy verify` lists all faults, and --unverified "
                            "writes the site without a check"
                        )
                    board = _board(opened, folder)
                    if opened.is_packed(folder):
                        file = Path(opened.called(folder))
                    name = _unused(slug(file.stem), names)
                    save_forms(board, made / name, home=f"../{site_index.INDEX}")
                    entries.append(site_index.entry(board, name))
        site_index.save_index(entries, made / site_index.INDEX, heading)
        claim_folder(out, (site_index.INDEX,))
        for path in [made / site_index.INDEX, *sorted(made.glob("*/*"))]:
            write_file(out / path.relative_to(made), path.read_bytes())
    return len(entries)


def faults(opened: OpenedRuns, folder: Path) -> tuple[int, list[str]]:
    """Return how many results a run or board has, and a line for each fault of its digests."""
    if stored_board.is_board(folder):
        count, lines = stored_board.faults(folder)
    else:
        count, lines = verification.faults(folder, packed=opened.is_packed(folder))
    return count, [opened.told(f"{opened.called(folder)}: {line}") for line in lines]


def _board(opened: OpenedRuns, folder: Path) -> Board:
    if stored_board.is_board(folder):
        return stored_board.read_board(folder)
    try:
        return build_leaderboard([read_run(folder)])
    except ConfigError as error:
        raise DataError(
            f"{opened.called(folder)}: {str(error).partition('; set')[0]}; leave it out"
        ) from None


def _unused(name: str, names: set[str]) -> str:
    """Return a name that no entry of `names` has, on any disk, and add it to them."""
    number, free = 1, name
    while free.casefold() in names:
        number += 1
        free = f"{name}-{number}"
    names.add(free.casefold())
    return free
