"""Finished runs in Python: scores, answers, masks and plots; errors that name arguments."""

from __future__ import annotations

import inspect
import io
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from maskpolicy.analyses import Sampling, cache
from maskpolicy.analyses.masked_sample import intermediate_stages, sample
from maskpolicy.analyses.plots import drawing
from maskpolicy.analyses.plots.plot_data import Bars, Marked, Plot, Series
from maskpolicy.core import schema
from maskpolicy.core.errors import ConfigError, DataError, MaskpolicyError, unknown
from maskpolicy.core.files import claim_folder, locked, with_home, writing_to
from maskpolicy.core.types import Json
from maskpolicy.leaderboard import report, stored_board
from maskpolicy.leaderboard.board import Board, BoardRow
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.leaderboard.page import save_forms, save_page
from maskpolicy.leaderboard.results import predictions
from maskpolicy.leaderboard.results.cell import Result, Run
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.plugins import discovery

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from maskpolicy.app.packing import OpenedRuns

Params = ParamSpec("Params")
Returned = TypeVar("Returned")
_WIDE = 120  # columns of the table of text
_CELL = ("run", "policy", "task", "seed", "metric", "score", "n", "error")  # columns of `scores`
_TYPES = {  # of columns that may be unknown
    **dict.fromkeys(("score", "mean", "std", "delta", "low", "high", "p", "p_holm"), "float64"),
    **dict.fromkeys(("rank_low", "rank_high"), "Int64"),
    "majority": "float64",
    "significant": "boolean",
}
_SAME = (
    "baseline cache corpus jobs metric mixed model only out policy scale seed shared store text "
    "threads workers"
)
_NAMES = {"plugin": "plugins", "column": "columns", **{name: name for name in _SAME.split()}}
_VALUE = r"[a-z0-9]+://[^\s,;)]*[^\s,;:).]|[A-Z0-9/.~\'][^\s,;:)]*"
_OPTION = re.compile(rf"--({'|'.join(_NAMES)})\b(?: ({_VALUE}))?")
_PATH = (str, os.PathLike)
_TEXTS: Mapping[str, tuple[type, ...]] = {  # what arguments with these annotations may be
    "str": (str,),
    "str | None": (str, type(None)),
    "str | Path": _PATH,
    "str | Path | None": (*_PATH, type(None)),
    "str | Sequence[str]": (str, Iterable),
    "str | Path | Sequence[str | Path]": (*_PATH, Iterable),
}
SCORES = "scores"  # the plot of the leaderboard; all other plots are those of analyses


def in_python(function: Callable[Params, Returned]) -> Callable[Params, Returned]:
    """Let the errors of a function name keyword arguments instead of options.

    Wrong arguments raise ConfigError, texts and paths also if they are of another type. NumPy's
    numbers become Python's.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def called(*args: Params.args, **kwargs: Params.kwargs) -> Returned:
        try:
            passed = signature.bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(name for name in signature.parameters if name != "self")
            raise ConfigError(f"{function.__name__}: {error}: its arguments are {names}") from None
        for name, value in passed.arguments.items():
            parameter = signature.parameters[name]
            kinds = str(parameter.annotation)
            is_one = kinds in _TEXTS and parameter.kind is not parameter.VAR_POSITIONAL
            if is_one and not isinstance(value, _TEXTS[kinds]):
                raise ConfigError(f"{name}: must be {kinds}, not {type(value).__name__}")
            if parameter.kind is parameter.VAR_KEYWORD:
                passed.arguments[name] = {key: _plain(each) for key, each in value.items()}
            else:
                passed.arguments[name] = _plain(value)
            if "Path" in kinds:
                passed.arguments[name] = _in_home(value)
        try:
            return function(*passed.args, **passed.kwargs)
        except MaskpolicyError as error:
            text = translated(str(error), loads="plugins" in signature.parameters)
            if text == str(error):
                raise
            raise type(error)(text) from error

    return called


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _in_home(value: object) -> object:
    """Return an argument whose paths in ~/ are in the user's folder; all else is as it was."""
    if isinstance(value, list | tuple):
        return [_in_home(each) for each in value]
    if isinstance(value, _PATH) and str(value).startswith("~/"):
        return Path(with_home(value))
    return value


def translated(message: str, *, loads: bool) -> str:
    """Return a message with keyword arguments instead of options, such as jobs=2 for --jobs 2."""

    def keyword(option: re.Match[str]) -> str:
        name, value = _NAMES[option[1]], option[2]
        if name == "plugins" and not loads:  # the function knows what was imported
            return "`import FILE`"
        return name if value is None else f"{name}={value}"

    return _OPTION.sub(keyword, message)


