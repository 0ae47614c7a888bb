"""Power analysis of a planned experiment, with the noise of stored runs or default assumptions."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from maskpolicy.core.errors import MaskpolicyError
from maskpolicy.core.types import Json
from maskpolicy.data.taskfiles import examples
from maskpolicy.experiment.definition import HUB, WORLD, Experiment, TaskBlock
from maskpolicy.experiment.task_kinds import PAIRS, kind_of
from maskpolicy.leaderboard import comparisons, stats
from maskpolicy.leaderboard.comparisons import FEWEST, ONE_GROUP, WHOLE
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.collecting import cell_config
from maskpolicy.leaderboard.results.predictions import CellAnswers
from maskpolicy.leaderboard.stats import Difference
from maskpolicy.pipeline.stages import Graph
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins.discovery import find_metric, find_plugin

WANTED = 2.0  # difference in points for which the needed seeds are computed
MOST = 200  # the largest number of seeds considered
# Assumptions without stored runs; docs/development/simulations.md simulates noise of 0 to 0.4.
NOISE = 0.2  # standard deviation between runs, in logits
SHARE = 0.3  # share of right answers
PAIRS_SHARE = 0.5  # of pairs: guessing gets half of them right
EXAMPLES = 300  # in a test split, each in a group of its own
# Noise vanishes at scores of 0 or 1, but not at the score after a difference from there.
EDGE = 0.05  # scores are clamped to this distance from 0 and 1
RUNS = "runs in the store"
CLAMPED = f"{RUNS}, scores counted as {100 * EDGE:.0f} to {100 - 100 * EDGE:.0f}"


@dataclass(frozen=True)
class Parts:
    """The variance components of a difference on one task; scores are in [0, 1]."""

    runs: float  # variance of one seed's difference
    interaction: float  # variance from the sampling of groups
    group_freedom: float  # degrees of freedom of `interaction`
    examples: int | None  # of the test split; None if unknown, EXAMPLES is assumed
    source: str  # of these numbers, in words
    assumed: int = EXAMPLES  # examples, where their number is unknown
    share: float = SHARE  # of right answers, where it is unknown
    freedom: float = 0.0  # degrees of freedom of `runs`; 0: assumed, not measured
    fault: str = ""  # of the task's local files, why their examples are not counted


@dataclass(frozen=True)
class StoredDifference:
    """A difference between a row and the baseline, both with predictions in the store."""

    pair: Difference
    shares: tuple[float, float]  # mean scores of the two rows, in [0, 1]

    @property
    def at_edge(self) -> int:
        """The number of rows, 0 to 2, whose score is within EDGE of 0 or 1."""
        return sum(not EDGE <= share <= 1 - EDGE for share in self.shares)


@dataclass(frozen=True)
class Power:
    """The power of the planned tests on one task; differences are in points."""

    task: str
    parts: Parts
    seeds: int  # planned ones, at least FEWEST
    finds: float  # difference found with a probability of 80%
    needed: int | None  # seeds that find WANTED points; None: more than MOST
    between: tuple[float, float] | None = None  # `finds` for 8 of 10 pilots; None: no runs stored


def plan(experiment: Experiment, graph: Graph, store: Store) -> tuple[list[Power], dict[str, str]]:
    """Return for each task that is tested the difference that the planned seeds find.

    Then why the other tasks have nothing to test. Computes no stage. Raises DataError for
    predictions in the store that are broken.
    """
    read = {block.label: _groups(graph, store, block) for block in experiment.tasks}
    few = [task for task, (names, _) in read.items() if names is not None and len({*names}) < 2]
    untested = dict.fromkeys(few, ONE_GROUP)
    untested |= {task: WHOLE for task in read if _is_whole(graph, task)}
    blocks = [block for block in experiment.tasks if block.label not in untested]
    against = _baselines(experiment)
    if not (blocks and against):
        return [], untested
    stored = {
        block.label: _stored(experiment, graph, store, block.label, against) for block in blocks
    }
    noisy = [
        one.pair for known in stored.values() for one in known if one.at_edge < len(one.shares)
    ]
    noise = float(stats.run_noise(noisy)) if noisy else NOISE**2
    seeds = max(FEWEST, len(experiment.seeds))
    find = partial(finds, rows=len(against), tests=len(against) * len(blocks))
    powers = []
    for block in blocks:
        task = block.label
        groups, fault = read[task]
        share = PAIRS_SHARE if kind_of(find_plugin("task", block.name)) == PAIRS else SHARE
        parts = defaults(noise, groups, block.limit.test, share)
        if stored[task]:
            parts = stored_parts(stored[task], noise)
        elif noisy:
            parts = replace(parts, source="noise of other tasks' runs in the store")
        parts = replace(parts, fault=fault)
        counts = range(FEWEST, MOST + 1)  # more seeds find smaller differences
        needed = FEWEST + bisect_left(counts, -WANTED, key=lambda n: -find(parts, n))
        needed_seeds = needed if needed <= MOST else None
        ends = between(parts, seeds, find)
        powers.append(Power(task, parts, seeds, find(parts, seeds), needed_seeds, ends))
    return powers, untested


def _is_whole(graph: Graph, task: str) -> bool:
    """Return whether a task's metric has no scores of single examples."""
    cells = [stage for (_, name, _), stage in graph.cells.items() if name == task]
    evaluations = (one for cell in cells for one in (cell, *cell.inputs.values()))  # tuned: behind
    scored = (stage.params for stage in evaluations if stage.kind != "finetune")
    metrics = (getattr(params, "metric", None) for params in scored)
    return any(find_metric(str(name)).parts for name in metrics if name)


