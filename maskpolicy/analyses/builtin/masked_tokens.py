"""How much was masked: counts, lengths of spans, positions, and overlap of policies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses import Sample, Sampling, samples
from maskpolicy.analyses.plots import Bars, Grid, Lines, Series

_POSITIONS_COLUMNS = ("policy", "from", "to", "share", "hidden_tokens")


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
        return Findings(_POSITIONS_COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)

    def _counts(self, sample: Sample) -> tuple[list[int], list[int]]:
        """Return the numbers of masked tokens and of all tokens in each part."""
        lengths = sample.tokens.lengths
        begins = np.repeat(sample.tokens.bounds[:-1], lengths)
        place = np.arange(len(begins)) - begins
        part: NDArray[np.int64] = place * self.parts // np.repeat(lengths, lengths)
        every = np.bincount(part, minlength=self.parts)
        return np.bincount(part[sample.is_masked], minlength=self.parts).tolist(), every.tolist()


_LENGTHS_COLUMNS = ("policy", "length", "share", "spans", "mean")


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
        return Findings(_LENGTHS_COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)


_OVERLAP_COLUMNS = ("policy", "other", "both", "jaccard", "by_chance")


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
        rows = [_overlap(one, other) for one in found for other in found if _comparable(one, other)]
        shares = {(row["policy"], row["other"]): row["jaccard"] for row in rows}
        labels = [each.row.label for each in found]
        values = [[_percent(shares.get((one, other))) for other in labels] for one in labels]
        panel = Grid("tokens masked by both, of those masked by either (%)", labels, labels, values)
        return Findings(_OVERLAP_COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)


def _comparable(one: Sample, other: Sample) -> bool:
    seeds = {sample.row.params.spec.seed for sample in (one, other)}
    return one.row.corpus == other.row.corpus and len(seeds) == 1


def _overlap(one: Sample, other: Sample) -> Json:
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


_COUNTS = ("passages", "spans", "hidden_tokens", "target_tokens")
_PANELS = {"hidden_tokens": "masked tokens", "target_tokens": "target tokens"}
_COVERAGE_COLUMNS = (
    *("run", "policy", "stage", "passages", "without_span", "spans", "spans_per_passage"),
    *("hidden_tokens", "tokens_per_span", "target_tokens"),
)


@analysis("coverage", heading="How much each policy masked", of_masks=True, place=20, version=2)
@dataclass(frozen=True)
class Coverage:
    """How much each policy masked in its intermediate stage: spans, tokens, passages without any.

    One row for each intermediate stage (a policy has several if intermediate_seeds is above 1);
    `without_span` is the share of passages in which the policy masked nothing.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Return the work recorded by the intermediate stages, in the order of the rows."""
        rows: list[Json] = []
        notes = []
        for run in runs:
            for label in run.rows:
                cells = [result for result in run.results if result.policy == label]
                found = _stages(cells)
                rows += [_counts_of(run, label, *each) for each in found]
                if not found and any("intermediate" in cell.config for cell in cells):
                    notes.append(f"{run.name}, {label}: its intermediate stage did not finish")
        several = len(runs) > 1
        panels = tuple(_coverage_panel(rows, kind, several) for kind in _PANELS) if rows else ()
        return Findings(
            _COVERAGE_COLUMNS if several else _COVERAGE_COLUMNS[1:],
            tuple(rows),
            tuple(notes),
            panels,
        )


def _coverage_panel(rows: Sequence[Json], kind: str, several: bool) -> Bars:
    """Return a bar for each policy, with the range over its intermediate stages."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        share = _share(row, kind, "passages")
        label = f"{row['policy']} ({row['run']})" if several else row["policy"]
        shares.setdefault(label, []).extend([] if share is None else [share])
    means = [statistics.fmean(values) if values else None for values in shares.values()]
    low = [min(values) if len(values) > 1 else None for values in shares.values()]
    high = [max(values) if len(values) > 1 else None for values in shares.values()]
    series = Series("tokens", means, low=low, high=high)
    return Bars(_PANELS[kind], "tokens per passage", list(shares), [series])


def _stages(results: Sequence[Result]) -> list[tuple[int, Json]]:
    """Return (number, work) of the intermediate stages of a row's cells."""
    works = {
        result.config["intermediate_seed"]: result.work
        for result in results
        if result.work is not None
    }
    return sorted(works.items())


def _counts_of(run: Run, label: str, number: int, work: Json) -> Json:
    return {
        "run": run.name,
        "policy": label,
        "stage": number,
        **{name: work.get(name) for name in _COUNTS},
        "without_span": _share(work, "passages_without_span", "passages"),
        "spans_per_passage": _share(work, "spans", "passages"),
        "tokens_per_span": _share(work, "hidden_tokens", "spans"),
    }


def _share(work: Json, part: str, whole: str) -> float | None:
    """Return one count over another; None if a result of another version lacks one of them."""
    parts, wholes = work.get(part), work.get(whole)
    return parts / wholes if wholes and parts is not None else None
