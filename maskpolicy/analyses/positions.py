"""The positions of masked tokens in their passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Findings, Json, Run, Store, analysis
from maskpolicy.findings import Sample, Sampling, samples
from maskpolicy.plots import Lines, Series

COLUMNS = ("policy", "from", "to", "share", "hidden_tokens")


@analysis("positions", heading="Where in a passage the masked tokens are", of_masks=True, place=80)
@dataclass(frozen=True)
class Positions(Sampling):
    """The positions of masked tokens: `share` is the share of masked tokens in each part.

    Passages are divided into parts of equal length; 0 is the first token and 1 the end.
    """

    parts: Count = 10

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Count the masked tokens of each part in each row's sample."""
        found, notes, missing = samples(runs, self.sampling, store)
        rows: list[Json] = []
        series = []
        for each in found:
            masked, tokens = self._counts(each)
            shares = [h / t if t else None for h, t in zip(masked, tokens, strict=True)]
            rows += [
                {
                    "policy": each.row.label,
                    "from": part / self.parts,
                    "to": (part + 1) / self.parts,
                    "share": share,
                    "hidden_tokens": masked[part],
                }
                for part, share in enumerate(shares)
            ]
            middle = [(part + 0.5) / self.parts for part in range(self.parts)]
            percent = [None if share is None else 100 * share for share in shares]
            series.append(Series(each.row.label, percent, middle, color=each.row.color))
        panel = Lines("", "position in the passage (0: start, 1: end)", "masked tokens (%)", series)
        return Findings(COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)

    def _counts(self, sample: Sample) -> tuple[list[int], list[int]]:
        """Return the numbers of masked tokens and of all tokens in each part."""
        lengths = sample.tokens.lengths
        begins = np.repeat(sample.tokens.bounds[:-1], lengths)
        place = np.arange(len(begins)) - begins
        part: NDArray[np.int64] = place * self.parts // np.repeat(lengths, lengths)
        every = np.bincount(part, minlength=self.parts)
        return np.bincount(part[sample.is_masked], minlength=self.parts).tolist(), every.tolist()
