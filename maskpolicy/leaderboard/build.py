"""The leaderboard: a view of stored results, policies x tasks, compared with a baseline."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from maskpolicy.errors import ConfigError, unknown
from maskpolicy.leaderboard import comparisons, joining, standings
from maskpolicy.leaderboard.board import Board, Guess, Row, Score, average_label, counted, missing
from maskpolicy.leaderboard.comparisons import Comparison
from maskpolicy.leaderboard.joining import Draft, join_rows
from maskpolicy.metrics import Total
from maskpolicy.results import compatibility, predictions, remarks
from maskpolicy.results.cell import Result, Run
from maskpolicy.types import Json


def build_leaderboard(
    runs: Sequence[Run], *, baseline: str | None = None, mixed: bool = False
) -> Board:
    """Rank the results of one or more runs.

    Raises ConfigError for rows of several runs that differ in a setting which no rule calls
    harmless (`comparable.HARMLESS`), unless `mixed` asks for them; a row without an intermediate
    stage has no budget of it.
    """
    drafts = join_rows(runs)
    unlike = joining.unlike(drafts)
    if unlike and not mixed:
        pair, differ = next(iter(unlike.items()))
        worlds = (
            "; `analyze worlds` compares worlds" if differ[0].startswith("world.seed: ") else ""
        )
        raise ConfigError(
            f"{pair} differ in {joining.shortened(differ)}: not one ranking; --mixed ranks them "
            f"all the same{worlds}"
        )
    clashes = joining.clashes(drafts)
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
    names = joining.names(drafts)
    present = (task for draft in drafts for task, _ in draft.cells)
    tasks = joining.order((run.tasks for run in runs), present)
    read = cache(predictions.read)
    rows = _rows(drafts, names, tasks, label, read)
    chosen = names[_baseline(drafts, label, drafts[0])]
    guesses, disagreed = joining.majority(runs)
    notes = [note for row in rows for note in missing(row)]
    notes += [
        *_against(rows),
        *_unpaired(rows),
        *_luck(drafts),
        *_told(drafts),
        *joining.renamed(drafts),
    ]
    notes += [*disagreed, *absent, *remarks.of(runs), *joining.mixed(unlike)]
    majority = {task: Guess(100 * one["score"], one["rule"]) for task, one in guesses.items()}
    groups = _groups(drafts, tasks)
    cells = {
        name: {task: draft.of(task) for task in tasks}
        for name, draft in zip(names, drafts, strict=True)
    }
    means = {average_label(group): members for group, members in groups.items()}
    pairs = tuple(standings.versus(cells, means, read))
    return Board(
        chosen,
        tuple(tasks),
        tuple(rows),
        tuple(notes),
        groups,
        majority,
        pairs,
        _compared_with(drafts, rows, label),
        _used(rows, runs),
    )


def _used(rows: Sequence[Row], runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs that cells of the rows come from, in their order."""
    by_folder = {run.folder: run for run in reversed(runs)}
    used = dict.fromkeys(cell.folder for row in rows for cell in row.cells.values())
    return tuple(by_folder[folder] for folder in used)


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
            task: _minus(means[index][task], means[base][task], tested[index, task])
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


def _score(cells: Mapping[int, Result | None]) -> Score | None:
    metrics = {seed: cell.metrics if cell else None for seed, cell in cells.items()}
    known = next((found for found in metrics.values() if found is not None), None)
    if known is None:
        return None
    percent = {seed: cell.percent if cell else None for seed, cell in cells.items()}
    return Score(known.metric, percent, known.n, parts=_parts(metrics.values()))


def _parts(metrics: Iterable[Total | None]) -> dict[str, float]:
    """Return the mean of each figure beside the score, in percent, over the seeds that have it."""
    values: dict[str, list[float]] = {}
    for found in filter(None, metrics):
        for name, value in found.parts.items():
            values.setdefault(name, []).append(100 * value)
    return {name: statistics.fmean(each) for name, each in values.items()}


def _minus(score: Score | None, base: Score | None, comparison: Comparison | None) -> Score | None:
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


def _compared_with(drafts: Sequence[Draft], rows: Sequence[Row], label: str) -> str:
    """Return what the rows are compared with, for the title of a board."""
    bases = list(dict.fromkeys(row.against for row in rows))
    if len(bases) < 2:
        return bases[0]
    having = {id(run) for draft in drafts for run, known in draft.labels if known == label}
    lack = any(all(id(run) not in having for run, _ in draft.labels) for draft in drafts)
    first = next(row.label for row in rows if row.is_baseline)
    return f"each run's own {label}" + (f", else {first}" if lack else "")


def _against(rows: Sequence[Row]) -> list[str]:
    """Return a note for each baseline that names the rows compared with it, if there are several.

    A baseline with which no other row is compared has none.
    """
    found: dict[str, list[str]] = {}
    for row in rows:
        others = found.setdefault(row.against, [])
        others += [] if row.is_baseline else [row.label]
    if len(found) < 2:
        return []
    return [
        f"compared with {base}: {', '.join(others)}" for base, others in found.items() if others
    ]


def _work(draft: Draft) -> Json:
    return next((cell.work for cell in draft.cells.values() if cell.work), None)


def _unpaired(rows: Sequence[Row]) -> list[str]:
    """Return a note for each row with seeds that its baseline has not, and so no difference of."""
    seeds = {row.label: {seed for _, seed in row.cells} for row in rows}
    return [
        f"{row.label} has {counted(more)}, which its baseline {row.against} lacks: differences "
        "leave them out"
        for row in rows
        if (more := sorted(seeds[row.label] - seeds[row.against]))
    ]


def _luck(drafts: Sequence[Draft]) -> list[str]:
    """Return a note if a row was pre-trained once in all of the runs."""
    once = [
        draft
        for draft in drafts
        if draft.config.get("intermediate_seeds") == 1
        and len({c.config.get("intermediate_seed") for c in draft.cells.values()}) == 1
    ]
    if not once:
        return []
    shows_deviation = any(len(draft.seeds) > 1 for draft in drafts)
    return [
        "intermediate_seeds is 1: each policy was pre-trained once, so the luck of that one run is "
        f"part of every difference{' and not of the standard deviation' if shows_deviation else ''}"
    ]


def _told(drafts: Sequence[Draft]) -> list[str]:
    return compatibility.told(cell for draft in drafts for cell in draft.cells.values())


def _groups(drafts: Sequence[Draft], tasks: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups of two tasks or more; tasks that are given the context are in none."""
    groups: dict[str, list[str]] = {}
    about = {task: cell for draft in drafts for (task, _), cell in draft.cells.items()}
    for task in tasks:
        if not about[task].config["task"].get("context"):
            groups.setdefault(about[task].group, []).append(task)
    return {name: tuple(members) for name, members in groups.items() if len(members) > 1}
