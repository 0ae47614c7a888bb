"""How far policies hide the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy import Findings, Json, Run, Store, analysis
from maskpolicy.findings import Sample, Sampling, samples
from maskpolicy.plots import Grid

COLUMNS = ("policy", "other", "both", "jaccard", "by_chance")


@analysis("overlap")
@dataclass(frozen=True)
class Overlap(Sampling):
    """How far two policies hide the same tokens of the same passages at the same time.

    `both`: the share of what the first hides that the other hides too; `jaccard`: tokens that both
    hide over those that either does; `by_chance`: the jaccard of two that hide as many tokens as
    these do, independently of each other.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Compare all pairs of rows that share a corpus and a training seed."""
        found, notes, missing = samples(runs, self.sampling, store)
        rows = [_row(one, other) for one in found for other in found if _comparable(one, other)]
        shares = {(row["policy"], row["other"]): row["jaccard"] for row in rows}
        labels = [each.row.label for each in found]
        values = [[_percent(shares.get((one, other))) for other in labels] for one in labels]
        panel = Grid("tokens hidden by both, of those hidden by either (%)", labels, labels, values)
        return Findings(COLUMNS, tuple(rows), tuple(notes), (panel,), missing)


def _comparable(one: Sample, other: Sample) -> bool:
    return one.row.corpus == other.row.corpus and _seed(one) == _seed(other)


def _seed(sample: Sample) -> Json:
    return sample.row.params.spec.seed


def _row(one: Sample, other: Sample) -> Json:
    first, second = one.is_hidden, other.is_hidden
    both, either = int((first & second).sum()), int((first | second).sum())
    a, b = float(first.mean()), float(second.mean())
    chance = a * b / (a + b - a * b) if a + b else None
    return {
        "policy": one.row.label,
        "other": other.row.label,
        "both": both / int(first.sum()) if first.any() else None,
        "jaccard": both / either if either else None,
        "by_chance": chance,
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
