"""Read scores of single examples: tables, predictions, and the logs of evaluation programs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, DataError, cause, listed
from maskpolicy.core.files import name_of, read_json
from maskpolicy.core.metrics import per_example
from maskpolicy.core.types import Json
from maskpolicy.leaderboard.given_scores import COLUMNS, NEEDED
from maskpolicy.plugins.discovery import find_metric

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Table

PREDICTION, REFERENCE = "prediction", "reference"  # of a file whose answers have no scores yet
NAMES = (*COLUMNS, PREDICTION, REFERENCE)
_EMPTY = "holds no scores of single examples"
_SIGNS = {".csv": ",", ".tsv": "\t"}
_TABLES = (*_SIGNS, ".parquet", ".jsonl")
_KNOWN = (
    f"name a table ({', '.join(_TABLES)}), a folder of lm-evaluation-harness (--log_samples), or "
    "logs of inspect_ai (.eval)"
)
# of inspect_ai: correct, partial, incorrect, none
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_NUMBER = re.compile(r"[-+]\d+|[-+]?\d*\.\d*")  # with a sign or a point
_WHOLE = re.compile(r"\A(-?\d+)\.0\Z")  # as pandas writes whole numbers near a missing one
_BLOCK = 1 << 24  # bytes of a block of a table, which no line may exceed
_NEED = 100  # bytes of memory for each line of a table, at least


def read_scores(
    paths: Sequence[Path], columns: Mapping[str, str] | None = None, metric: str | None = None
) -> tuple[DataFrame, list[str]]:
    """Return one line for each score of an example, and notes on what was left out.

    The index has the file or folder and the line in it, from 0.

    `columns` maps NAMES to a table's own. A table without a column system is one system, called as
    its file; one without a task is one task; in one with neither system, task nor example, lines
    are numbered. `metric` chooses among the scores of a log or of a table's column metric, and
    scores predictions (default: exact_match).
    Raises DataError for a file that cannot be used.
    """
    import pandas as pd
    from pandas.api.types import union_categoricals

    notes, known = list[str](), dict[str, None]()
    try:
        frames = [_read(path, columns or {}, metric, notes, known) for path in paths]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read: {error.strerror}") from None
    for name in dict.fromkeys(name for frame in frames for name in frame if name != "score"):
        usual = "score" if name == "metric" else _only_run(name, frames, paths)
        for frame in frames:
            if name not in frame and name == "group":
                frame[name] = frame["task"].astype(str) + " " + frame["example"].astype(str)
            texts = frame[name] if name in frame else pd.Series(usual, frame.index)
            frame[name] = texts.astype(str).where(texts.notna()).astype("category")
    joined = {
        name: union_categoricals([frame[name] for frame in frames])
        for name in frames[0]
        if name != "score"
    }
    scores = [*dict.fromkeys([*known, *joined["metric"].categories])] if metric else []
    if metric and not any(metric in (each, each.split(",")[0], f"{each},none") for each in scores):
        choices = "; ".join(scores)
        raise ConfigError(f"--metric {metric}: no task has this score: choose from {choices}")
    score = pd.concat([frame["score"] for frame in frames], keys=[*map(str, paths)])
    return pd.DataFrame({**joined, "score": score.array}, score.index), notes


def _only_run(name: str, frames: Sequence[DataFrame], paths: Sequence[Path]) -> str:
    """Return the run of files without a column `name`, seed or run: that of all other files."""
    lacking = [path for path, frame in zip(paths, frames, strict=True) if name not in frame]
    if not lacking or name not in ("seed", "run"):
        return "0"
    columns = [frame[name].dropna().unique() for frame in frames if name in frame]
    there = {str(each) for column in columns for each in column}
    if len(there) > 1:
        raise DataError(f"{lacking[0]}: no column {name}, and other files have one: add it")
    return next(iter(there), "0")


def _read(
    path: Path,
    columns: Mapping[str, str],
    metric: str | None,
    notes: list[str],
    there: dict[str, None],
) -> DataFrame:
    """Return the scores in a file or folder; adds notes, and the names of the scores there."""
    import pandas as pd

    before = len(notes)
    inside = sorted(path.rglob("*")) if path.is_dir() else [path]
    samples = [each for each in inside if each.match("samples_*.jsonl")]
    logs = sorted((each for each in inside if each.suffix == ".eval"), key=lambda each: each.name)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder: {_KNOWN}")
    if path.is_file() and path.suffix in _TABLES and not samples:
        return named(_table(path, columns), columns, path, metric)
    read, files = (_lm_eval, samples) if samples else (_inspect, logs)
    frame = pd.DataFrame(list(read(files, metric, notes, there)))
    if frame.empty:
        raise DataError(f"{path}: {notes[-1] if len(notes) > before else _EMPTY}: {_KNOWN}")
    return frame


def named(
    frame: DataFrame,
    columns: Mapping[str, str],
    path: Path | None = None,
    metric: str | None = None,
) -> DataFrame:
    """Return a table with the columns that a board reads, under its names.

    Raises DataError, and ConfigError for `columns` that are not NAMES.
    """
    where = "" if path is None else f"{path}: "
    renamed = {own: name for name, own in _wanted(columns, [*frame], where).items()}
    frame = frame[list(renamed)].rename(columns=renamed).reset_index(drop=True)
    if not len(frame):
        raise DataError(f"{where}the table has no lines")
    if path is not None and "system" not in frame:
        if not {"task", "example"} & {*frame}:
            frame["example"] = range(len(frame))
        frame["system"] = path.stem
    if path is not None and "task" not in frame:
        frame["task"] = "task"
    scores_predictions = "score" not in frame and {PREDICTION, REFERENCE} <= {*frame}
    if metric and "metric" in frame:
        there = frame["metric"].astype(str)
        frame = frame[there == metric]
        if not len(frame):
            known = ", ".join(sorted(there.unique()))
            raise ConfigError(f"{where}--metric {metric}: no line has it: choose from {known}")
    elif metric and not scores_predictions:
        raise ConfigError(f"{where}--metric {metric}: the table has no column metric: leave it out")
    if scores_predictions:
        is_chosen = metric is not None or "metric" in frame
        frame["metric"] = frame.get("metric", metric or "exact_match")
        frame["score"] = _scored(frame, where, is_chosen=is_chosen)
    for name in NEEDED:
        if name not in frame:
            raise DataError(f"{where}no column {name}: --column {name}=NAME says what it is called")
    return frame[[name for name in COLUMNS if name in frame]]


def _wanted(columns: Mapping[str, str], there: Sequence[str], where: str) -> dict[str, str]:
    """Return the column `there` of each name: its own, unless `columns` gives that to another."""
    for name, own in columns.items():
        if name not in NAMES or not own:
            raise ConfigError(
                f"--column {name}={own}: write NAME=COLUMN; NAME is one of {', '.join(NAMES)}"
            )
        if [*columns.values()].count(own) > 1:
            raise ConfigError(f"--column {name}={own}: two names have this column: leave one out")
        if own not in there:
            raise DataError(f"{where}no column {own} (there are: {', '.join(map(str, there))})")
    if len({*there}) < len(there):
        raise DataError(f"{where}two columns have the same name: rename one")
    free = {*there} & {*NAMES} - {*columns.values()}
    return {name: columns.get(name, name) for name in NAMES if name in columns or name in free}


def _scored(frame: DataFrame, where: str, *, is_chosen: bool) -> list[float]:
    """Return the scores of predictions by their metrics; raises ConfigError and DataError.

    Unless the metric `is_chosen`, it must see what distinguishes the references.
    """
    from pandas import NA

    metrics = {name: find_metric(str(name)) for name in frame["metric"].unique()}
    for name, metric in metrics.items():
        if metric.parts:
            raise ConfigError(
                f"--metric {name}: is a number of all examples together, and tests compare scores "
                "of single ones: choose another, e.g. accuracy"
            )
    found = []
    columns = (frame[name] for name in (PREDICTION, REFERENCE, "metric"))
    for number, one, many, name in zip(frame.index + 1, *columns, strict=True):
        several = [*many] if isinstance(many, Iterable) and not isinstance(many, str) else [many]
        place = f"{where}line {number} of the table"
        if isinstance(many, Mapping | bytes):
            kind = type(many).__name__
            raise DataError(f"{place} has a {kind} as reference: give its texts in a list")
        texts = (one, *several)
        for text in texts:
            if isinstance(text, Iterable) and not isinstance(text, str):
                kind = "list" if isinstance(text, Sequence) else type(text).__name__
                raise DataError(f"{place} has a {kind} as prediction or reference: give a text")
        missing = [text for text in texts if text is None or text is NA or text != text]
        if missing or not several:
            raise DataError(f"{place} has no prediction or no reference")
        answer, *references = (_WHOLE.sub(r"\1", str(text)) for text in texts)
        if not is_chosen and all(map(_is_unseen, references)):
            raise DataError(
                f"{place}: exact_match leaves {per_example.normalise(references[0])!r} of the "
                f"reference {references[0]!r}: choose --metric accuracy, for labels and numbers, "
                "or --metric exact_match"
            )
        found.append(metrics[name].score(answer, references))
    return found


def _is_unseen(reference: str) -> bool:
    """Return whether SQuAD's normalisation removes all of a text, or a number's sign or point."""
    left = per_example.normalise(reference)
    return not left or (left.isdigit() and _NUMBER.fullmatch(reference.strip()) is not None)


def _table(path: Path, columns: Mapping[str, str]) -> DataFrame:
    """Return the table in a file; raises DataError."""
    import pyarrow as pa
    from pyarrow import csv as tables
    from pyarrow import json as lines
    from pyarrow import parquet

    where = f"{path}: "
    try:
        _check_size(path)
        if path.suffix == ".parquet":
            wanted = _wanted(columns, parquet.read_schema(path).names, where)
            return _checked(parquet.read_table(path, columns=[*wanted.values()]))
        if path.suffix == ".jsonl":
            frame = _checked(lines.read_json(path, lines.ReadOptions(block_size=_BLOCK)))
            wanted = _wanted(columns, [*frame], where)
            names = [wanted[name] for name in (PREDICTION, REFERENCE) if name in wanted]
            if not names:
                return frame
            rows = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
            return frame.assign(**{own: [_written(row.get(own)) for row in rows] for own in names})
        read = tables.ReadOptions(block_size=_BLOCK)
        parse = tables.ParseOptions(delimiter=_SIGNS[path.suffix], newlines_in_values=True)
        there = tables.open_csv(path, read, parse).schema.names
        if len(there) == 1 and ";" in there[0]:
            raise DataError(f"{path}: its columns are separated by semicolons: write commas")
        wanted = _wanted(columns, there, where)
        text = pa.dictionary(pa.int32(), pa.string())
        convert = tables.ConvertOptions(
            column_types={own: text for name, own in wanted.items() if name != "score"},
            include_columns=[*wanted.values()] or there,
        )
        frame = tables.read_csv(path, read, parse, convert).to_pandas()
        texts = (
            each for name in frame if name != wanted.get("score") for each in frame[name].unique()
        )
        if any("\n" in str(each) for each in texts) and (fault := _fault(path)):
            raise DataError(f"{path}{fault}")  # a quote of a text has joined lines to one cell
        return frame
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{path}{_fault(path) or f': {error}'.splitlines()[0]}") from None


def _check_size(path: Path) -> None:
    """Raise DataError for a table of more lines than memory holds, before it is read."""
    from pyarrow import parquet

    with path.open("rb") as file:
        if path.suffix == ".parquet":
            count = parquet.read_metadata(file).num_rows
        else:
            count = sum(block.count(b"\n") for block in iter(partial(file.read, _BLOCK), b""))
    need, there = (number / 2**30 for number in (count * _NEED, hardware.memory()))
    if need > there:
        raise DataError(
            f"{path}: {count:,} lines need {need:,.0f} GiB of memory or more, and this machine "
            f"has {there:,.0f}: leave systems or tasks out"
        )


def _written(value: Json) -> Json:
    """Return an answer as its line has it: Arrow makes 3.0 of a 3 near a 3.5, and dates times."""
    if isinstance(value, list):
        return [*map(_written, value)]
    return json.dumps(value) if isinstance(value, int | float) else value


def _fault(path: Path) -> str:
    """Return the first line of a table that cannot be read, and what is wrong; "" if unknown."""
    if not path.stat().st_size:
        return ": is empty"
    if path.suffix == ".parquet":
        return ": is not a Parquet file, or is cut off"
    number, width, kinds = 0, 0, dict[str, str]()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                line.decode()
                for name, value in json.loads(line).items() if path.suffix == ".jsonl" else ():
                    kind = "text" if isinstance(value, str) else "not text"
                    if value is not None and kinds.setdefault(name, kind) != kind:
                        return f", line {number}: {name} is {kind}, but {kinds[name]} before"
        if path.suffix in _SIGNS:
            with path.open(encoding="utf-8", newline="") as table:
                rows = csv.reader(table, delimiter=_SIGNS[path.suffix], strict=True)
                for cells in rows:
                    number, width = rows.line_num, width or len(cells)
                    if cells and len(cells) != width:
                        return f", line {number}: has {len(cells)} columns, the first line {width}"
    except UnicodeDecodeError:
        return f", line {number}: is not UTF-8: convert it to UTF-8"
    except csv.Error as error:
        return f", after line {number}: {error}: write each quote of a quoted text twice"
    except (AttributeError, ValueError, RecursionError):
        return f", line {number}: is not a JSON object"
    return ""


def _checked(table: Table) -> DataFrame:
    """Return a table as a frame; raises ArrowException for texts that are not UTF-8."""
    table.validate(full=True)
    return table.to_pandas(ignore_metadata=True)  # of pandas: a damaged one fails


def _newest(files: Sequence[tuple[tuple[str, str], Path]], notes: list[str]) -> dict[Any, Path]:
    """Return the last file of each system and task; the others are noted."""
    last = dict(files)
    older = [path.name for key, path in files if last[key] != path]
    if older:
        notes.append(f"older logs of a system and task are left out: {listed(older)}")
    return last


def _lm_eval(
    paths: Sequence[Path], metric: str | None, notes: list[str], there: dict[str, None]
) -> Iterator[dict[str, Json]]:
    """Yield the scores in samples_TASK_TIME.jsonl of lm-evaluation-harness.

    Its numbers of examples begin anew in each task, so that names of examples hold the task.
    """
    parts = [path.stem.removeprefix("samples_").rpartition("_") for path in paths]
    keys = [(str(path.parent), part[0]) for path, part in zip(paths, parts, strict=True)]
    for (folder, task), path in _newest(list(zip(keys, paths, strict=True)), notes).items():
        results = Path(folder, f"results_{path.stem.rpartition('_')[2]}.json")
        about = read_json(results) if results.is_file() else {}
        system = _within(about, "model_name") or name_of(path.parent)
        asked, _, asked_filter = (metric or "").partition(",")
        rows = []
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                row = json.loads(line)
                rows.append((row["doc_id"], row["filter"], {n: row[n] for n in row["metrics"]}))
            except (KeyError, TypeError, ValueError, RecursionError):
                raise DataError(
                    f"{path}, line {number}: cut off, or not written by lm-evaluation-harness: "
                    "write the log again"
                ) from None
        filters = [each for _, each, _ in rows]
        kept = asked_filter if asked_filter in filters else next(iter(filters), "")
        for suffix, names in dict.fromkeys((_suffix(each), (*scores,)) for _, each, scores in rows):
            there |= {f"{each}{suffix}": None for each in names}
        for example, filtered, scores in rows:
            name = asked if asked in scores else next(iter(scores), "")
            if scores and filtered == kept:
                if _within(about, "higher_is_better", task, name) is False:
                    why = f"a lower {name} is better, and a board takes the highest for the best"
                    notes.append(f"{task} of {system} is left out: {why}")
                    break
                shown = f"{name}{_suffix(kept)}"
                place = {"system": system, "task": task, "example": f"{task} {example}"}
                yield {**place, "score": scores[name], "metric": shown}


def _suffix(kept: str) -> str:
    return "" if kept == "none" else f",{kept}"


def _within(values: Json, *keys: str) -> Json:
    """Return the value under nested keys; None where there is none."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _inspect(
    paths: Sequence[Path], metric: str | None, notes: list[str], there: dict[str, None]
) -> Iterator[dict[str, Json]]:
    """Yield the scores in logs of inspect_ai, whose names begin with a time; epochs are seeds."""
    logs = []
    for path in paths:
        head = _log(path, header_only=True)
        if head.status == "success":
            logs.append(((str(head.eval.model), str(head.eval.task)), path))
        else:
            notes.append(f"{path.name} is left out: its evaluation has the status {head.status}")
    for (system, task), path in _newest(logs, notes).items():
        for sample in _log(path).samples or []:
            scores: dict[str, Any] = {}
            for scorer, score in (sample.scores or {}).items():
                several = score.value if isinstance(score.value, dict) else {"": score.value}
                scores |= {f"{scorer}/{key}".rstrip("/"): value for key, value in several.items()}
            there |= dict.fromkeys(scores)
            chosen = metric if metric in scores else next(iter(scores), "")
            if scores:  # a sample that failed has none
                value = scores[chosen]
                value = _GRADES.get(value, value) if isinstance(value, str) else value
                place = {"system": system, "task": task, "example": f"{task} {sample.id}"}
                yield {**place, "seed": sample.epoch, "score": value, "metric": chosen}


def _log(path: Path, *, header_only: bool = False) -> Any:
    """Return a log of inspect_ai; raises DataError, or ConfigError without that package."""
    try:
        from inspect_ai.log import read_eval_log
    except ImportError:
        raise ConfigError(f"{path}: to read it, pip install 'maskpolicy[inspect]'") from None
    try:
        return read_eval_log(str(path), header_only=header_only)
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes the package raise
        raise DataError(f"{path}: not a complete log of inspect_ai: {cause(error)}") from None
