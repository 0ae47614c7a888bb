"""Build a leaderboard (policies x tasks) from the results of one or more runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from maskpolicy.core import keys
from maskpolicy.core.errors import ConfigError, listed, unknown
from maskpolicy.core.files import relative_paths
from maskpolicy.data.taskfiles import audit
from maskpolicy.experiment.task_blocks import SHORT_ANSWERS, lacks_short_answers
from maskpolicy.leaderboard import comparisons, description, joined_rows
from maskpolicy.leaderboard.board import (
    Board,
    BoardRow,
    Guess,
    Score,
    average_label,
    counted,
    missing,
)
from maskpolicy.leaderboard.comparisons import Comparison
from maskpolicy.leaderboard.joined_rows import Draft, join_rows
from maskpolicy.leaderboard.results import compatibility, predictions, run_folder
from maskpolicy.leaderboard.results.cell import Result, Run, named_apart

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy")  # that may change scores


def build_leaderboard(
    runs: Sequence[Run], *, baseline: str | None = None, mixed: bool = False
) -> Board:
    """Join the results of one or more runs and compare every row with its baseline.

    Raises ConfigError if rows of different runs differ in a setting that is not listed in
    `compatibility.HARMLESS`, or if two policies share a label. `mixed` allows both. Settings of
    the intermediate stage are not compared for rows without that stage.
    """
    runs = named_apart(runs)
    drafts = join_rows(runs)
    unlike = joined_rows.unlike(drafts)
    if not mixed:
        _check_comparable(drafts, unlike)
    for draft, name in zip(drafts, joined_rows.names(drafts), strict=True):
        draft.name = name
    label, absent = _baseline_label(runs, drafts, baseline)
    present = {task for draft in drafts for task, _ in draft.cells}
    tasks = [t for t in dict.fromkeys(t for run in runs for t in run.columns) if t in present]
    read = cache(predictions.read_answers)
    for cell in (cell for draft in drafts for cell in draft.cells.values()):
        read(cell)  # raises DataError if scores and answers disagree, also where nothing is tested
    rows = _rows(drafts, tasks, label, read)
    guesses, disagreements = joined_rows.majority(runs)
    groups = _groups(drafts, tasks)
    notes = [
        *_notes(drafts, rows),
        *disagreements,
        *absent,
        *_counted_twice(drafts, groups),
        *_run_notes(runs),
        *_version_notes(runs),
        *joined_rows.mixed(unlike),
    ]
    cells = {draft.name: {task: draft.of(task) for task in tasks} for draft in drafts}
    means = {average_label(group): members for group, members in groups.items()}
    by_folder = {run.folder: run for run in reversed(runs)}
    used = dict.fromkeys(cell.folder for row in rows for cell in row.cells.values())
    return Board(
        baseline=drafts[_baseline(drafts, label, drafts[0])].name,
        tasks=tuple(tasks),
        rows=tuple(rows),
        notes=tuple(relative_paths(notes, runs[0].folder)),
        groups=groups,
        majority={task: Guess(100 * one["score"], one["rule"]) for task, one in guesses.items()},
        pairs=tuple(comparisons.versus(cells, means, read)),
        compared_with=_compared_with(drafts, rows, label),
        runs=tuple(by_folder[folder] for folder in used),
    )


def _notes(drafts: Sequence[Draft], rows: Sequence[BoardRow]) -> list[str]:
    """Return the notes on rows and their cells."""
    return [
        *missing(rows),
        *_against(rows),
        *_unpaired(rows),
        *_single_run(drafts),
        *_single_general(drafts, rows),
        *_recomputed(drafts),
        *needs_steady_runs(rows),
        *lying_apart(rows),
        *compatibility.notes([cell for draft in drafts for cell in draft.cells.values()]),
        *description.tuned_unlike(rows),
        *description.chosen_at_an_end(rows),
        *joined_rows.renamed(drafts),
    ]


def _check_comparable(drafts: Sequence[Draft], unlike: Mapping[str, Sequence[str]]) -> None:
    """Raise ConfigError for rows that differ in their settings, or share a label."""
    for pair, differ in unlike.items():
        of_worlds = differ[0].startswith("world.seed: ")
        worlds = "; `analyze worlds` compares worlds" if of_worlds else ""
        raise ConfigError(
            f"{pair} differ in {listed(differ, '; ')}: they cannot be ranked together; "
            f"--mixed ranks them anyway{worlds}"
        )
    for clash in joined_rows.clashes(drafts):
        raise ConfigError(
            f"{clash}: rename one of them, or use --mixed to show them with their runs"
        )


def _baseline_label(
    runs: Sequence[Run], drafts: Sequence[Draft], given: str | None
) -> tuple[str, list[str]]:
    """Return the baseline's label, and a note if the first row replaces it.

    The first row is the baseline if --only left out rows of the first run, whose label it is.
    Raises ConfigError if no row has the label.
    """
    label = given or runs[0].baseline
    if comparisons.baseline_candidates(label, _labelled(drafts)):
        return label, []
    if given is None and runs[0].left_out:
        first = drafts[0].label
        return first, [f"{label}, the baseline, was left out: rows are compared with {first}"]
    raise ConfigError(
        f"baseline: {unknown('row', label, (d.name for d in drafts))}; set one with --baseline"
    )


def _rows(
    drafts: Sequence[Draft], tasks: Sequence[str], label: str, read: comparisons.Reader
) -> list[BoardRow]:
    """Score every row and compare it with the baseline of its own run; all tests are one family."""
    bases = [_baseline(drafts, label, draft) for draft in drafts]
    base_seeds = [drafts[base].seeds for base in bases]
    places = [(index, task) for index in range(len(drafts)) for task in tasks]
    means = {(i, task): _score(drafts[i].of(task, base_seeds[i])) for i, task in places}
    compared: list[Comparison | None] = []
    for index, task in places:
        base = bases[index]
        cells = drafts[index].of(task), drafts[base].of(task)
        named = (str(index), str(base))
        compared.append(None if index == base else comparisons.compare(*cells, read, named))
    tested = dict(zip(places, comparisons.assess_family(compared), strict=True))
    rows = []
    for index, (draft, base) in enumerate(zip(drafts, bases, strict=True)):
        scores = {
            task: _minus(means[index, task], means[base, task], tested[index, task])
            for task in tasks
        }
        gaps = tuple(draft.gaps(tasks, base_seeds[index]))
        work = next((cell.work for cell in draft.cells.values() if cell.work), None)
        policy = draft.config["policy"]
        against = drafts[base].name
        rows.append(BoardRow(draft.name, policy, scores, work, draft.cells, gaps, against))
    return rows


def _score(cells: Mapping[int, Result | None]) -> Score | None:
    totals = [cell.metrics for cell in cells.values() if cell and cell.metrics is not None]
    if not totals:
        return None
    percent = {seed: cell.percent if cell else None for seed, cell in cells.items()}
    parts: dict[str, list[float]] = {}
    for total in totals:
        for name, value in total.parts.items():
            parts.setdefault(name, []).append(100 * value)
    means = {name: statistics.fmean(values) for name, values in parts.items()}
    return Score(totals[0].metric, percent, totals[0].n, parts=means)


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
    """Return the index of a row's baseline: one of its own runs, else of all."""
    for run, _ in draft.labels:
        place = comparisons.nearest_baseline(label, _labelled(drafts, run), draft.config)
        if place is not None:
            return place
    return comparisons.nearest_baseline(label, _labelled(drafts), draft.config) or 0