def finds(parts: Parts, seeds: int, rows: int, tests: int) -> float:
    """Return the difference in points that tests with this many seeds find with 80% power.

    `rows` is the number of rows besides the baseline, `tests` that of all tests of the board.
    """
    freedom = stats.freedom(seeds, rows, parts.group_freedom)
    error = np.sqrt(parts.runs / seeds + parts.interaction)
    return float(100 * error * stats.planned(seeds, rows, freedom, tests))


def between(
    parts: Parts, seeds: int, find: Callable[[Parts, int], float]
) -> tuple[float, float] | None:
    """Return the differences found if the noise is at the ends of its 80% confidence interval."""
    from scipy.special import chdtri

    if not parts.freedom:
        return None
    low, high = (parts.freedom / float(chdtri(parts.freedom, tail)) for tail in (0.1, 0.9))
    ends = [find(replace(parts, runs=parts.runs * factor), seeds) for factor in (low, high)]
    return min(100.0, ends[0]), min(100.0, ends[1])


def _stored(
    experiment: Experiment, graph: Graph, store: Store, task: str, against: Mapping[str, str]
) -> list[StoredDifference]:
    """Return the differences of rows that have stored predictions for at least two seeds.

    `against` has the row that each is compared with. The list is empty if seeds share intermediate
    runs, because these show no noise between runs, or if only some seeds share a general model.
    """
    if experiment.intermediate_seeds < len(experiment.seeds) or _shares_general(experiment):
        return []
    differences = []
    for rows in against.items():
        both = [
            [_answers(graph, store, (row, task, seed)) for row in rows] for seed in experiment.seeds
        ]
        known = [(one, two) for one, two in both if one is not None and two is not None]
        if len(known) < 2 or not known[0][0].groups.any():
            continue
        mine, other = (np.stack([each.scores for each in row]) for row in zip(*known, strict=True))
        pair = stats.pair(mine, other, known[0][0].groups, rows)
        differences.append(StoredDifference(pair, (float(mine.mean()), float(other.mean()))))
    return differences


def _baselines(experiment: Experiment) -> dict[str, str]:
    """Return the label of the row that each row but a baseline is compared with."""
    task, seed = experiment.tasks[0], experiment.seeds[0]
    configs = {
        block.label: cell_config(experiment, block, task, seed) for block in experiment.policies
    }
    labels = list(configs)
    rows = [([label], config) for label, config in configs.items()]
    found = {
        label: labels[comparisons.nearest_baseline(experiment.baseline, rows, config) or 0]
        for label, config in configs.items()
    }
    return {label: base for label, base in found.items() if label != base}


def _answers(graph: Graph, store: Store, cell: tuple[str, str, int]) -> CellAnswers | None:
    stage = graph.cells.get(cell)
    path = None if stage is None else store.file(stage.key, "predictions.jsonl")
    return None if path is None else predictions.answers(path)


def defaults(
    noise: float, names: Sequence[str] | None, limit: int = 0, share: float = SHARE
) -> Parts:
    """Return the assumed parts of a task, from the variance `noise` between runs in logits.

    `names` has the group of each test example, if they are known. Questions count as equally hard:
    answers vary most then.
    """
    assumed = min(limit or EXAMPLES, EXAMPLES)
    groups = np.ones(assumed)  # examples in each group
    if names is not None:
        groups = np.unique(names, return_counts=True)[1].astype(np.float64)
    weights = groups / groups.sum()
    spread = share * (1 - share)
    return Parts(
        2 * (noise * spread**2 + spread / groups.sum()),
        float(2 * (NOISE * spread) ** 2 * (weights**2).sum()),
        stats.effective_groups(weights) - 1,
        None if names is None else len(names),
        "defaults",
        assumed,
        share,
    )


