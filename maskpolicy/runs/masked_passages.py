"""Save what each row of a run masked in a few passages, for the run's page."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from maskpolicy import findings
from maskpolicy.errors import DataError, MaskpolicyError
from maskpolicy.files import read_json
from maskpolicy.findings import cache
from maskpolicy.findings.masked_sample import IntermediateStage, intermediate_stages
from maskpolicy.plugins import discovery
from maskpolicy.results.cell import Run, fingerprint
from maskpolicy.store.artifacts import Store

ANALYSIS = "viewer"
MOST = 4  # passages, in each of which every row masks spans
ROOM = 64  # passages of all rows together, so that the page of a sweep stays small
NEAR = 256_000_000  # bytes that may be fetched from a bucket
_log = logging.getLogger(__name__)


def save(run: Run, store: Store) -> None:
    """Write analyses/viewer of a run, unless it is there already for these results.

    It takes seconds: nothing is trained, the passages are few, and no picture is drawn. A failure
    is logged, because a page without passages is better than none.
    """
    place = run.folder / findings.FOLDER / ANALYSIS
    results = fingerprint(run.folder)
    if _results(place / f"{ANALYSIS}.json") == results:
        return
    try:
        rows = intermediate_stages([run], store)[0]
        if not rows or not _is_near(rows, store):
            return
        fields = {"passages": max(1, min(MOST, ROOM // len(rows)))}
        analysis: Any = discovery.instance("analysis", ANALYSIS, fields)
        found, _ = cache.analyse(ANALYSIS, analysis, [run], store)
        if found.rows:
            findings.save(found, ANALYSIS, place, results, pictures=False)
    except MaskpolicyError as error:
        _log.warning("the page does not show what each policy masked: %s", error)


def _results(path: Path) -> str | None:
    """Return the fingerprint of the results that an analysis was made of, or None."""
    try:
        found = read_json(path) if path.is_file() else None
    except DataError:
        return None
    return found.get("results") if isinstance(found, dict) else None


def _is_near(rows: list[IntermediateStage], store: Store) -> bool:
    """Return whether the rows' inputs are on this machine, or small enough to be fetched."""
    read = {key for row in rows for key in row.read_by_policy.values()}
    known = (store.peek(key) or {"files": ()} for key in read if not store.path(key).exists())
    return bool(sum(int(entry["size"]) for each in known for entry in each["files"]) <= NEAR)
