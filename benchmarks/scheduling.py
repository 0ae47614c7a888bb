"""What it costs to schedule stages that do nothing, and to plan large experiments."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.executors.local import LocalEngine
from maskpolicy.pipeline.graph import planning
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage, StageRun, stage
from maskpolicy.pipeline.store.artifacts import Store

SIZES = (1_000, 10_000)  # stages
JOBS = (1, 4)
SEEDS = (5, 20, 80)  # of a planned experiment
_POLICIES = ("none", "original", "random", "salient-span", "whole-word", "span", "poisson")
_KEYS = (f"policies=[{','.join(_POLICIES)}]", "intermediate_seeds=5")
_CELLS = 5  # fine-tuned and evaluated models of each pre-trained one


@dataclass(frozen=True)
class IdleParams:
    """Which stage it is, and how long it sleeps."""

    number: int
    seconds: float


@stage("benchmark-idle")
def idle(params: IdleParams, inputs: Mapping[str, Path], out: Path, run: StageRun) -> None:
    """Sleep, and write a small file."""
    time.sleep(params.seconds)
    (out / "result.json").write_text(json.dumps(params.number))


def graph(count: int, seconds: float) -> list[Stage]:
    """Return the sinks of a graph of `count` stages that has the shape of an experiment.

    A corpus, pre-trained models, and for each of these _CELLS transient models and evaluations.
    """
    made = 0

    def node(kind: str, **inputs: Stage) -> Stage:
        nonlocal made
        made += 1
        params = IdleParams(made, seconds)
        label = f"{kind} {made}"
        return Stage("benchmark-idle", label, params, inputs, transient=kind == "finetune")

    corpus = node("corpus")
    sinks: list[Stage] = []
    while made < count:
        model = node("intermediate", corpus=corpus)
        for _ in range(min(_CELLS, (count - made) // 2)):
            sinks.append(node("evaluate", model=node("finetune", model=model)))
        if count - made < 2:
            sinks.extend(node("majority", corpus=corpus) for _ in range(count - made))
            break
    return sinks


def report(seconds: float) -> str:
    """Measure all sizes with all numbers of processes, each in a new store, as Markdown."""
    lines = [
        f"## Stages that take {seconds:g} s\n",
        "| stages | jobs | graph, s | wall, s | overhead a stage, ms | driver's processor, ms "
        "| driver, MiB |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for count in SIZES:
        for jobs in JOBS:
            lines.append(measure(count, jobs, seconds))
            sys.stderr.write(f"{lines[-1]}\n")
    return "\n".join(lines)


def measure(count: int, jobs: int, seconds: float) -> str:
    """Compute a graph with so many processes (1: this one), and return a row of the table."""
    started = time.monotonic()
    sinks = graph(count, seconds)
    graph_in = time.monotonic() - started
    with tempfile.TemporaryDirectory() as name, ExitStack() as engines:
        engine = engines.enter_context(LocalEngine(jobs)) if jobs > 1 else None
        started, used = time.monotonic(), time.process_time()
        outcomes = execute(sinks, Store(name), engine=engine)
        wall, used = time.monotonic() - started, time.process_time() - used
    assert len(outcomes) == count
    assert all(outcome.error is None for outcome in outcomes.values())
    overhead = (wall - count * seconds / jobs) / count
    return (
        f"| {count:,} | {jobs} | {graph_in:.1f} | {wall:.0f} | {1e3 * overhead:.1f} "
        f"| {1e3 * used / count:.1f} | {_memory():.0f} |"
    )


def _memory() -> float:
    """Return the resident memory of this process in MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def planning_report() -> str:
    """Plan 7 policies on 9 tasks with more and more seeds, as Markdown."""
    lines = [
        "## Planning 7 policies on 9 tasks\n",
        "| seeds | stages | build, s | plan, empty store, s | processor, s |",
        "|---:|---:|---:|---:|---:|",
    ]
    for seeds in SEEDS:
        used = time.process_time()
        experiment = load_experiment("nine-tasks", [f"seeds={list(range(seeds))}", *_KEYS])
        with tempfile.TemporaryDirectory() as name:
            store = Store(name)
            started = time.monotonic()
            built = stages.build(experiment, store.hash_file, store.cut_file)
            built_in = time.monotonic() - started
            planned = planning.plan(built.targets, store, targets=built.targets)
            planned_in = time.monotonic() - started - built_in
        used = time.process_time() - used
        lines.append(
            f"| {seeds} | {len(planned):,} | {built_in:.1f} | {planned_in:.1f} | {used:.1f} |"
        )
    return "\n".join(lines)
