"""Which differences a planned experiment would find, from the noise of stored runs or defaults."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.comparisons import FEWEST
from maskpolicy.leaderboard.stats import Difference
from maskpolicy.results import predictions
from maskpolicy.results.predictions import CellAnswers

if TYPE_CHECKING:
    from maskpolicy.config.experiment import Experiment
    from maskpolicy.stages import Graph
    from maskpolicy.store.artifacts import Store

WANTED = 2.0  # points
MOST = 200  # seeds that are considered
# Assumed where nothing was run; docs/statistics.md simulates run noise of 0 to 0.4 logits.
NOISE = 0.2  # logits between runs
SHARE = 0.3  # of answers that are right
EXAMPLES = 300  # in a test split, each a group of its own
# Noise vanishes at a share of 0 or 1, but a difference from there leads to where it does not.
EDGE = 0.05  # shares are taken as at least so far from both
RUNS = "runs in the store"
CLAMPED = f"{RUNS}, scores taken as {100 * EDGE:.0f} to {100 - 100 * EDGE:.0f}"


@dataclass(frozen=True)
class Parts:
    """What a difference on one task varies by; scores lie between 0 and 1."""

    runs: float  # variance of one seed's difference
    taste: float  # variance from the choice of groups
    group_freedom: float
    examples: int | None  # of the test split; None: not known, EXAMPLES is taken
    source: str  # where this comes from, in words


@dataclass(frozen=True)
class StoredDifference:
    """A difference to the baseline whose answers are in the store."""

    pair: Difference
    shares: tuple[float, float]  # mean scores of the two rows, between 0 and 1

    @property
    def at_edge(self) -> int:
        """How many of the two rows are within EDGE of 0 or 1."""
        return sum(not EDGE <= share <= 1 - EDGE for share in self.shares)

    @property
    def shows_noise(self) -> bool:
        """Whether a score is in the range where runs can differ."""
        return self.at_edge < len(self.shares)


@dataclass(frozen=True)
class Power:
    """What a leaderboard would find on one task; differences in points."""

    task: str
    parts: Parts
    seeds: int  # that are planned, FEWEST at least
    finds: float  # with a probability of 80%
    needed: int | None  # seeds that find WANTED points; None: more than MOST


def plan(experiment: Experiment, graph: Graph, store: Store) -> list[Power]:
    """Return for each task what the planned seeds find; reads the store and computes nothing.

    Raises DataError for answers in the store that are broken.
    """
    rows = [block.label for block in experiment.policies if block.label != experiment.baseline]
    if not rows or not experiment.tasks:
        return []
    labels = [block.label for block in experiment.tasks]
    measured = {task: _measured(experiment, graph, store, task) for task in labels}
    seen = [each.pair for known in measured.values() for each in known if each.shows_noise]
    noise = float(stats.run_noise(seen)) if seen else NOISE**2
    found = []
    seeds = max(FEWEST, len(experiment.seeds))
    for task in labels:
        split = _split(graph, store, task)
        parts = _parts(measured[task], noise, split, bool(seen))
        family = len(rows) * len(labels)
        find = partial(finds, parts, rows=len(rows), tests=family)
        counts = range(FEWEST, MOST + 1)  # more seeds find smaller differences
        needed = FEWEST + bisect_left(counts, -WANTED, key=lambda n: -find(n))
        found.append(Power(task, parts, seeds, find(seeds), needed if needed <= MOST else None))
    return found


def finds(parts: Parts, seeds: int, rows: int, tests: int) -> float:
    """Return the difference in points that so many seeds find with a probability of 80%.

    `rows` are those that are compared with the baseline, `tests` all tests of the leaderboard.
    """
    freedom = stats.freedom(seeds, rows, parts.group_freedom)
    error = np.sqrt(parts.runs / seeds + parts.taste)
    return float(100 * error * stats.planned(seeds, rows, freedom, tests))


def _measured(
    experiment: Experiment, graph: Graph, store: Store, task: str
) -> list[StoredDifference]:
    """Return the differences to the baseline whose answers are in the store, for two seeds or more.

    Seeds that share an intermediate run show no noise between runs and are left out, and so are
    those of which some share a general model.
    """
    if experiment.intermediate_seeds < len(experiment.seeds) or _shares_general(experiment):
        return []
    found = []
    for block in experiment.policies:
        if block.label == experiment.baseline:
            continue
        both = [
            (
                _answers(graph, store, (block.label, task, seed)),
                _answers(graph, store, (experiment.baseline, task, seed)),
            )
            for seed in experiment.seeds
        ]
        known = [(one, two) for one, two in both if one is not None and two is not None]
        if len(known) < 2 or not known[0][0].groups.any():
            continue
        mine, other = (np.stack([each.scores for each in row]) for row in zip(*known, strict=True))
        names = (block.label, experiment.baseline)
        found.append(_seen(mine, other, known[0][0].groups, names))
    return found


def _seen(
    mine: stats.Floats, other: stats.Floats, groups: NDArray[Any], names: tuple[str, str]
) -> StoredDifference:
    shares = (float(mine.mean()), float(other.mean()))
    return StoredDifference(stats.pair(mine, other, groups, names), shares)


def _answers(graph: Graph, store: Store, cell: tuple[str, str, int]) -> CellAnswers | None:
    stage = graph.cells.get(cell)
    if stage is None or store.peek(stage.key) is None:
        return None
    return predictions.answers(store.path(stage.key) / "predictions.jsonl")


def _split(graph: Graph, store: Store, task: str) -> Path | None:
    """Return the file of a task's test examples, if it is in the store."""
    stages = (stage for (_, name, _), stage in graph.cells.items() if name == task)
    for stage in stages:
        examples = stage.inputs["examples"]
        if store.peek(examples.key) is not None:
            return store.path(examples.key) / "test.jsonl"
        return None
    return None


