"""The whole campaign of faults (`make soak`), whose figures it writes into a page.

python -m faults.soak [--kills 300] [--files 5000] [--minutes 60] [--jobs N] [--seed 0]
    [--write PAGE]
"""

import argparse
import logging
import math
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from faults import forks
from faults.campaign import Campaign, Kind
from faults.kills import SIGNALS
from faults.lanes import Lanes

_ROOM = 4 << 30  # bytes; the containers of Docker have 64 MB there
BEGIN, END = "<!-- written by make soak -->", "<!-- end of what make soak writes -->"


def main() -> int:
    """Run the campaign; exit code 1 if a trial was wrong, or if there were fewer than wanted."""
    parser = argparse.ArgumentParser(prog="python -m faults.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--files", type=int, default=5000, help="that are fuzzed")
    parser.add_argument("--minutes", type=float, default=60, help="in which all ends")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page for the figures")
    options = parser.parse_args()
    started = time.monotonic()
    until = started + 60 * options.minutes
    forks.load()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(dir=_memory(), ignore_cleanup_errors=True) as folder:
        campaign = Campaign(Path(folder))
        planned = list(campaign.kinds(options.kills, options.files))
        kinds = [each for each in planned if each[1]]
        lanes = Lanes(kinds, max(1, options.jobs), options.seed)
        lanes.run(until, lambda line: print(line, file=sys.stderr, flush=True))
    for (kind, _), done in zip(kinds, lanes.found, strict=True):
        if is_one_sided(kind, done):
            done["wrong"] += 1
            lanes.wrong.append(f"{kind.name}: all files were refused, or none")
            print(f"WRONG, {lanes.wrong[-1]}", file=sys.stderr)
    rows = [(kind, done) for (kind, _), done in zip(kinds, lanes.found, strict=True)]
    text = _page(rows, options, time.monotonic() - started)
    if left_out := [kind.name for kind, number in planned if not number]:
        text += f"\n\nNot tried, because so few were asked for: {'; '.join(left_out)}."
    print(text)
    missing = lanes.missing()
    for line in missing:
        print(f"NOT ALL TRIED, {line}", file=sys.stderr)
    if missing:
        print(f"{options.minutes:g} minutes were too few: --minutes gives more", file=sys.stderr)
    if lanes.wrong or missing:
        return 1
    if options.write:
        _write(options.write, text)
    return 0


def _memory() -> str | None:
    """Return a folder in memory, where flushes take no time, if it has room for the trials."""
    folder = "/dev/shm"
    has_room = os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > _ROOM
    return folder if has_room else None


def is_one_sided(kind: Kind, found: Counter[str]) -> bool:
    """Return whether all of many mutated files were refused, or none, which shows nothing."""
    refused, trials = found["refused"], found["trials"]
    return kind.unit == "files" and trials >= 50 and refused in (0, trials)


def _page(rows: list[tuple[Kind, Counter[str]]], options: argparse.Namespace, took: float) -> str:
    """Return the figures as Markdown."""
    kills, files = (
        sum(done[kind.counts] for kind, done in rows if kind.unit == unit)
        for unit in ("kills", "files")
    )
    lines = [
        f"`make soak` on {datetime.now(UTC).date()}, seed {options.seed}: {kills} kills and "
        f"{files:,} fuzzed files in {math.ceil(took / 60)} minutes, {options.jobs} trials at a "
        f"time, on {platform.machine()}.",
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
    total = sum((done for _, done in rows), Counter[str]())
    signs = [sign.name for sign in SIGNALS]
    lines += ["", f"| signals by turns to | {' | '.join(signs)} |", "|---|---:|---:|---:|"]
    for name in dict.fromkeys(turn.partition(" ")[2] for kind, _ in rows for turn in kind.each):
        lines.append(f"| {name} | {' | '.join(str(total[f'{sign} {name}']) for sign in signs)} |")
    return "\n".join([*lines, "", f"Real file systems that were full: {total['real']}."])


def _write(page: Path, text: str) -> None:
    """Replace the figures of an earlier campaign in a page."""
    before = page.read_text(encoding="utf-8")
    head, tail = before.index(BEGIN) + len(BEGIN), before.index(END)
    page.write_text(f"{before[:head]}\n\n{text}\n\n{before[tail:]}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