def _labelled(drafts: Sequence[Draft], run: Run | None = None) -> list[comparisons.LabelledRow]:
    """Return the labels of each row, in a run or in all and on the board, and its settings."""

    def known(draft: Draft) -> list[str]:
        own = [label for other, label in draft.labels if run is None or run is other]
        return own if run else [*own, draft.name]

    return [(known(each), each.config) for each in drafts]


def _compared_with(drafts: Sequence[Draft], rows: Sequence[BoardRow], label: str) -> str:
    """Return the baseline, or the rule that gives each row its baseline, for titles."""
    bases = list(dict.fromkeys(row.against for row in rows))
    if len(bases) < 2:
        return bases[0]
    if not any(draft.is_called(label) for draft in drafts):
        return f"that row of {label} which has the same settings"
    with_own = {id(run) for draft in drafts for run, known in draft.labels if known == label}
    any_without = any(all(id(run) not in with_own for run, _ in draft.labels) for draft in drafts)
    first = next(row.label for row in rows if row.is_baseline)
    return f"each run's own {label}" + (f", else {first}" if any_without else "")


def _against(rows: Sequence[BoardRow]) -> list[str]:
    """If there are several baselines, return for each a note with the rows compared with it."""
    compared: dict[str, list[str]] = {}
    for row in rows:
        others = compared.setdefault(row.against, [])
        others += [] if row.is_baseline else [row.label]
    if len(compared) < 2:
        return []
    return [
        f"compared with {base}: {listed(others)}" for base, others in compared.items() if others
    ]


def _unpaired(rows: Sequence[BoardRow]) -> list[str]:
    """Return a note for each row with seeds that its baseline lacks."""
    seeds = {row.label: {seed for _, seed in row.cells} for row in rows}
    return [
        f"{row.label} has {counted(more)}, which its baseline {row.against} lacks: differences "
        "leave them out"
        for row in rows
        if (more := sorted(seeds[row.label] - seeds[row.against]))
    ]