def _method(method: Callable[Params, Returned]) -> Callable[Params, Returned]:
    """Let the errors of a method name keyword arguments and packed files (`OpenedRuns.naming`)."""

    @in_python
    @wraps(method)
    def called(*args: Params.args, **kwargs: Params.kwargs) -> Returned:
        runs: Any = args[0]
        is_packed = runs.opened and runs.opened.packed
        with runs.opened.naming(lambda: vars(runs).get("store")) if is_packed else nullcontext():
            return method(*args, **kwargs)

    return called


@dataclass(frozen=True, repr=False)
class Runs:
    """One finished run, or several joined into one leaderboard; `run` and `load` return it."""

    runs: tuple[Run, ...]
    open_store: Callable[[], Store]  # called for the first mask or analysis
    baseline: str | None = None  # the row that others are compared with; None: the first run's
    mixed: bool = False  # whether rows that are not comparable may be ranked
    opened: OpenedRuns | None = None  # the open folders and zip files

    @cached_property
    def store(self) -> Store:
        """Their artifacts, for masks and analyses; raises ConfigError if you must pass `store`."""
        return self.open_store()

    @cached_property
    def board(self) -> Board:
        """The leaderboard; raises ConfigError if the runs cannot be compared."""
        return build_leaderboard(self.runs, baseline=self.baseline, mixed=self.mixed)

    @_method
    def scores(self) -> DataFrame:
        """Return one row for each cell: run, policy, task, seed, metric, score (percent), n, error.

        A cell that failed has an `error` and no score. Each setting that was swept or tuned, such
        as `ratio` or `intermediate.lr`, has a column; a setting `n` has the column `policy.n`,
        because `n` is another column.
        """
        swept, names = _swept_settings(self.board), self._names()
        rows = [
            {
                "run": names[cell.folder],
                "policy": row.label,
                "task": task,
                "seed": seed,
                "metric": cell.metrics and cell.metrics.metric,
                "score": cell.percent,
                "n": cell.metrics and cell.metrics.n,
                "error": cell.error,
                **_values(row, cell, swept, _CELL),
            }
            for row in self.board.rows
            for (task, seed), cell in row.cells.items()
        ]
        return _frame(rows, (*_CELL, *(_column(name, _CELL) for name in swept)))

    @_method
    def leaderboard(self) -> DataFrame:
        """Return one row for each policy and task, with its test against the baseline.

        Given scores have rows for the mean of all tasks, too.
        Scores and differences are in percent. `low` and `high` bound the difference (95%); `p_holm`
        is adjusted over the whole board; `rank_low` and `rank_high` are the possible ranks. All
        are missing without a test. Swept and tuned settings have columns as in `scores`.
        """
        document, swept = report.to_json(self.board), _swept_settings(self.board)
        lines = []
        for row, written in zip(self.board.rows, document["rows"], strict=True):
            first = {task: cell for (task, _), cell in reversed([*row.cells.items()])}
            means = written.get("averages", ()) if self.board.given is not None else ()
            for task in (*self.board.tasks, *means):
                columns = _leaderboard_row(document, written, task)
                lines.append({**columns, **_values(row, first.get(task), swept, columns)})
        return _frame(lines, tuple(lines[0]) if lines else ())

    @_method
    def answers(self, policy: str | None = None, task: str | None = None) -> DataFrame:
        """Return one row for each test example and seed, of all rows or of one policy or task.

        `score` is that of the example under the task's metric, in [0, 1]. Raises ConfigError for an
        unknown policy or task, and DataError for a damaged file.
        """
        rows, names = self._chosen(policy), self._names()
        if self.board.given is not None:
            raise ConfigError("given scores have no answers: your own file has them")
        if task is not None and task not in self.board.tasks:
            raise ConfigError(unknown("task", task, self.board.tasks))
        lines = [
            line
            for row in rows
            for (name, seed), cell in row.cells.items()
            if task in (None, name) and cell.answers.is_file()
            for line in _answers(cell, names[cell.folder], row.label, seed)
        ]
        columns = ("run", "policy", "task", "seed", "id", "group", "question", "prediction")
        return _frame(lines, (*columns, "answers", "score", "slices"))

    @_method
    def masks(self, policy: str, passages: int = 20, seed: int = 0) -> DataFrame:
        """Return what a row masked in the first epoch, one row for each passage of a sample.

        `spans` are (first character, end) pairs in `text`. Raises ConfigError for an unknown row or
        one without an intermediate stage, and StoreError if the store lacks its corpus.
        """
        sampling = schema.block(Sampling, {"passages": passages, "seed": seed}, "masks")
        row = self._chosen(policy)[0]
        cell = next(iter(row.cells.values()))
        of_row = [run for run in self.runs if run.folder == cell.folder]
        stages, notes = intermediate_stages(of_row, self.store)
        own = [stage for stage in stages if stage.label == cell.policy]
        if not own:
            why = next(iter(notes), "it has no intermediate stage")
            raise ConfigError(f"masks of {policy}: {why}")
        drawn = sample(own[0], Sampling(**sampling), self.store)
        return _frame(
            [
                {"text": text, "spans": spans, "masked": [text[a:b] for a, b in spans]}
                for text, spans in drawn.in_characters()
            ],
            ("text", "spans", "masked"),
        )

    @_method
    def export(
        self, policy: str, out: str | Path, task: str | None = None, seed: int | None = None
    ) -> Path:
        """Write the model of a row as a Transformers folder, as `export` does, and return it.

        With `task`, it is the one that was fine-tuned on it; `seed` is a fine-tuning seed (None:
        the first). Raises ConfigError for what the run lacks, and StoreError if the store lacks the
        model or the folder cannot be written.
        """
        from maskpolicy.app import transformers_folders

        cell = next(iter(self._chosen(policy)[0].cells.values()))
        (run,) = (run for run in self.runs if run.folder == cell.folder)
        folder, asked = Path(out).resolve(), (task, seed)
        transformers_folders.check_out(folder, transformers_folders.EXPORT)
        command = transformers_folders.command(run.folder, cell.policy, Path(out), *asked)
        export, named = transformers_folders.export_model, (run, cell.policy, self.store, folder)
        export(*named, *asked, command=command, name="", checkpoints=False)
        return folder

    @_method
    def plot(self, name: str = SCORES, **settings: Any) -> Figure:
        """Return a plot: `scores`, or that of an analysis with its settings, e.g. `efficiency`.

        Several figures, such as those of `findings`, stand below each other. `maskpolicy analyze
        --list` names the analyses. Raises ConfigError for an unknown name, and DataError if there
        is nothing to plot.
        """
        if name == SCORES:
            return drawing.figure(self._bars())
        analysis: Any = discovery.instance("analysis", name, settings, name)
        result = cache.analyse(name, analysis, self.runs, self.store)
        if not result.rows:
            raise DataError(f"plot {name}: {next(iter(result.notes), 'has nothing to show')}")
        if result.plots:
            rows = self.runs[0].rows if len(self.runs) == 1 else ()
            return drawing.figure(result.plots, name, rows=rows)
        parts = [
            (each.title, plots)
            for each in result.figures
            if (plots := [plot for plot in each.plots if not isinstance(plot, Marked)])
        ]
        if not parts:
            raise DataError(
                f"plot {name}: has a table and no plot: `maskpolicy analyze {name} RUN` shows it"
            )
        return drawing.figures(parts)

    @_method
    def page(self, path: str | Path) -> Path:
        """Write the leaderboard as one HTML page and return its path; raises StoreError."""
        self._check_apart(Path(path), "path", may_replace=self.board.given is None)
        page = Path(path).absolute()
        with writing_to(page, "path"):
            page.parent.mkdir(parents=True, exist_ok=True)
        with locked(page.parent):
            save_page(self.board, page, "path")
        return Path(path)

    @_method
    def save(self, folder: str | Path) -> Path:
        """Write the page, JSON, Markdown, CSV and LaTeX to a folder; raises StoreError."""
        self._check_apart(Path(folder), "folder")
        claim_folder(Path(folder))
        with locked(Path(folder)):
            save_forms(self.board, Path(folder))
        return Path(folder)

    def __repr__(self) -> str:
        """Return the leaderboard as a table of text."""
        from rich.console import Console

        text = io.StringIO()
        # a kernel sets FORCE_COLOR, and Rich would show the table instead of returning it
        plain = Console(
            file=text,
            width=_WIDE,
            markup=False,
            emoji=False,
            force_jupyter=False,
            force_terminal=False,
        )
        plain.print(report.to_table(self.board))
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        """Return the leaderboard as an HTML table, and what it means, for notebooks."""
        from pandas import DataFrame, option_context

        head, body = report.cells(self.board)
        above = self.board.given.above if self.board.given else ()
        lines = [*above, *report.legend(self.board, body), *self.board.notes]
        with option_context("display.max_colwidth", None):
            table = DataFrame(body, columns=list(head)).to_html(index=False)
        return table + "".join(f"<p>{escape(line)}</p>" for line in lines)

    def _check_apart(self, path: Path, option: str, *, may_replace: bool = True) -> None:
        """Raise ConfigError if another board than the run's own would replace that one."""
        own = () if self.baseline or self.mixed or not may_replace else self.runs
        stored_board.check_other(path, option, own)

    def _names(self) -> dict[Path, str]:
        """Return the name of each run by its folder."""
        return {run.folder: run.name for run in self.runs}

    def _chosen(self, policy: str | None) -> Sequence[Any]:
        """Return the rows with this label, or all; raises ConfigError if there is none."""
        rows = [row for row in self.board.rows if policy in (None, row.label)]
        if not rows:
            labels = [row.label for row in self.board.rows]
            raise ConfigError(unknown("policy", str(policy), labels))
        return rows

    def _bars(self) -> list[Plot]:
        tasks = list(self.board.tasks)
        series = [
            Series(row.label, [score.mean if (score := row.scores[t]) else None for t in tasks])
            for row in self.board.rows
        ]
        return [Bars("leaderboard", "score (%)", tasks, series)]


