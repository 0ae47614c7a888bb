"""The whole campaign of faults (`make soak`), whose figures it writes into a page.

python -m faults.soak [--kills 200] [--files 5000] [--minutes 30] [--seed 0] [--write PAGE]
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from faults import forks
from faults.campaign import Campaign, Kind
from faults.kills import Wrong

BEGIN, END = "<!-- written by make soak -->", "<!-- end of what make soak writes -->"


def main() -> int:
    """Run the campaign; exit code 1 if a trial ended in another way than it must."""
    parser = argparse.ArgumentParser(prog="python -m faults.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--files", type=int, default=5000, help="that are fuzzed")
    parser.add_argument("--minutes", type=float, default=30, help="after which nothing begins")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page for the figures")
    options = parser.parse_args()
    started = time.monotonic()
    until = started + 60 * options.minutes
    forks.load()
    logging.disable(logging.WARNING)
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast) as folder:
        campaign = Campaign(Path(folder))
        kinds = list(campaign.kinds(options.kills, options.files))
        found = [_all(kind, wanted, options.seed, until) for kind, wanted in kinds]
    rows = [(kind, done) for (kind, _), done in zip(kinds, found, strict=True)]
    text = _page(rows, options, time.monotonic() - started)
    print(text)
    complete = all(
        done[kind.counts] >= wanted for (kind, wanted), (_, done) in zip(kinds, rows, strict=True)
    )
    if not complete:
        print(f"not all trials within {options.minutes:g} minutes", file=sys.stderr)
    if any(done["wrong"] for done in found):
        return 1
    if options.write:
        _write(options.write, text)
    return 0


def _all(kind: Kind, wanted: int, seed: int, until: float) -> Counter[str]:
    """Make the trials of one kind, each with random numbers of its own."""
    total, number = Counter[str](), 0
    while total[kind.counts] < wanted and time.monotonic() < until:
        try:
            total += kind.trial(number, random.Random(f"{seed} {kind.name} {number}"))
        except Wrong as error:
            total += Counter({"wrong": 1, "trials": 1, kind.counts: 1})
            print(f"WRONG, {kind.name} {number}: {error}", file=sys.stderr, flush=True)
        except Exception:  # noqa: BLE001 - the other trials are still worth making
            total += Counter({"wrong": 1, "trials": 1, kind.counts: 1})
            print(f"WRONG, {kind.name} {number}:\n{traceback.format_exc()}", file=sys.stderr)
        number += 1
    if is_one_sided(kind, total):
        total["wrong"] += 1
        print(f"WRONG, {kind.name}: all files were refused, or none", file=sys.stderr)
    print(f"{kind.name}: {dict(total)}", file=sys.stderr, flush=True)
    return total


def is_one_sided(kind: Kind, found: Counter[str]) -> bool:
    """Return whether many mutated files were all refused, or all read, which shows nothing."""
    refused, trials = found["refused"], found["trials"]
    return kind.unit == "files" and trials >= 50 and refused in (0, trials)


def _page(rows: list[tuple[Kind, Counter[str]]], options: argparse.Namespace, took: float) -> str:
    """Return the figures as Markdown."""
    today = datetime.now(UTC).date()
    lines = [
        f"`make soak` on {today}: {options.kills} kills, {options.files} fuzzed files, seed "
        f"{options.seed}; {took / 60:.0f} minutes on {len(os.sched_getaffinity(0))} cores of "
        f"{platform.machine()}.",
        "",
        "| fault | trials | kills | files lost or damaged | refused in one line | wrong |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for kind, done in rows:
        is_damage = kind.unit == "damages"
        cells = [
            done["trials"],
            done["kills"] if kind.unit == "kills" else "",
            done["lost"] or (done["trials"] - done["unchanged"] if is_damage else ""),
            done["refused"] if kind.unit == "files" else "",
            done["wrong"],
        ]
        lines.append(f"| {kind.name} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _write(page: Path, text: str) -> None:
    """Replace what an earlier campaign wrote into a page."""
    before = page.read_text(encoding="utf-8")
    head, tail = before.index(BEGIN) + len(BEGIN), before.index(END)
    page.write_text(f"{before[:head]}\n\n{text}\n\n{before[tail:]}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
