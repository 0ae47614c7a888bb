"""Differences to a row: on tasks that a policy was not learned on, and over several worlds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from maskpolicy import ConfigError, Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses import over_runs
from maskpolicy.analyses.plots import Grid
from maskpolicy.core import keys
from maskpolicy.core.errors import listed
from maskpolicy.experiment.definition import WORLD, untuned
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.comparisons import FEWEST, baseline_of
from maskpolicy.leaderboard.results import compatibility

_TRANSFER_COLUMNS = (
    *("run", "policy", "learnt_on", "task", "difference", "score", "reference", "seeds", "own"),
)


@analysis("transfer", heading="What policies learned on one task do on others", place=30, version=3)
@dataclass(frozen=True)
class Transfer:
    """Scores on every task of policies learned on some (`train_on`), against a reference row.

    `difference` is that of the mean scores over shared seeds, in percentage points; `own` is "yes"
    for tasks that the policy was learned on.
    """

    reference: str = "salient-span"  # label of a row, or name of its policy

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Compare the scores of each run's learned rows with those of its reference row."""
        rows: list[Json] = []
        notes: list[str] = []
        panels = []
        for run in runs:
            learned = _learned(run)
            label = self._reference(run)
            if label is None:
                notes.append(
                    f"{run.name}: has no row {self.reference!r}: set another with reference=ROW"
                )
            elif not learned:
                notes.append(f"{run.name}: has no learned policy (with train_on)")
            else:
                found = [_row(run, *each, label) for each in product(learned.items(), run.columns)]
                rows += found
                names = [
                    row if row.endswith(", ".join(tasks)) else f"{row} ({', '.join(tasks)})"
                    for row, tasks in learned.items()
                ]
                values = [
                    [one["difference"] for one in found if one["policy"] == row] for row in learned
                ]
                title = f"difference to {label} (points)"
                panels.append(
                    Grid(title, names, run.columns, values, "used for", "learned on", True)
                )
        return Findings.of_runs(runs, _TRANSFER_COLUMNS, rows, notes, panels)

    def _reference(self, run: Run) -> str | None:
        labels = {result.policy: result.config["policy"]["name"] for result in run.results}
        if self.reference in labels:
            return self.reference
        return next((label for label, name in labels.items() if name == self.reference), None)


def _learned(run: Run) -> dict[str, list[str]]:
    """Return the tasks that each learned row was fitted on, in the order of the rows."""
    blocks = {result.policy: result.config["policy"] for result in run.results}
    found = {
        row: list(dict.fromkeys(_trained_on(blocks[row]))) for row in run.rows if row in blocks
    }
    return {row: tasks for row, tasks in found.items() if tasks}


def _trained_on(block: Json) -> Iterator[str]:
    """Yield the tasks of a policy, of the one that it starts from, and of its members."""
    if not isinstance(block, dict):
        return
    stated = block.get("train_on") or ()
    for one in [stated] if isinstance(stated, str) else stated:
        yield one["name"] if isinstance(one, dict) else str(one)
    for inner in (block.get("init"), *(block.get("members") or ())):
        yield from _trained_on(inner)


def _row(run: Run, learned: tuple[str, list[str]], task: str, reference: str) -> Json:
    label, tasks = learned
    scores, others = (_scores(run.results, row, task) for row in (label, reference))
    seeds = sorted(scores.keys() & others.keys())
    of_task = (result.config for result in run.results if result.task == task)
    names = {task, *(config.get("task", {}).get("name") for config in of_task)}
    score = statistics.fmean(scores[seed] for seed in seeds) if seeds else None
    other = statistics.fmean(others[seed] for seed in seeds) if seeds else None
    return {
        "run": run.name,
        "policy": label,
        "learnt_on": ", ".join(tasks),
        "task": task,
        "difference": None if score is None or other is None else score - other,
        "score": score,
        "reference": other,
        "seeds": len(seeds),
        "own": "yes" if names.intersection(tasks) else "",
    }


def _scores(results: Iterable[Result], row: str, task: str) -> dict[int, float]:
    """Return the scores of a row on a task by seed, in percent."""
    cells = (result for result in results if (result.policy, result.task) == (row, task))
    return {cell.seed: cell.percent for cell in cells if cell.percent is not None}


_WORLDS_COLUMNS = (
    *("policy", "task", "worlds", "difference", "low", "high", "p (Holm)", "detectable"),
)
CONDITION = (
    "The test generalises to other worlds made with the same settings, and so to other questions, "
    "corpora and runs. It holds fixed what does not depend on the world: settings and other text."
)
_DRAWN = ("world.seed", "general.seed")  # settings in which the runs may differ