def _single_run(drafts: Sequence[Draft]) -> list[str]:
    """Return a note with the rows all of whose cells come from one intermediate run."""
    rows = [draft for draft in drafts if "intermediate_seeds" in draft.config]
    single = [
        draft.name
        for draft in rows
        if draft.config["intermediate_seeds"] == 1
        and len({c.config.get("intermediate_seed") for c in draft.cells.values()}) == 1
    ]
    if not single:
        return []
    where, who, of = "", "each policy", "every difference"
    if len(single) < len(rows):
        where, who, of = f" for {listed(single)}", "such a row", "its differences"
    shows_deviation = any(len(draft.seeds) > 1 for draft in drafts)
    return [
        f"intermediate_seeds is 1{where}: {who} has one intermediate run"
        f"{' and one general model' if 'general' in drafts[0].config else ''}, so the variation "
        f"between these is part of {of}"
        f"{' and not of the standard deviation' if shows_deviation else ''}"
    ]


def _single_general(drafts: Sequence[Draft], rows: Sequence[BoardRow]) -> list[str]:
    """Return a note if tests rest on a single general model that was built from scratch."""
    scores = [score for row in rows for score in row.scores.values() if score is not None]
    tests = [one for score in scores if (one := score.comparison) is not None and one.estimate]
    if "general" not in drafts[0].config or all(each.draws_general for each in tests):
        return []
    return [
        "where general_seeds is 1, all seeds start from one general model, which may suit one row "
        "more than another: a mark may be about this model alone; if general_seeds is left out, "
        "each intermediate run has its own"
    ]


def needs_steady_runs(rows: Sequence[BoardRow]) -> list[str]:
    """Return a note with the marks that hold only if runs do not either learn or fail."""
    places = [
        f"{row.label} on {column}"
        for row in rows
        for column, comparison in row.comparisons.items()
        if comparison and comparison.needs_steady_runs
    ]
    if not places:
        return []
    return [
        f"the mark of {listed(places)} holds if runs vary normally, but not if some runs learn and "
        "others fail: so few runs may agree by chance"
    ]


def lying_apart(rows: Sequence[BoardRow], unit: str = "seed") -> list[str]:
    """Return a note with the seeds that are far from all others of their row: 1 logit, 10 points.

    The others must differ by less than half of that.
    """
    places = []
    for row in rows:
        for task, score in row.scores.items():
            seeds = {} if score is None else score.seeds
            known = sorted((value, seed) for seed, value in seeds.items() if value is not None)
            for alone, others in ((known[:1], known[1:]), (known[-1:], known[-2::-1])):
                if len(others) > 1 and _lies_apart(alone[0][0], others[0][0], others[-1][0]):
                    places.append(f"{unit} {alone[0][1]} of {row.label} on {task}")
    if not places:
        return []
    return [
        f"{listed(places)} {'lies' if len(places) == 1 else 'lie'} apart from the other {unit}s of "
        "the row: if runs either learn or fail, marks are wrong more often than 1 in 20 boards"
    ]


def _lies_apart(alone: float, near: float, far: float) -> bool:
    """Whether a score lies apart from others that reach from `near` to `far`, in percent."""
    shares = (min(98.0, max(2.0, value)) / 100 for value in (alone, near, far))
    one, first, last = (math.log(share / (1 - share)) for share in shares)
    return abs(alone - near) >= 10 and abs(one - first) >= max(1.0, 2 * abs(last - first))


def _recomputed(drafts: Sequence[Draft]) -> list[str]:
    """Return a note for all folders that computed a general model with different weights."""
    models: dict[str, dict[str, str]] = {}  # by key and weights: a folder
    for cell in (cell for draft in drafts for cell in draft.cells.values()):
        if cell.weights is not None and (key := cell.stage_key("general")):
            models.setdefault(key, {}).setdefault(cell.weights, str(cell.folder))
    unlike = dict.fromkeys(tuple(sorted(one.values())) for one in models.values() if len(one) > 1)
    return [
        f"{listed(folders)} computed the same general model with different weights "
        "(other machines or versions): differences between their rows are not tested"
        for folders in unlike
    ]


