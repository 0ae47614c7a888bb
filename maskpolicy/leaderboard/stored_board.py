"""Seal and read the folder of a board of given scores, which `maskpolicy board` wrote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from maskpolicy.core.errors import ConfigError, DataError, StoreError
from maskpolicy.core.files import PART, check_folder, read_json, sha256, write_file
from maskpolicy.core.metrics import Total
from maskpolicy.core.types import Json
from maskpolicy.leaderboard.board import Board, BoardRow, Given, Score, average_label
from maskpolicy.leaderboard.comparisons import Comparison, Estimate, Versus
from maskpolicy.leaderboard.given_scores import NOWHERE, UNPRINTED
from maskpolicy.leaderboard.given_tests import ALL
from maskpolicy.leaderboard.joined_rows import ABSENT, Gap
from maskpolicy.leaderboard.results.cell import SETTINGS, Result, Run
from maskpolicy.leaderboard.stats import LEVEL
from maskpolicy.pipeline.store import manifest

FILE = "leaderboard.json"
_KIND = "board"  # the name of a board in its manifest, which does not hold that of its folder
_ESTIMATE = ("difference", "low", "high", "p", "detectable")


def is_board(folder: Path) -> bool:
    """Return whether a folder holds a board, and not a run, which may have lost its results."""
    of_run = (folder / "results", folder / SETTINGS)
    return (folder / FILE).is_file() and not any(path.exists() for path in of_run)


def check(folder: Path) -> None:
    """Raise StoreError unless a board can be written to a folder: an empty one, or a board's."""
    check_folder(folder, (FILE,))
    if folder.is_dir() and any(folder.iterdir()) and not is_board(folder):
        raise StoreError(f"{folder}: holds the results of a run: choose another --out")


def check_other(path: Path, option: str, runs: Sequence[Run] = ()) -> None:
    """Raise ConfigError for a folder or page that holds a run's board, or one of given scores.

    That of `runs` itself is none of these: of a single run, or of given scores.
    """
    folder = path.absolute().parent if path.name == "leaderboard.html" else path
    is_run = (folder / "results").is_dir() and (folder / SETTINGS).is_file()
    own = [run.folder.resolve() for run in runs]
    if own == [folder.resolve() if is_run else NOWHERE.resolve()]:
        return
    if is_run or (folder / manifest.NAME).is_file():
        what = "a run" if is_run else "given scores"
        why = f"holds {what}, whose own board would be lost"
        raise ConfigError(f"{option} {path}: {why}: name another")


def seal(folder: Path) -> None:
    """Write the manifest of a board, with the digests of its files, which `verify` compares."""
    files = [*folder.glob("leaderboard.*"), *folder.glob("pairs.csv")]
    plain = sorted(path for path in files if not path.name.endswith(PART))
    sealed = manifest.describe(folder, plain, {manifest.RUN: _KIND})
    write_file(folder / manifest.NAME, manifest.encode(sealed))


def faults(folder: Path) -> tuple[int, list[str]]:
    """Return how many scores a board has, and a line for each fault of its files' digests.

    Raises DataError for a file that is not the one of a board.
    """
    count = sum(len(row.cells) for row in read_board(folder).rows)
    try:
        sealed = manifest.parse(folder / manifest.NAME, **{manifest.RUN: _KIND})
    except manifest.Damaged as error:
        return count, [str(error).replace(f"{folder}/", "")]
    return count, [
        f"{entry['path']}: was changed or removed since `maskpolicy board` wrote it"
        for entry in sealed["files"]
        if not (path := folder / entry["path"]).is_file() or sha256(path) != entry["sha256"]
    ]