def _parts(
    seen: Sequence[StoredDifference], noise: float, split: Path | None, any_seen: bool
) -> Parts:
    if seen:
        return _parts_seen(seen, noise)
    groups = _groups(split) if split is not None else np.ones(EXAMPLES)
    weights = groups / groups.sum()
    spread = SHARE * (1 - SHARE)
    return Parts(
        2 * (noise * spread**2 + spread / 2 / groups.sum()),
        float(2 * (NOISE * spread) ** 2 * (weights**2).sum()),
        stats.effective_groups(weights) - 1,
        int(groups.sum()) if split is not None else None,
        "noise of other tasks' runs in the store" if any_seen else "defaults",
    )


def _parts_seen(seen: Sequence[StoredDifference], noise: float) -> Parts:
    """Return the parts of stored differences, where scores keep EDGE from 0 and 1.

    A task whose own runs differ more than those of all tasks keeps its own noise, as in the test.
    """
    first = seen[0].pair
    spread = EDGE * (1 - EDGE)
    own = fmean(float(each.pair.runs) for each in seen)
    runs = fmean(float(noise * each.pair.slope + each.pair.chance) for each in seen)
    taste = fmean(float(each.pair.taste) for each in seen)
    rows = max(each.at_edge for each in seen)
    least = rows * (noise * spread**2 + spread / 2 / first.examples)
    least_taste = rows * (NOISE * spread) ** 2 / (first.group_freedom + 1)
    return Parts(
        max(own, runs, least),
        max(taste, least_taste),
        first.group_freedom,
        first.examples,
        CLAMPED if rows else RUNS,
    )


def _groups(split: Path) -> stats.Floats:
    """Return how many examples each group of a split has."""
    names = [json.loads(line)["group"] for _, line in predictions.lines(split)]
    return np.unique(names, return_counts=True)[1].astype(np.float64)


def lines(found: Sequence[Power], experiment: Experiment) -> list[str]:
    """Return what the plan says above its table of power: assumptions, and why no test is made."""
    if not found:
        return []
    seeds = len(experiment.seeds)
    own = experiment.intermediate_seeds
    said = []
    if seeds < FEWEST or own < seeds:
        said.append(
            f"No difference will be marked: a test needs {FEWEST} seeds, each with an intermediate "
            f"run of its own (here: seeds {seeds}, intermediate_seeds {own}). The table is for "
            f"intermediate_seeds: {found[0].seeds} and as many seeds."
        )
    if _shares_general(experiment):
        said.append(
            f"No difference will be marked: some of {seeds} seeds share one of "
            f"{experiment.general_seeds} general models: set general_seeds to 1, or to {seeds} "
            "with as many intermediate_seeds"
        )
    if any(each.parts.source == CLAMPED for each in found):
        said.append(
            f"Scores within {100 * EDGE:.0f} points of 0 or 100 show next to no noise, but a "
            "difference from there moves into the range where noise is larger: their noise is "
            f"taken as at {100 * EDGE:.0f} or {100 - 100 * EDGE:.0f}"
            f" ({NOISE} logits between runs if no run shows them)"
        )
    if any(each.parts.source == "defaults" for each in found):
        said.append(
            f"defaults: {NOISE} logits between runs, {100 * SHARE:.0f}% right answers"
            + (
                f", {EXAMPLES} test examples"
                if any(each.parts.examples is None for each in found)
                else ""
            )
        )
    return said


def _shares_general(experiment: Experiment) -> bool:
    """Whether some seeds share a general model and others do not."""
    runs = [experiment.run_of(seed) for seed in experiment.seeds]
    return 1 < len({experiment.general_of(run) for run in runs}) < len(runs)


def to_rows(found: Sequence[Power]) -> list[Mapping[str, str]]:
    """Return a line of the plan's table of power for each task."""
    return [
        {
            "task": each.task,
            "test examples": str(each.parts.examples or f"{EXAMPLES}?"),
            f"{each.seeds} seeds find": f"±{each.finds:.1f} points",
            f"seeds for {WANTED:g} points": str(each.needed or f"more than {MOST}"),
            "noise from": each.parts.source,
        }
        for each in found
    ]
