"""The lengths of masked spans, in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maskpolicy import Count, Findings, Json, Run, Store, analysis
from maskpolicy.findings import Sampling, samples
from maskpolicy.plots import Lines, Series

COLUMNS = ("policy", "length", "share", "spans", "mean")


@analysis("lengths", heading="How long the masked spans are", of_masks=True, place=30)
@dataclass(frozen=True)
class Lengths(Sampling):
    """The lengths of masked spans in tokens: one row for each policy and length."""

    longest: Count = 12  # longer spans count as this long

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Count the spans of each length in each row's sample."""
        found, notes, missing = samples(runs, self.sampling, store)
        rows: list[Json] = []
        series = []
        for each in found:
            lengths = each.flat[:, 1] - each.flat[:, 0]
            counts = np.bincount(np.minimum(lengths, self.longest), minlength=self.longest + 1)[1:]
            label, n = each.row.label, len(lengths)
            rows += [
                {"policy": label, "length": length, "share": count / n, "spans": count}
                | {"mean": float(lengths.mean())}
                for length, count in enumerate(counts.tolist(), 1)
                if count
            ]
            places = list(range(1, self.longest + 1))
            percent = (100 * counts / max(1, n)).tolist()
            series.append(Series(label, percent, places, color=each.row.color))
        panel = Lines("", f"tokens in a span ({self.longest}: or more)", "spans (%)", series)
        return Findings(COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)
