"""The leaderboard: a view of stored results, policies x tasks, compared with a baseline."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from maskpolicy import (
    comparable,
    comparisons,
    gathering,
    metrics,
    predictions,
    remarks,
    standings,
)
from maskpolicy.comparisons import Comparison
from maskpolicy.errors import ConfigError, unknown
from maskpolicy.gathering import Cell, Draft, Gap
from maskpolicy.results import Run
from maskpolicy.standings import Standing, Versus
from maskpolicy.types import Json

VERSION = 1
_SAME = 9  # digits after which two means are one
WORK = ("passages", "passages_without_span", "hidden_tokens", "target_tokens")


@dataclass(frozen=True)
class Score:
    """One row's score on one task, in percent.

    `seeds` holds None for a seed that failed, or that the baseline has and this row has not.
    """

    metric: str
    seeds: Mapping[int, float | None]
    n: int  # test examples
    delta: float | None = None  # mean difference to the baseline over the seeds of both
    comparison: Comparison | None = None  # with the baseline; None: the baseline itself
    parts: Mapping[str, float] = field(default_factory=dict)  # figures beside the score, as F1

    @property
    def values(self) -> list[float]:
        """The scores that are there."""
        return [value for value in self.seeds.values() if value is not None]

    @property
    def mean(self) -> float:
        """The mean over the seeds that are there."""
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds with n - 1; None for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def is_significant(self) -> bool:
        """Whether the difference that is shown is one that the test finds, in its direction."""
        found = self.comparison and self.comparison.is_significant and self.comparison.found
        return bool(found and self.delta and found.difference * self.delta > 0)

    @property
    def is_complete(self) -> bool:
        """Whether there is a score for each seed of this row and of the baseline."""
        return len(self.values) == len(self.seeds)


@dataclass(frozen=True)
class Row:
    """One policy as one experiment used it."""

    label: str
    config: Json  # the policy's block
    scores: Mapping[str, Score | None]  # by task; None: there is none
    work: Json = None
    cells: Mapping[tuple[str, int], Cell] = field(default_factory=dict)  # by task and seed
    gaps: tuple[Gap, ...] = ()
    against: str = ""  # the row it is compared with: the baseline, of its own run if that has one


@dataclass(frozen=True)
class Guess:
    """What a guess without a model reaches on one task (`maskpolicy.majority`)."""

    percent: float
    rule: str


@dataclass(frozen=True)
class Board:
    """A whole leaderboard; `groups` are two or more tasks whose scores may be averaged."""

    baseline: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    majority: Mapping[str, Guess] = field(default_factory=dict)  # by task, as far as it is known
    pairs: tuple[Versus, ...] = ()  # all pairs of rows on all tasks and averages, one family

    @cached_property
    def standings(self) -> Mapping[str, Mapping[str, Standing]]:
        """By task or average, and by row: the ranks that the row may have."""
        return standings.standings(self.pairs)

    @property
    def seeds(self) -> int:
        """The most seeds that a score has."""
        scores = (score for row in self.rows for score in row.scores.values() if score)
        return max((len(score.seeds) for score in scores), default=0)

    @property
    def tests(self) -> int:
        """The number of differences that were tested, one family."""
        scores = (score for row in self.rows for score in row.scores.values() if score)
        return sum(bool(score.comparison and score.comparison.found) for score in scores)

    @property
    def condition(self) -> str:
        """What the tests answer for and what they hold fixed, "" without a test."""
        scores = (score for row in self.rows for score in row.scores.values() if score)
        return comparisons.condition(score.comparison for score in scores)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Those of the notes that say why a score is not there."""
        return tuple(note for row in self.rows for note in _missing(row))

    def metric(self, task: str) -> str:
        """Return what the metric of a task is called."""
        scores = (row.scores[task] for row in self.rows)
        return next((metrics.title(score.metric) for score in scores if score), "no score")

    def average(self, row: Row, group: str) -> float | None:
        """Return the mean over a group's tasks, or None unless the row is complete there."""
        scores = [row.scores.get(task) for task in self.groups[group]]
        if any(score is None or not score.is_complete for score in scores):
            return None
        return statistics.fmean(score.mean for score in scores if score is not None)

    def majority_average(self, group: str) -> float | None:
        """Return the mean of majority over a group's tasks, or None unless all are known."""
        known = [self.majority[task] for task in self.groups[group] if task in self.majority]
        if len(known) < len(self.groups[group]):
            return None
        return statistics.fmean(guess.percent for guess in known)

    @property
    def runs(self) -> list[Run]:
        """The runs that the scores come from."""
        cells = (cell for row in self.rows for cell in row.cells.values())
        return list({id(cell.run): cell.run for cell in cells}.values())

    def best(self) -> dict[str, set[str]]:
        """Return, by task, the one row with the highest mean; no row where two or more share it.

        Rows that lack a seed do not count. Rows with seeds of their own are compared over the seeds
        that all have.
        """
        return {task: self._best(task) for task in self.tasks}

    def _best(self, task: str) -> set[str]:
        scores = {row.label: row.scores[task] for row in self.rows}
        whole = {label: score for label, score in scores.items() if score and score.is_complete}
        shared = set.intersection(*(set(score.seeds) for score in whole.values())) if whole else ()
        if not shared or len(whole) < 2:
            return set()
        means = {
            label: round(statistics.fmean(score.seeds[seed] or 0.0 for seed in shared), _SAME)
            for label, score in whole.items()
        }
        highest = max(means.values())
        found = {label for label, mean in means.items() if mean == highest}
        return found if len(found) == 1 else set()