def _groups(drafts: Sequence[Draft], tasks: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups of two or more closed-book tasks, by name."""
    groups: dict[str, list[str]] = {}
    about = _by_task(drafts)
    for task in tasks:
        if not about[task].config["task"].get("context"):
            groups.setdefault(about[task].group, []).append(task)
    return {name: tuple(members) for name, members in groups.items() if len(members) > 1}


def _by_task(drafts: Sequence[Draft]) -> dict[str, Result]:
    """Return a cell of each task."""
    return {task: cell for draft in drafts for (task, _), cell in draft.cells.items()}


def _counted_twice(drafts: Sequence[Draft], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a note for each mean over several columns of the same examples."""
    blocks = {task: cell.config["task"] for task, cell in _by_task(drafts).items()}
    notes = []
    for name, members in groups.items():
        columns: dict[str, list[str]] = {}
        for task in members:
            data = {key: value for key, value in blocks[task].items() if key != "metrics"}
            columns.setdefault(keys.canonical(data), []).append(task)
        notes += [
            f"{average_label(name)}: {' and '.join(same)} are scores of the same answers, which "
            f"count {len(same)} times in this mean"
            for same in columns.values()
            if len(same) > 1
        ]
    return notes


def _version_notes(runs: Sequence[Run]) -> list[str]:
    """Return a note for each package whose version differs between the rows' stages."""
    rows: dict[str, set[tuple[str, str]]] = {}  # the packages and versions of each row's stages
    for run in runs:
        known = run_folder.versions_of(run.folder)
        for result in run.results:
            label = f"{run.name}: {result.policy}" if len(runs) > 1 else result.policy
            made = [known.get(key, {}) for key in result.stages.values()]
            pairs = {(name, each[name]) for each in made for name in _PACKAGES if name in each}
            rows.setdefault(label, set()).update(pairs)
    notes = []
    for name in _PACKAGES:
        by_version: dict[str, list[str]] = {}
        for label, pairs in rows.items():
            versions = " and ".join(sorted(version for of, version in pairs if of == name))
            by_version.setdefault(versions, []).append(label)
        by_version.pop("", None)
        if len(by_version) > 1:
            told = "; ".join(f"{version} ({listed(of)})" for version, of in by_version.items())
            notes.append(f"rows were made with different versions of {name}: {told}")
    return notes


def _run_notes(runs: Sequence[Run]) -> list[str]:
    """Return all notes; if there are several runs, each note begins with the run's name."""
    notes = []
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        audits = {one.task: one.audit for one in run.results if one.audit is not None}
        about = [
            _left_out(run),
            run.about_dropped,
            _uncounted(run),
            _shrunk(run),
            *_cut_text(run),
            *_unanswered(run),
            *(
                line
                for task in run.columns
                if task in audits
                for line in audit.notes(task, audits[task])
            ),
        ]
        notes += [f"{prefix}{line}" for line in about if line]
    return notes


def _left_out(run: Run) -> str:
    """Return a note with the cells that --only left out, or ""."""
    if not run.left_out:
        return ""
    count = len(run.left_out)
    were = "cell was" if count == 1 else "cells were"
    return f"{count} {were} left out by --only: {listed(run.left_out)}"


def _uncounted(run: Run) -> str:
    """Return a note with the rows whose counts of masked tokens the store has lost, or ""."""
    lost = [
        one.policy
        for one in run.results
        if one.metrics is not None and one.work is None and "intermediate" in one.config
    ]
    if not lost:
        return ""
    rows = listed(list(dict.fromkeys(lost)))
    return f"no counts of masked tokens for {rows}: work.json is missing or damaged in the store"


def _shrunk(run: Run) -> str:
    """Return a note with the trainings in which memory ran out, or ""."""
    trainings = {name: how for one in run.results for name, how in (one.shrunk or {}).items()}
    if not trainings:
        return ""
    some = [
        f"{name} with {how['micro_tokens']} from step {how['step']}"
        for name, how in trainings.items()
    ]
    return (
        "memory ran out, and trainings went on with smaller micro_tokens, which changes gradients "
        f"by rounding alone, and draws other dropout: {listed(some)}"
    )


def _cut_text(run: Run) -> list[str]:
    """Return a note for each share of the text that some rows' trainings did not read."""
    rows: dict[str, dict[str, None]] = {}
    for one in run.results:
        if (work := one.work or {}).get("cut_tokens"):
            share = f"{100 * work['cut_tokens'] / work['passage_tokens']:.2g}%"
            rows.setdefault(share, {})[one.policy] = None
    return [
        f"{share} of the text of {listed(list(labels))} was cut: its passages are longer than "
        "max_source, or than max_target where the target is the full text"
        for share, labels in rows.items()
    ]


def _unanswered(run: Run) -> list[str]:
    """Return a note for each column with a metric that finds no short answer in its rows."""
    notes: dict[str, None] = {}
    for one in run.results:
        block = one.config.get("task", {})
        metrics = () if one.metrics is None else (one.metrics.metric, *one.metrics.parts)
        for metric in metrics:
            where = (block.get("name", ""), block.get("data", ""))
            if lacks_short_answers(*where, metric, one.config.get("world", {})):
                notes[f"{one.task}: {SHORT_ANSWERS.format(metric=metric)}"] = None
    return list(notes)
