"""Rank-frequency curves of masked tokens, and how well Zipf's law fits them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Findings, Json, Run, Store, analysis
from maskpolicy.analyses import Sample, Sampling, over_runs, samples
from maskpolicy.analyses.masked_sample import by_row
from maskpolicy.analyses.plots import GREY, Lines, Series
from maskpolicy.core.ragged import Ragged

COLUMNS = ("policy", "tokens", "types", "slope", "low", "high", "fit", "over_ranks")
CORPUS = "(corpus)"
_LEAST = 3  # ranks needed for a slope
_POINTS = 60  # the most points of a line in the plot


@analysis(
    "frequency", heading="How frequent the masked tokens are", of_masks=True, place=70, version=3
)
@dataclass(frozen=True)
class Frequency(Sampling):
    """Frequency by rank of masked tokens and of all tokens of the corpus, with slopes.

    The slope is that of log frequency over log rank, by least squares over the first `ranks` ranks
    of tokens that occur at least `least` times; -1 is Zipf's law. Its interval is 1.96 standard
    errors to both sides, from a bootstrap over passages. `fit` is R², the share of the variance of
    log frequency that the line explains. With `every`, rows with several runs also have the mean
    fit, and the mean slope with Student's 95% interval over runs; the plot has the first.
    """

    ranks: Count = 1000
    least: Count = 5  # occurrences
    resamples: Count = 200
    every: bool = False  # every intermediate run of a row, not only its first

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Count the masked tokens in each row's sample, and all tokens of each corpus once."""
        found, notes, missing = samples(runs, self.sampling, store, every=self.every)
        rows: list[Json] = []
        series = []
        several = {each.row.label for own in by_row(found).values() for each in own[1:]}
        for label, tokens, color in _counted(found):
            counts = np.bincount(tokens.flat)
            passages = len(tokens) // (1 if color == GREY else self.draws)
            rows.append({"policy": label, **self._fitted(tokens, passages)})
            if label in several:
                continue
            falling: NDArray[np.int64] = np.sort(counts[counts > 0])[::-1]
            ranks = _ranks(len(falling))
            shares = 100 * falling[ranks - 1] / max(1, falling.sum())
            series.append(Series(label, shares.tolist(), ranks.tolist(), color=color))
        rows += _means(found, {row["policy"]: row for row in rows})
        panel = Lines("", "rank of a token", "share of the tokens (%)", series, True, False)
        return Findings(COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)

    def _fitted(self, tokens: Ragged, passages: int) -> Json:
        size = int(tokens.flat.max(initial=0)) + 1
        counts = np.bincount(tokens.flat, minlength=size)
        ranks = min(self.ranks, int(np.count_nonzero(counts >= self.least)))
        slope, fit = _line(counts, ranks) or (None, None)
        low = high = None
        if slope is not None:
            rng = np.random.default_rng([self.seed, len(tokens)])
            drawn = []
            for _ in range(self.resamples):
                often = rng.multinomial(passages, np.full(passages, 1 / passages))
                weights = np.repeat(np.resize(often, len(tokens)), tokens.lengths)  # in all draws
                again = _line(np.bincount(tokens.flat, weights, minlength=size), ranks)
                drawn.append(again[0] if again else slope)
            # sorting resampled counts biases the slope, so only its spread is used
            error = 1.96 * float(np.std(drawn))
            low, high = slope - error, slope + error
        return {
            "tokens": int(counts.sum()),
            "types": int(np.count_nonzero(counts)),
            "slope": slope,
            "low": low,
            "high": high,
            "fit": fit,
            "over_ranks": ranks,
        }


def _means(found: Sequence[Sample], lines: Mapping[str, Json]) -> list[Json]:
    """Return the mean slope and fit over the intermediate runs of each row with several."""
    rows = []
    for name, own in by_row(found).items():
        known = [line for one in own if (line := lines[one.row.label])["slope"] is not None]
        if len(own) > 1 and known:
            fits = [line["fit"] for line in known if line["fit"] is not None]
            means = over_runs.mean("slope", [line["slope"] for line in known])
            rows.append({"policy": name, **means, "fit": statistics.fmean(fits) if fits else None})
    return rows


def _line(counts: NDArray[np.int64], ranks: int) -> tuple[float, float | None] | None:
    """Return slope and R² of log frequency over log rank, for the first `ranks` ranks.

    Equal frequencies have no R².
    """
    falling = np.sort(counts[counts > 0])[::-1][:ranks]
    if len(falling) < _LEAST:
        return None
    x, y = np.log(np.arange(1, len(falling) + 1)), np.log(falling)
    x, y = x - x.mean(), y - y.mean()
    slope = x @ y / (x @ x)
    is_flat = falling[0] == falling[-1]
    return float(slope), None if is_flat else float(slope * (x @ y) / (y @ y))


def _counted(found: Sequence[Sample]) -> list[tuple[str, Ragged, int]]:
    """Return (label, tokens of each passage, colour) of every corpus, then of every row."""
    corpora: dict[str, Sample] = {}
    for each in found:
        corpora.setdefault(each.row.corpus, each)
    several = len(corpora) > 1
    counted = [
        (f"{CORPUS} of {each.row.label}" if several else CORPUS, each.tokens.take(first), GREY)
        for each in corpora.values()
        for first in [np.arange(len(np.unique(each.places)))]  # the passages of one draw
    ]
    for each in found:
        before = np.concatenate([[0], np.cumsum(each.is_masked)])
        masked = Ragged(each.tokens.flat[each.is_masked], before[each.tokens.bounds])
        counted.append((each.row.label, masked, each.row.color))
    return counted


def _ranks(count: int) -> NDArray[np.int64]:
    """Return at most _POINTS ranks from 1 to `count`, evenly spaced on a log scale."""
    if not count:
        return np.zeros(0, np.int64)
    return np.unique(np.round(np.geomspace(1, count, _POINTS)).astype(np.int64))