def build(runs: Sequence[Run], *, baseline: str | None = None, mixed: bool = False) -> Board:
    """Rank the results of one or more runs.

    Raises ConfigError for rows of several runs that differ in a setting which no rule calls
    harmless (`comparable.HARMLESS`), unless `mixed` asks for them; a row without an intermediate
    stage has no budget of it.
    """
    drafts = gathering.gather(runs)
    unlike = gathering.unlike(drafts)
    if unlike and not mixed:
        raise ConfigError(f"{unlike[0]}: not one ranking; --mixed ranks them all the same")
    clashes = gathering.clashes(drafts)
    if clashes and not mixed:
        raise ConfigError(f"{clashes[0]}: give one another label; --mixed tells them by their runs")
    label = baseline or runs[0].baseline
    absent = []
    if baseline is None and label in _left_out(runs, drafts):
        absent = [f"{label}, the baseline, was left out: rows are compared with {drafts[0].label}"]
        label = drafts[0].label
    if not any(draft.is_called(label) for draft in drafts):
        raise ConfigError(
            f"baseline: {unknown('row', label, (d.label for d in drafts))}; name one as --baseline"
        )
    names = gathering.names(drafts)
    present = (task for draft in drafts for task, _ in draft.cells)
    tasks = gathering.order((run.tasks for run in runs), present)
    read = cache(lambda cell: predictions.read(cell.predictions, cell.result))
    rows = _rows(drafts, names, tasks, label, read)
    chosen = names[_baseline(drafts, label, drafts[0])]
    guesses, disagreed = gathering.majority(runs)
    notes = [note for row in rows for note in _missing(row)]
    notes += [*_unpaired(rows), *_luck(drafts), *_told(drafts), *gathering.renamed(drafts)]
    notes += [*disagreed, *absent, *remarks.of(runs), *(f"mixed: {line}" for line in unlike)]
    majority = {task: Guess(100 * one["score"], one["rule"]) for task, one in guesses.items()}
    groups = _groups(drafts, tasks)
    cells = {
        name: {task: draft.of(task) for task in tasks}
        for name, draft in zip(names, drafts, strict=True)
    }
    means = {average_label(group): members for group, members in groups.items()}
    pairs = tuple(standings.versus(cells, means, read))
    return Board(chosen, tuple(tasks), tuple(rows), tuple(notes), groups, majority, pairs)


def average_label(group: str) -> str:
    """Return the name of the column that averages a group of tasks."""
    return f"mean of {group}"


def _left_out(runs: Sequence[Run], drafts: Sequence[Draft]) -> set[str]:
    """Return the rows of runs that --only left out whole."""
    stated = {label for run in runs if run.left_out for label in run.policies}
    return {label for label in stated if not any(draft.is_called(label) for draft in drafts)}


def _rows(
    drafts: Sequence[Draft],
    names: Sequence[str],
    tasks: Sequence[str],
    label: str,
    read: comparisons.Reader,
) -> list[Row]:
    """Score every row and compare it with the baseline of its own run."""
    bases = [_baseline(drafts, label, draft) for draft in drafts]
    wanted = [drafts[base].seeds for base in bases]
    means = [_scores(*each, tasks) for each in zip(drafts, wanted, strict=True)]
    tested = _compared(drafts, bases, tasks, read)
    rows = []
    for index, (draft, name, base) in enumerate(zip(drafts, names, bases, strict=True)):
        scores = {
            task: _against(means[index][task], means[base][task], tested[index, task])
            for task in tasks
        }
        gaps = tuple(draft.gaps(tasks, wanted[index]))
        about = draft.config["policy"]
        rows.append(Row(name, about, scores, _work(draft), draft.cells, gaps, names[base]))
    return rows


def _compared(
    drafts: Sequence[Draft],
    bases: Sequence[int],
    tasks: Sequence[str],
    read: comparisons.Reader,
) -> dict[tuple[int, str], Comparison | None]:
    """Compare each row's cells with its baseline's, adjusted for the number of all tests."""
    places = [(index, task) for index in range(len(drafts)) for task in tasks]
    found = [
        None if index == bases[index] else _compare(drafts, index, bases[index], task, read)
        for index, task in places
    ]
    return dict(zip(places, comparisons.judge(found), strict=True))


