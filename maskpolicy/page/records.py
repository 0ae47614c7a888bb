"""Seconds, versions and machines: what run.json says of each run."""

from __future__ import annotations

from collections.abc import Sequence

from maskpolicy import results
from maskpolicy.errors import DataError
from maskpolicy.page.behind import KEY
from maskpolicy.records import NAME
from maskpolicy.results import Run
from maskpolicy.types import Json

_KEPT = ("finished", "seconds", "hardware", "versions", "commit")


def read(runs: Sequence[Run]) -> Json:
    """Return what the page says of each run, None where there is no run.json.

    The machine's name is left out: a page is made to be sent. Raises DataError.
    """
    return [_record(run) for run in runs]


def experiment(run: Run) -> str:
    """Return the name of a run's experiment, "" where it is not known; raises DataError."""
    path = run.folder / "experiment.json"
    known = results.parsed(path) if path.is_file() else {}
    return str(known.get("name", "")) if isinstance(known, dict) else ""


def _record(run: Run) -> Json:
    path = run.folder / NAME
    if not path.is_file():
        return {"name": run.name, "stages": {}}
    record = results.parsed(path)
    try:
        return {
            "name": run.name,
            **{key: record[key] for key in _KEPT},
            "system": record["machine"]["system"],
            "stages": {
                stage["key"][:KEY]: [round(stage["seconds"], 2), stage.get("made_with")]
                for stage in record["stages"]
            },
        }
    except (AttributeError, KeyError, TypeError):
        raise DataError(f"{path}: not written by `maskpolicy run`: remove it") from None
