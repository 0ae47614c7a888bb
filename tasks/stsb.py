"""STS-B (Cer et al. 2017): how similar are two sentences, from 0 to 5?"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, nan

from maskpolicy import DataError, Example, Json, task
from maskpolicy.data.taskfiles import glue, text


@task("stsb", **glue.facts("stsb", "STS-B", (), metric="correlation", mark="score"))
@dataclass(frozen=True)
class Stsb:
    """Pairs of sentences with a similarity: a number instead of classes.

    Pairs that share a sentence are one group.
    """

    def example(self, row: Json) -> Example | None:
        """Map a row of the file (key score) or of the Hub (label; -1: none)."""
        value = row.get("score", row.get("label"))
        if value in (None, "", -1):
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = nan
        if not isfinite(number):
            raise DataError(f"key 'score' must be a number, not {value!r}")
        first, second = (text(row, key).strip() for key in ("sentence1", "sentence2"))
        return Example("", "", first, (f"{number:g}",), context=second)
