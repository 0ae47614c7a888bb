"""The page's record of each run: its experiment, and from its run.json seconds and versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy.config import verbatim
from maskpolicy.errors import ConfigError
from maskpolicy.files import relative_paths
from maskpolicy.leaderboard.page.cell_details import KEY
from maskpolicy.results import run_record
from maskpolicy.results.cell import Run
from maskpolicy.types import Json

_KEPT = ("finished", "seconds", "hardware", "versions", "commit")


@dataclass(frozen=True)
class ShownExperiment:
    """The experiment of a run as its author wrote it, without absolute paths."""

    run: str
    text: str  # YAML
    keys: tuple[str, ...]  # of the command line


def experiments(runs: Sequence[Run]) -> list[ShownExperiment]:
    """Return the experiments of the runs that kept theirs; runs of one experiment share it."""
    found: dict[tuple[str, ...], ShownExperiment] = {}
    for run in runs:
        path = run.folder / verbatim.WRITTEN
        try:
            if path.is_symlink() or not verbatim.is_saved(run.folder):
                continue
            written = verbatim.read_experiment(path)
        except ConfigError:  # a file of another origin
            continue
        text, *keys = relative_paths([written.experiment.strip(), *written.keys], run.folder)
        found.setdefault((text, *keys), ShownExperiment(run.name, text, tuple(keys)))
    return list(found.values())


def run_records(runs: Sequence[Run]) -> Json:
    """Return the page's data block "record", one dict for each run; without run.json, its name.

    The host name is omitted, because pages are shared. Raises DataError for a broken file.
    """
    return [_of_run(run) for run in runs]


def _of_run(run: Run) -> Json:
    record = run_record.read(run.folder)
    if record is None:
        return {"name": run.name, "stages": {}}
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
        raise run_record.foreign(run.folder) from None
