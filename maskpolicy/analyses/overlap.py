"""The overlap between the tokens that policies mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy import Findings, Json, Run, Store, analysis
from maskpolicy.findings import Sample, Sampling, samples
from maskpolicy.plots import Grid

COLUMNS = ("policy", "other", "both", "jaccard", "by_chance")


@analysis("overlap", heading="How much two policies mask the same", of_masks=True, place=50)
@dataclass(frozen=True)
class Overlap(Sampling):
    """The overlap between the tokens that two policies mask in the same passages and epochs.

    `both` is the share of the first policy's masked tokens that the other masks too. `jaccard` is
    the number of tokens masked by both over those masked by either; `by_chance` is its expectation
    if the two masked as many tokens independently.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Compare all pairs of rows that share a corpus and a training seed."""
        found, notes, missing = samples(runs, self.sampling, store)
        rows = [_row(one, other) for one in found for other in found if _comparable(one, other)]
        shares = {(row["policy"], row["other"]): row["jaccard"] for row in rows}
        labels = [each.row.label for each in found]
        values = [[_percent(shares.get((one, other))) for other in labels] for one in labels]
        panel = Grid("tokens masked by both, of those masked by either (%)", labels, labels, values)
        return Findings(COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)


def _comparable(one: Sample, other: Sample) -> bool:
    seeds = {sample.row.params.spec.seed for sample in (one, other)}
    return one.row.corpus == other.row.corpus and len(seeds) == 1


def _row(one: Sample, other: Sample) -> Json:
    first, second = one.is_masked, other.is_masked
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
