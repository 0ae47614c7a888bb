"""A Ray cluster of several nodes on this machine, which can be killed, and notes of its stages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TRIES = 5
MEMORY = 80 * 2**20  # bytes of each node's object store, near the least that Ray takes

NOTING = """
import os
import time
from pathlib import Path

from maskpolicy import metric
from maskpolicy.pipeline.graph import calls, execution
from maskpolicy.pipeline.store.artifacts import Store

PAUSE = float(os.environ.get("PAUSE", 0))


def note(name, line):
    with (Path(os.environ["NOTES"]) / name).open("a") as file:
        file.write(line + "\\n")


if "NOTES" in os.environ and not hasattr(Store, "commit_unnoted"):
    Store.commit_unnoted = Store._commit
    compute_unnoted = calls._compute

    def commit(self, key, *rest):
        Store.commit_unnoted(self, key, *rest)
        note("commits", f"{key} {os.getpid()}")

    def compute(call, *rest):
        note("begins", f"{call.kind} {os.getpid()} {os.getppid()}")
        time.sleep(PAUSE)
        while (Path(os.environ["NOTES"]) / f"hold-{call.kind}").exists():
            time.sleep(0.05)
        return compute_unnoted(call, *rest)

    Store._commit, calls._compute = commit, compute
    execution._MOST_LOST = 10_000  # nodes are killed on purpose, often at the same stage


@metric("unused")
def unused(prediction, answers):
    "A plugin must register something."
    return 0.0
"""
"""A plugin. In a process with $NOTES, it notes the beginning of each stage and each commit in files
there, every stage takes $PAUSE seconds more, and stages of a kind wait while hold-KIND is there."""


class Nodes:
    """The nodes of a cluster: a head without cores, and others that can be killed."""

    def __init__(self, count: int, cores: int) -> None:
        """Start the cluster."""
        os.environ.setdefault("RAY_worker_niceness", "0")  # 15 starves workers on a busy machine
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.cores = cores
        self.address: str = self.cluster.address
        for _ in range(count):
            self.add()

    def add(self) -> None:
        """Start a node; Ray gives it 30 s, so on a busy machine it is tried again."""
        for attempt in range(_TRIES):
            try:
                self.cluster.add_node(num_cpus=self.cores, object_store_memory=MEMORY)
                return
            except Exception:  # Ray raises no class of its own
                if attempt == _TRIES - 1:
                    raise

    def all(self) -> list[Any]:
        """Return the nodes but the head, in the order of their processes."""
        return sorted(self.cluster.worker_nodes, key=_raylet)

    def kill(self, node: Any) -> None:
        """Kill a node without grace."""
        self.cluster.remove_node(node, allow_graceful=False)

    def of(self, parent: int) -> Any:
        """Return the node whose raylet is the process `parent`, or None."""
        return next((node for node in self.all() if _raylet(node) == parent), None)


def _raylet(node: Any) -> int:
    return node.all_processes["raylet"][0].process.pid


@contextmanager
def nodes(count: int, cores: int = 1) -> Iterator[Nodes]:
    """Yield a cluster of a head and `count` nodes on this machine."""
    made = Nodes(count, cores)
    try:
        yield made
    finally:
        made.cluster.shutdown()


def lines(path: Path) -> list[list[str]]:
    """Return the words of each line of notes."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def artifacts(store: Path) -> dict[str, bytes]:
    """Return the bytes of all files of stages' artifacts but the manifests.

    What analyses found is left out: `run` looks at the masked passages at its end, a worker does
    not.
    """
    manifests = sorted((store / "artifacts").glob("*/MANIFEST.json"))
    others = ("analysis", "masked-sample")
    kinds = {path.parent: json.loads(path.read_text())["record"]["kind"] for path in manifests}
    return {
        path.relative_to(store).as_posix(): path.read_bytes()
        for folder, kind in kinds.items()
        for path in sorted(folder.rglob("*"))
        if kind not in others and path.is_file() and path.name != "MANIFEST.json"
    }


def results(out: Path) -> dict[str, bytes]:
    """Return the bytes of what a run leaves for people, but for times and paths."""
    left_out = ("run.json", "leaderboard.html", "experiment.yaml")
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in left_out
    }