def _swept_settings(board: Board) -> tuple[str, ...]:
    """Return the settings in which rows of one policy differ, and those that rows tuned."""
    names: dict[str, None] = {}
    first: dict[str, Mapping[str, Json]] = {}
    for row in board.rows:
        mine, other = row.config, first.setdefault(row.config["name"], row.config)
        names |= dict.fromkeys(k for k in {**other, **mine} if mine.get(k) != other.get(k))
        names |= dict.fromkeys(row.own_settings)
        names |= dict.fromkeys(key for cell in row.cells.values() for key in cell.chosen or ())
    return tuple(names)


def _values(
    row: BoardRow, cell: Result | None, settings: Sequence[str], others: Collection[str]
) -> dict[str, Json]:
    """Return a cell's values of some settings by column; None if its row does not have one.

    `others` are the other columns.
    """
    values = {**row.config, **row.own_settings}
    if cell is not None:
        values |= {
            f"{block}.{key}": value
            for block, own in cell.config.items()
            if isinstance(own, dict)
            for key, value in own.items()
        }
        tuned = cell.config.get("tune") or {}
        values = {
            name: value
            for name, value in values.items()
            if name not in tuned and (cell.is_fine_tuned or not name.startswith("finetune."))
        }
        values |= cell.chosen or {}
    return {_column(name, others): values.get(name) for name in settings}