def _groups(graph: Graph, store: Store, block: TaskBlock) -> tuple[list[str] | None, str]:
    """Return the group of each test example: of those in the store, or of the task's local files.

    They are None if there are neither, or if the files cannot be used, with the reason.
    """
    cells = (stage for (_, task, _), stage in graph.cells.items() if task == block.label)
    cell = next(cells, None)
    split = None if cell is None else store.file(cell.inputs["examples"].key, "test.jsonl")
    if split is not None:
        return [json.loads(line)["group"] for _, line in predictions.lines(split)], ""
    if block.data in (HUB, WORLD):
        return None, ""
    try:
        kept = examples.opened(block, "test", Path(block.data)).kept
        return [one.group for _, one in kept], ""
    except MaskpolicyError as error:
        return None, str(error)


def stored_parts(stored: Sequence[StoredDifference], noise: float) -> Parts:
    """Return the mean parts of a task's differences, with scores clamped to EDGE from 0 and 1.

    As in the test, a task that is noisier than all tasks together keeps its own noise.
    """
    first = stored[0].pair
    spread = EDGE * (1 - EDGE)
    own = fmean(float(each.pair.runs) for each in stored)
    runs = fmean(float(noise * each.pair.slope + each.pair.chance) for each in stored)
    interaction = fmean(float(each.pair.interaction) for each in stored)
    rows = max(each.at_edge for each in stored)
    least = rows * (noise * spread**2 + spread / first.examples)
    least_interaction = rows * (NOISE * spread) ** 2 / (first.group_freedom + 1)
    return Parts(
        max(own, runs, least),
        max(interaction, least_interaction),
        first.group_freedom,
        first.examples,
        CLAMPED if rows else RUNS,
        freedom=stats.freedom(first.seeds, len(stored), np.inf),
    )


def lines(powers: Sequence[Power], experiment: Experiment) -> list[str]:
    """Return the remarks above the table of power: assumptions, and why no test is made."""
    if not powers:
        return []
    seeds = len(experiment.seeds)
    own = experiment.intermediate_seeds
    remarks = []
    is_shared = own < seeds and any(block.has_stage for block in experiment.policies)
    if seeds < FEWEST or is_shared:
        remarks.append(
            f"No difference will be tested: a test needs {FEWEST} seeds, each with its own "
            f"intermediate run (here: seeds {seeds}, intermediate_seeds {own}). The table assumes "
            f"intermediate_seeds: {powers[0].seeds} and as many seeds."
        )
    if _shares_general(experiment):
        remarks.append(
            f"No difference will be tested: some of {seeds} seeds share one of "
            f"{experiment.general_seeds} general models: leave general_seeds out, with {seeds} "
            "intermediate_seeds"
        )
    if any(each.parts.source == CLAMPED for each in powers):
        remarks.append(
            f"Scores within {100 * EDGE:.0f} points of 0 or 100 show next to no noise, but a "
            "difference from there moves into the range where noise is larger: their noise is "
            f"assumed as at {100 * EDGE:.0f} or {100 - 100 * EDGE:.0f}"
            f" ({NOISE} logits between runs if no run shows them)"
        )
    remarks += [f"{p.task} cannot be read: {p.parts.fault}" for p in powers if p.parts.fault]
    if default := [each.parts for each in powers if each.parts.source == "defaults"]:
        unknown = sorted({each.parts.assumed for each in powers if each.parts.examples is None})
        examples = f", {' or '.join(map(str, unknown))} test examples" if unknown else ""
        shares = " or ".join(f"{100 * share:.0f}%" for share in sorted({p.share for p in default}))
        remarks.append(f"defaults: {NOISE} logits between runs, {shares} right answers{examples}")
    return remarks


def _shares_general(experiment: Experiment) -> bool:
    """Whether only some seeds share a general model."""
    runs = [experiment.run_of(seed) for seed in experiment.seeds]
    return 1 < len({experiment.general_of(run) for run in runs}) < len(runs)


def to_rows(powers: Sequence[Power]) -> list[Mapping[str, str]]:
    """Return the rows of the table of power, one for each task."""
    return [
        {
            "task": each.task,
            "test examples": str(each.parts.examples or f"{each.parts.assumed}?"),
            f"{each.seeds} seeds find": f"±{each.finds:.1f} points"
            + (" ({:.1f} to {:.1f})".format(*each.between) if each.between else "")
            if each.finds <= 100
            else "none",  # a larger difference cannot occur
            f"seeds for {WANTED:g} points": str(each.needed or f"more than {MOST}"),
            "noise from": each.parts.source,
        }
        for each in powers
    ]


def to_json(powers: Sequence[Power]) -> list[dict[str, Json]]:
    """Return the table of power with numbers; null means unknown, or too many."""
    return [
        {
            "task": each.task,
            "test_examples": each.parts.examples,
            "assumed_examples": each.parts.assumed if each.parts.examples is None else None,
            "seeds": each.seeds,
            "finds_points": round(each.finds, 3),
            "finds_between": each.between and [round(end, 3) for end in each.between],
            "wanted_points": WANTED,
            "seeds_for_wanted": each.needed,
            "noise_from": each.parts.source,
            "fault": each.parts.fault or None,
        }
        for each in powers
    ]