def _compare(
    drafts: Sequence[Draft], row: int, base: int, task: str, read: comparisons.Reader
) -> Comparison:
    names = (str(row), str(base))
    return comparisons.compare(drafts[row].of(task), drafts[base].of(task), read, names)


def _scores(draft: Draft, seeds: Iterable[int], tasks: Sequence[str]) -> dict[str, Score | None]:
    return {task: _score(draft.of(task, seeds)) for task in tasks}


def _score(cells: Mapping[int, Cell | None]) -> Score | None:
    metrics = {seed: cell.result.metrics if cell else None for seed, cell in cells.items()}
    known = next((found for found in metrics.values() if found is not None), None)
    if known is None:
        return None
    percent = {seed: found and 100 * float(found["score"]) for seed, found in metrics.items()}
    return Score(known["metric"], percent, known["n"], parts=_parts(metrics.values()))


def _parts(metrics: Iterable[Json]) -> dict[str, float]:
    """Return the mean of each figure beside the score, in percent, over the seeds that have it."""
    values: dict[str, list[float]] = {}
    for found in filter(None, metrics):
        for name, value in found.get("parts", {}).items():
            values.setdefault(name, []).append(100 * float(value))
    return {name: statistics.fmean(each) for name, each in values.items()}


def _against(
    score: Score | None, base: Score | None, comparison: Comparison | None
) -> Score | None:
    if score is None or base is None:
        return score
    shared = [
        value - other
        for seed, value in score.seeds.items()
        if value is not None and (other := base.seeds.get(seed)) is not None
    ]
    delta = statistics.fmean(shared) if shared else None
    return replace(score, delta=delta, comparison=comparison)


def _baseline(drafts: Sequence[Draft], label: str, draft: Draft) -> int:
    """Return the index of the baseline of a row: one of its own runs', else the first."""
    found = [index for index, other in enumerate(drafts) if other.is_called(label)]
    own = (i for i in found for run, _ in draft.labels if drafts[i].is_called(label, run))
    return next(own, found[0])


def _work(draft: Draft) -> Json:
    return next((cell.result.work for cell in draft.cells.values() if cell.result.work), None)


def _missing(row: Row) -> list[str]:
    """Return why scores of a row are not there; seeds that it has nowhere are told together."""
    own = {seed for _, seed in row.cells}
    nowhere = sorted({gap.seed for gap in row.gaps if gap.seed is not None} - own)
    notes = []
    for gap in row.gaps:
        if gap.seed not in nowhere:
            seed = "" if gap.seed is None else f", seed {gap.seed}"
            notes.append(f"{row.label}, {gap.task}{seed}: {gap.reason}")
    if nowhere:
        lacks = f"{row.label} lacks {_seeds(nowhere)} of its baseline {row.against}"
        notes.append(f"{lacks}: its differences are over the seeds of both")
    return notes


def _unpaired(rows: Sequence[Row]) -> list[str]:
    """Return a note for each row with seeds that its baseline has not, and so no difference of."""
    seeds = {row.label: {seed for _, seed in row.cells} for row in rows}
    return [
        f"{row.label} has {_seeds(more)}, which its baseline {row.against} lacks: differences "
        "leave them out"
        for row in rows
        if (more := sorted(seeds[row.label] - seeds[row.against]))
    ]


def _seeds(numbers: Sequence[int]) -> str:
    return f"seed{'s'[: len(numbers) != 1]} {', '.join(map(str, numbers))}"


def _luck(drafts: Sequence[Draft]) -> list[str]:
    """Return a note if a row was pre-trained once in all of the runs."""
    once = [
        draft
        for draft in drafts
        if draft.config.get("intermediate_seeds") == 1
        and len({c.result.config.get("intermediate_seed") for c in draft.cells.values()}) == 1
    ]
    if not once:
        return []
    return [
        "intermediate_seeds is 1: each policy was pre-trained once, so the luck of that one run is "
        "part of every difference and not of the standard deviation"
    ]


def _told(drafts: Sequence[Draft]) -> list[str]:
    return comparable.told(cell.result for draft in drafts for cell in draft.cells.values())


def _groups(drafts: Sequence[Draft], tasks: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups of two tasks or more; tasks that are given the context are in none."""
    groups: dict[str, list[str]] = {}
    about = {task: cell.result for draft in drafts for (task, _), cell in draft.cells.items()}
    for task in tasks:
        if not about[task].config["task"].get("context"):
            groups.setdefault(about[task].group, []).append(task)
    return {name: tuple(members) for name, members in groups.items() if len(members) > 1}