def _column(setting: str, others: Collection[str]) -> str:
    return f"policy.{setting}" if setting in others else setting


def _leaderboard_row(document: Json, row: Mapping[str, Json], task: str) -> dict[str, Json]:
    score = {**row["scores"], **row.get("averages", {})}[task] or {}
    test = score.get("comparison") or {}
    low, high = document["ranks"].get(task, {}).get(row["policy"], (None, None))
    return {
        "policy": row["policy"],
        "task": task,
        **{name: score.get(name) for name in ("metric", "mean", "std", "n")},
        "delta": None if row["policy"] == row["baseline"] else score.get("delta"),
        "seeds": len(score.get("seeds", {})),
        **{name: test.get(name) for name in ("low", "high", "p", "p_holm")},
        "significant": None if test.get("p") is None else test["significant"],
        "rank_low": low,
        "rank_high": high,
        "baseline": row["baseline"],
        "majority": document["majority"].get(task),
    }


def _answers(cell: Result, run: str, policy: str, seed: int) -> list[dict[str, Json]]:
    """Return a row for each answer of a cell."""
    rows = list(predictions.rows(cell.answers))
    questions = predictions.read_questions(cell.folder, cell.task, {row["id"] for row in rows})
    return [
        {
            **{"run": run, "policy": policy, "task": cell.task, "seed": seed},
            "id": row["id"],
            "group": row["group"],
            "question": questions.get(row["id"]),
            "prediction": row["prediction"],
            "answers": row.get("targets"),
            "score": row["score"],
            "slices": row.get("slices"),
        }
        for row in rows
    ]


def _frame(rows: Sequence[Mapping[str, Json]], columns: Sequence[str]) -> DataFrame:
    """Return rows as a frame; columns of numbers keep their types if all values are unknown."""
    from pandas import DataFrame

    frame = DataFrame(list(rows), columns=list(columns))
    return frame.astype({name: kind for name, kind in _TYPES.items() if name in frame})
