"""Kill nodes of a Ray cluster while a run goes on, and compare what it computed with --jobs 1.

python -m benchmarks.soak nine-tasks general.steps=20 intermediate.steps=30 finetune.steps=10
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks import raylets


def main() -> None:
    """Run the experiment alone, then on a cluster whose nodes are killed; print what happened."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("file")
    parser.add_argument("keys", nargs="*")
    parser.add_argument("--nodes", type=int, default=3, help="of one core each, beside the head")
    parser.add_argument("--kills", type=int, default=100, help="of nodes; runs are repeated")
    parser.add_argument("--drivers", type=int, default=25, help="node kills for each driver kill")
    parser.add_argument("--every", type=float, nargs=2, default=(8, 14), help="seconds, from, to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where runs are kept; left out: nowhere")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _soak(options, options.folder or Path(folder))


def _soak(options: argparse.Namespace, folder: Path) -> None:
    rng = random.Random(options.seed)
    notes = folder / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    (folder / "noting.py").write_text(raylets.NOTING)
    if not (folder / "alone" / "out" / "leaderboard.json").exists():
        seconds = time.monotonic()
        running = _start(options, folder / "alone", "--jobs", "1")
        assert running.wait() == 0, (folder / "alone" / "said").read_text()
        print(json.dumps({"alone": round(time.monotonic() - seconds)}), flush=True)
    os.environ["NOTES"] = str(notes)  # of the nodes' workers
    kills = rounds = 0
    with raylets.nodes(options.nodes) as cluster:
        while kills < options.kills:
            rounds += 1
            done = _run(options, folder, f"round{rounds}", cluster, rng, options.kills - kills)
            kills += done["kills"]
            print(json.dumps(done), flush=True)
            for each in notes.iterdir():
                each.unlink()
            if not (done["same_artifacts"] and done["same_results"]) or done["commits_doubled"]:
                sys.exit(1)


def _run(
    options: argparse.Namespace,
    folder: Path,
    name: str,
    cluster: raylets.Nodes,
    rng: random.Random,
    most: int,
) -> dict[str, int | bool]:
    """Run once with kills until it ends; returns counts, and whether all bytes are the same."""
    out, executor = folder / name, f"ray={cluster.address}"
    started, kills, drivers = time.monotonic(), 0, 0
    running = _start(options, out, "--executor", executor)
    while kills < most:
        try:
            running.wait(rng.uniform(*options.every))
            break
        except subprocess.TimeoutExpired:
            cluster.kill(rng.choice(cluster.all()))
            cluster.add()
            kills += 1
        if (options.kills - most + kills) % options.drivers == 0:  # earlier rounds count
            running.send_signal(signal.SIGKILL)
            running.wait()
            running = _start(options, out, "--executor", executor)
            drivers += 1
    code = running.wait()
    assert code == 0, (out / "said").read_text()[-2000:]
    commits = Counter(words[0] for words in raylets.lines(folder / "notes" / "commits"))
    alone = folder / "alone"
    return {
        "seconds": round(time.monotonic() - started),
        "kills": kills,
        "driver_kills": drivers,
        "stages_begun": len(raylets.lines(folder / "notes" / "begins")),
        "stages_committed": len(commits),
        "commits_doubled": sum(count > 1 for count in commits.values()),
        "same_artifacts": raylets.artifacts(out / "store") == raylets.artifacts(alone / "store"),
        "same_results": raylets.results(out / "out") == raylets.results(alone / "out"),
    }


def _start(options: argparse.Namespace, out: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start `maskpolicy run` with a store and results below `out`; what it says goes to a file."""
    out.mkdir(parents=True, exist_ok=True)
    places = ("--store", str(out / "store"), "--out", str(out / "out"))
    command = [sys.executable, "-m", "maskpolicy", "run", options.file, *options.keys, *places]
    with (out / "said").open("ab") as said:
        return subprocess.Popen(
            [*command, "--plugin", str(out.parent / "noting.py"), "--threads", "1", *words],
            stdout=said,
            stderr=said,
        )


if __name__ == "__main__":
    main()
