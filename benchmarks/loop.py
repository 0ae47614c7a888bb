"""Time and memory of a whole run for ten times the passages, the seeds, and the questions.

Each run is a `maskpolicy run` of its own, with one job, a fresh store, generated text, a small BART
and generated questions in the format of NQ-open. The intermediate stage reads each passage once.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.corpus import prepare
from benchmarks.measure import run

_BATCH = 32  # passages of a step
_HEADS = (
    *("passages", "seeds", "questions", "seconds", "CPU seconds", "memory (MiB)"),
    *("intermediate (s)", "fine-tuning (s)", "evaluation (s)", "all else (s)"),
)


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    passages: int = 3_200
    seeds: int = 2
    questions: int = 400  # of the test split; a quarter as many to train on


def sizes(base: Size = Size(), times: int = 10) -> list[Size]:
    """Return a size, and those with `times` as many passages, seeds and questions."""
    larger = {name: value * times for name, value in vars(base).items()}
    return [base, *(replace(base, **{name: value}) for name, value in larger.items())]


def report(folder: Path | None, measured: Sequence[Size]) -> str:
    """Measure runs of these sizes and return the section; the files lie in `folder` meanwhile."""
    lines = [f"| {' | '.join(_HEADS)} |", "|" + "---:|" * len(_HEADS)]
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for number, size in enumerate(measured):
            home = Path(place) / str(number)
            lines.append(_measured(home, size))
            print(lines[-1], file=sys.stderr)
    return (
        "## Loop\n\nWhole runs of `random` and `salient-span` on one task, with one job: seconds "
        "of the parts, of the command and of its processor, and its peak memory.\n\n"
        + "\n".join(lines)
    )


def _measured(home: Path, size: Size) -> str:
    prepare(home, size.passages)
    _ask(home / "nq_open", size.questions)
    command = [sys.executable, "-m", "maskpolicy", "run", str(_experiment(home, size))]
    command += ["--jobs", "1", "--store", str(home / "store"), "--out", str(home / "run")]
    seconds, used = run(command, home / "said")
    parts = json.loads((home / "run" / "run.json").read_text(encoding="utf-8"))["parts"]
    took = {part["name"]: part["seconds"] for part in parts}
    rest = seconds - sum(took[name] for name in ("intermediate", "finetune", "evaluate"))
    cells = [
        *(f"{count:,}" for count in (size.passages, size.seeds, size.questions)),
        f"{seconds:.1f}",
        f"{used.ru_utime + used.ru_stime:.1f}",
        f"{used.ru_maxrss / 2**10:,.0f}",
        *(f"{took[name]:.1f}" for name in ("intermediate", "finetune", "evaluate")),
        f"{rest:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _experiment(home: Path, size: Size) -> Path:
    """Write the experiment's file and return its path."""
    block = {
        "model": str(home / "model"),
        "corpus": {"files": [str(home / "text.jsonl")]},
        "data": str(home),
        "policies": ["none", "random", "salient-span"],
        "tasks": ["nq"],
        "seeds": list(range(size.seeds)),
        "intermediate": {"steps": -(-size.passages // _BATCH), "batch_size": _BATCH},
        "finetune": {"steps": 20},
    }
    path = home / "loop.yaml"
    path.write_text(json.dumps(block), encoding="utf-8")  # JSON is YAML
    return path


def _ask(folder: Path, count: int) -> None:
    """Write questions about invented names, a quarter as many in the train file."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for split, number in (("train", count // 4), ("dev", count)):
        with (folder / f"NQ-open.{split}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(number):
                name, year = rng.integers(10**6), rng.integers(1500, 2000)
                row = {"question": f"when was number {name} born", "answer": [str(year)]}
                file.write(json.dumps(row) + "\n")
