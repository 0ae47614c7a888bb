"""Seconds and memory of `maskpolicy board` for tables of many scores."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.measure import run

SYSTEMS, TASKS = 100, 50


def report(folder: Path | None, sizes: Sequence[int]) -> str:
    """Measure boards of so many scores and return the section; tables lie in `folder` meanwhile."""
    lines = ["| scores | file (MB) | seconds | CPU seconds | memory (MiB) |", "|" + "---:|" * 5]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "scores.csv"
        for size in sizes:
            count = write(path, size)
            command = [sys.executable, "-m", "maskpolicy", "board", str(path)]
            seconds, used = run([*command, "--out", f"{place}/{size}"], Path(place) / "said")
            cells = [
                f"{count:,}",
                f"{path.stat().st_size / 1e6:,.0f}",
                f"{seconds:.1f}",
                f"{used.ru_utime + used.ru_stime:.1f}",
                f"{used.ru_maxrss / 2**10:,.0f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr)
    return (
        f"## Boards of given scores\n\n`maskpolicy board` on CSV files of {SYSTEMS} systems and "
        f"{TASKS} tasks, with all forms written: seconds of the command and of its processor, and "
        "its peak memory.\n\n" + "\n".join(lines)
    )


def write(path: Path, size: int) -> int:
    """Write a table of about `size` scores, 0 or 1; return their number."""
    examples = max(2, size // (SYSTEMS * TASKS))
    tasks = np.repeat([f"task {task}" for task in range(TASKS)], examples)
    names = [f"{task}-{number}" for task in range(TASKS) for number in range(examples)]
    rng = np.random.default_rng(0)
    columns = [("system", pa.string()), ("task", pa.string()), ("example", pa.string())]
    schema = pa.schema([*columns, ("score", pa.int8())])
    with csv.CSVWriter(path, schema, write_options=csv.WriteOptions(quoting_style="none")) as table:
        for system in range(SYSTEMS):
            right = rng.random(len(names)) < 0.5 + system / 1000
            own = [pa.repeat(f"system {system}", len(names)), pa.array(tasks), pa.array(names)]
            table.write_table(pa.table([*own, pa.array(right.astype(np.int8))], schema=schema))
    return SYSTEMS * len(names)