def read_board(folder: Path) -> Board:
    """Return the board of given scores in a folder; raises DataError.

    Numbers are those of the file, so rounded to four digits. A stranger may have written it.
    """
    path = folder / FILE
    values = read_json(path)
    try:
        given, settings = values["given"], values["measured"]["settings"]
        tasks = tuple(map(_text, values["measured"]["tasks"]))
        rows = tuple(_row(row, tasks, given["gaps"]) for row in values["rows"])
        labels, columns = [row.label for row in rows], {*tasks, average_label(ALL)}
        base = labels[labels.index(values["baseline"])]
        pairs = tuple(
            Versus(each["column"], each["row"], each["other"], _comparison(each))
            for each in values["pairs"]
        )
        scored = {task for row in rows for task, _ in row.cells}
        named = {name for each in pairs for name in (each.row, each.other)}
        named |= {row.against for row in rows}
        there = {(row.label, task) for row in rows for task in row.scores if row.scores[task]}
        there |= {(label, average_label(ALL)) for label in labels}
        if not (
            {*tasks} == scored
            and named <= {*labels}
            and columns >= {each.column for each in pairs}
            and there >= {(label, p.column) for p in pairs for label in (p.row, p.other)}
            and all(row.cells for row in rows)
            and len({*labels}) == len(labels)
        ):
            raise ValueError("names")
        return Board(
            baseline=base,
            tasks=tasks,
            rows=rows,
            notes=tuple(map(_text, values["notes"])),
            groups={ALL: tasks} if len(tasks) > 1 else {},
            pairs=pairs,
            compared_with=base,
            runs=(Run(NOWHERE, (), base, experiment=_text(given["title"]), alias=given["title"]),),
            given=Given(
                tuple(map(_text, given["above"])),
                {_text(name): _text(fact) for name, fact in settings.items()},
                _text(given.get("unit", "seed")),
                bool(given.get("paired", True)),
            ),
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise DataError(f"{path}: not written by `maskpolicy board`: write it again") from None


def _row(values: Json, tasks: tuple[str, ...], gaps: Json) -> BoardRow:
    label, scores = _text(values["policy"]), values["scores"]
    found = {task: _score(scores[task]) for task in tasks}
    own = tuple(
        Gap(_text(task), None if seed is None else int(seed), _text(reason))
        for row, task, seed, reason in gaps
        if row == label
    )
    named = {(gap.task, gap.seed or 0): gap.reason for gap in own if gap.reason != ABSENT}
    mean = values.get("averages", {}).get(average_label(ALL))
    known = [(task, seed) for task, score in found.items() if score for seed in score.seeds]
    return BoardRow(
        *(label, {"name": label}, found, None),
        {key: _cell(label, *key, found[key[0]], named.get(key)) for key in [*known, *named]},
        own,
        _text(values["baseline"]),
        {ALL: _comparison(mean["comparison"])} if mean and mean["comparison"] else {},
    )


def _cell(label: str, task: str, seed: int, score: Score | None, error: str | None) -> Result:
    part = None if score is None else score.seeds.get(seed)
    total = None if score is None or part is None else Total(score.metric, part / 100, score.n)
    config = {"policy": {"name": label}, "task": {"name": task}}
    return Result(label, task, seed, ALL, config, {}, total, error=error, folder=NOWHERE)


def _score(values: Json) -> Score | None:
    if values is None:
        return None
    seeds = {int(seed): _optional(part) for seed, part in values["seeds"].items()}
    if all(part is None for part in seeds.values()):
        raise ValueError("seeds")
    test, delta = values["comparison"], _optional(values["delta"])
    compared = None if test is None else _comparison(test)
    return Score(_text(values["metric"]), seeds, int(values["n"]), delta, compared)


def _comparison(values: Json) -> Comparison:
    if values["p"] is None:
        return Comparison(int(values["seeds"]), reason=_text(values["reason"]))
    numbers = {name: _number(values[name]) for name in _ESTIMATE}
    estimate = Estimate(**numbers, groups=int(values["groups"]))
    p_holm = _number(values["p_holm"])
    if values["significant"] and p_holm == LEVEL:  # rounded up to it
        p_holm = math.nextafter(LEVEL, 0)
    return Comparison(int(values["seeds"]), estimate, p_holm)


def _optional(value: Json) -> float | None:
    return None if value is None else _number(value)


def _number(value: Json) -> float:
    if not (math.isfinite(value) and abs(value) <= 1e4):
        raise ValueError(value)
    return float(value)


def _text(value: Json) -> str:
    if not isinstance(value, str) or UNPRINTED.search(value):
        raise TypeError(value)
    return value