@analysis("worlds", heading="Differences over several worlds", place=40, version=4)
@dataclass(frozen=True)
class Worlds:
    """Differences to the baseline over several worlds, with worlds as a random effect.

    Takes one run of the same experiment for each world (`world.seed=1 --out runs/world-1`); a test
    needs three. Each world gives one number for a row and task, the mean difference over its seeds
    and examples. The test is Student's t over these numbers, with one degree of freedom less than
    there are worlds; p is adjusted for all rows and tasks (Holm).
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Test the differences over worlds; raises ConfigError if experiments differ."""
        notes = _check(runs)
        rows = list(dict.fromkeys(row for run in runs for row in run.rows))
        tasks = list(dict.fromkeys(task for run in runs for task in run.columns))
        found: dict[tuple[str, str], list[float]] = {}
        for label, task in product(rows, tasks):
            base = baseline_of(runs[0], label)
            if label == base:
                continue
            values = [_difference(run, label, base, task) for run in runs]
            known = [value for value in values if value is not None]
            if len(known) == len(runs):
                found[label, task] = known
            else:
                notes.append(
                    f"{label}, {task}: has a difference in only {len(known)} of {len(runs)} worlds"
                )
        if len({_seed(run) for run in runs} - {None}) < 2:
            return Findings(_WORLDS_COLUMNS, (), tuple(notes))
        tests = over_runs.tested(found)
        notes += [
            f"{label}, {task}: the difference is the same in every world"
            for (label, task), values in found.items()
            if len(values) >= FEWEST and stats.are_equal(np.array(values))
        ]
        notes += [CONDITION] if tests else []
        means = {place: statistics.fmean(values) for place, values in found.items()}
        table = tuple(
            {"policy": place[0], "task": place[1], "worlds": len(found[place]), "difference": mean}
            | tests.get(place, {})
            for place, mean in means.items()
        )
        rows = [row for row in rows if any(row == label for label, _ in means)]
        tasks = [task for task in tasks if any(task == other for _, other in means)]
        shown = [[means.get((label, task)) for task in tasks] for label in rows]
        title = f"mean difference to {runs[0].baseline} over worlds (points)"
        panel = Grid(title, rows, tasks, shown, "task", "policy", True)
        return Findings(_WORLDS_COLUMNS, table, tuple(notes), (panel,) if means else ())


def _check(runs: Sequence[Run]) -> list[str]:
    """Return notes on why there is no test; raises ConfigError for different experiments."""
    known: dict[int, Run] = {}
    for run in runs:
        seed = _seed(run)
        if seed is None:
            return [f"{run.name}: has no questions about the embedded world"]
        if seed in known:
            raise ConfigError(
                f"{known[seed].folder} and {run.folder} both have world.seed {seed}: give one run "
                "for each world"
            )
        known[seed] = run
        lines = _differing(runs[0], run)
        if lines:
            raise ConfigError(
                f"{runs[0].folder} and {run.folder} differ in {listed(lines, '; ')}: run the same "
                "experiment in each world, changing only world.seed, with budgets in steps"
            )
    if len(runs) < FEWEST:
        return [f"{len(runs)} world{'s'[: len(runs) != 1]}: a test needs {FEWEST}"]
    return []


def _seed(run: Run) -> int | None:
    """Return the seed of the world that a run's questions are about, or None."""
    worlds = [one.config.get("world") for one in run.results if _asks_world(one)]
    seeds = {world["seed"] for world in worlds if world and "seed" in world}
    return seeds.pop() if len(seeds) == 1 else None


def _differing(one: Run, other: Run) -> list[str]:
    """Return "key: value -> value" for each setting that differs and is not a world's own."""
    before, after = _settings(one), _settings(other)
    lines = (
        line
        for row, name in sorted(before.keys() & after.keys())
        for line in keys.differences(before[row, name], after[row, name], name)
        if line.partition(": ")[0] not in _DRAWN
    )
    return [*dict.fromkeys(lines)]


def _settings(run: Run) -> dict[tuple[str, str], Json]:
    """Return what each row's results depend on, by row and name, but for what a world decides.

    Values that tuning chose are left out, because each world has its own dev examples.
    """
    found: dict[tuple[str, str], Json] = {}
    for result in run.results:
        tune = compatibility.tuned_keys(result)
        for name, part in compatibility.parts(result).items():
            if not name.startswith("seed "):
                block = compatibility.without(part, name, tune).settings
                if isinstance(block, dict) and name == result.task:
                    block = {k: v for k, v in block.items() if k != "n"}
                found[result.policy, name] = block
        found[result.policy, f"policy of {result.policy}"] = untuned(
            result.config.get("policy", {}), tune
        )
    return found


def _difference(run: Run, row: str, base: str, task: str) -> float | None:
    """Return a row's mean difference to the baseline over shared seeds, in points."""
    results = [result for result in run.results if _asks_world(result)]
    shared = over_runs.paired(*(_scores(results, each, task) for each in (row, base)))
    return statistics.fmean(shared) if shared else None


def _asks_world(result: Result) -> bool:
    """Whether the questions come from the experiment's own world, not from files or the Hub."""
    return bool(result.config.get("task", {}).get("data", WORLD) == WORLD)
