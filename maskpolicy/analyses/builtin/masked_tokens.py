"""What was masked: counts, positions and lengths of spans, overlaps, and passages to read."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Count, Findings, Json, Passage, Run, Store, analysis
from maskpolicy.analyses import Sample, Sampling, over_runs, samples
from maskpolicy.analyses.masked_sample import lacking_stage
from maskpolicy.analyses.over_runs import percent
from maskpolicy.analyses.plots import Bars, Grid, Lines, Marked, Series
from maskpolicy.leaderboard.page.embedded_analyses import BETWEEN

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
                {"policy": each.row.label, "from": part / self.parts, "to": (part + 1) / self.parts}
                | {"share": share, "hidden_tokens": masked[part]}
                for part, share in enumerate(shares)
            ]
            middle = [(part + 0.5) / self.parts for part in range(self.parts)]
            series.append(
                Series(each.row.label, [*map(percent, shares)], middle, color=each.row.color)
            )
        panel = Lines("", "position in the passage (0: start, 1: end)", "masked tokens (%)", series)
        return Findings(_POSITIONS_COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)

    def _counts(self, sample: Sample) -> tuple[list[int], list[int]]:
        """Return the numbers of masked tokens and of all tokens in each part."""
        lengths = sample.tokens.lengths
        part: NDArray[np.int64] = sample.in_passage * self.parts // np.repeat(lengths, lengths)
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
            shares = (100 * counts / max(1, n)).tolist()
            series.append(Series(label, shares, places, color=each.row.color))
        panel = Lines("", f"tokens in a span ({self.longest}: or more)", "spans (%)", series)
        return Findings(_LENGTHS_COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)


_OVERLAP_COLUMNS = ("policy", "other", "both", "jaccard", "by_chance")


@analysis("overlap", heading="How much two policies mask the same", of_masks=True, place=50)
@dataclass(frozen=True)
class Overlap(Sampling):
    """The overlap of the tokens that two policies mask in the same passages and epochs.

    Of the tokens that both read, `both` is the share of the first policy's masked ones that the
    other masks too, and `jaccard` the number masked by both over those masked by either;
    `by_chance` is its expectation if both masked as many tokens independently of each other.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Compare all pairs of rows that share a corpus and a training seed."""
        found, notes, missing = samples(runs, self.sampling, store)
        rows = [
            _overlap(one, other)
            for one, other in product(found, repeat=2)
            if one.row.corpus == other.row.corpus
            and one.row.params.spec.seed == other.row.params.spec.seed
        ]
        shares = {(row["policy"], row["other"]): row["jaccard"] for row in rows}
        labels = [each.row.label for each in found]
        values = [[percent(shares.get((one, other))) for other in labels] for one in labels]
        panel = Grid("tokens masked by both, of those masked by either (%)", labels, labels, values)
        return Findings(_OVERLAP_COLUMNS, tuple(rows), tuple(notes), (panel,), partial=missing)


def _overlap(one: Sample, other: Sample) -> Json:
    both_read = np.minimum(one.tokens.lengths, other.tokens.lengths)
    first, second = (
        each.is_masked[each.in_passage < np.repeat(both_read, each.tokens.lengths)]
        for each in (one, other)
    )
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


_COUNTS = ("passages", "spans", "hidden_tokens", "target_tokens")
_SHARES = {
    "without_span": ("passages_without_span", "passages"),
    "spans_per_passage": ("spans", "passages"),
    "tokens_per_span": ("hidden_tokens", "spans"),
}
_PANELS = {"hidden_tokens": "masked tokens", "target_tokens": "target tokens"}
_COVERAGE_COLUMNS = (
    *("run", "policy", "stage", "passages", "without_span", "spans", "spans_per_passage"),
    *("hidden_tokens", "tokens_per_span", "target_tokens"),
)


@analysis("coverage", heading="How much each policy masked", of_masks=True, place=20, version=3)
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
        for run, label in [(each, label) for each in runs for label in each.rows]:
            cells = [result for result in run.results if result.policy == label]
            works = {
                one.config["intermediate_seed"]: one.work for one in cells if one.work is not None
            }
            for number, work in sorted(works.items()):
                row = {"run": run.name, "policy": label, "stage": number}
                row |= {name: work.get(name) for name in _COUNTS}
                row |= {name: _share(work, *counts) for name, counts in _SHARES.items()}
                rows.append(row)
            stages = {
                cell.config["intermediate_seed"] for cell in cells if "intermediate" in cell.config
            }
            for number in sorted(stages - works.keys()):
                of_run = f"run {number}: " if len(stages) > 1 else ""
                why = lacking_stage(store, run, label, number)
                notes.append(f"{run.name}, {label}: {of_run}{why}")
        panels = [_coverage_panel(rows, kind, len(runs) > 1) for kind in _PANELS if rows]
        return Findings.of_runs(runs, _COVERAGE_COLUMNS, rows, notes, panels)


def _coverage_panel(rows: Sequence[Json], kind: str, several: bool) -> Bars:
    """Return a bar for each policy, with the range over its intermediate stages."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        share = _share(row, kind, "passages")
        of_row = shares.setdefault(over_runs.label(row, several), [])
        of_row += [] if share is None else [share]
    means = [statistics.fmean(values) if values else None for values in shares.values()]
    low, high = (
        [end(values) if len(values) > 1 else None for values in shares.values()]
        for end in (min, max)
    )
    series = Series("tokens", means, low=low, high=high)
    return Bars(_PANELS[kind], "tokens per passage", list(shares), [series])


def _share(work: Json, part: str, whole: str) -> float | None:
    """Return one count over another; None if a result of another version lacks one of them."""
    parts, wholes = work.get(part), work.get(whole)
    return parts / wholes if wholes and parts is not None else None


_VIEWER_COLUMNS = ("passage", "policy", "what", "start", "end", "text", "score")


@analysis(
    "viewer",
    heading="Passages with the spans that were masked",
    of_masks=True,
    place=10,
    version=2,
)
@dataclass(frozen=True)
class Viewer(Sampling):
    """Passages with the spans that each policy masks, side by side, and a learned policy's scores.

    `masked` rows are the spans masked in the first epoch; `candidate` rows are the best
    `candidates` spans that a learned policy draws from, with its scores. `start` and `end` are
    character offsets in the passage.
    """

    passages: Count = 4
    candidates: Count = 5

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Return a few passages of the first row's corpus with the spans of all rows on it."""
        found, notes, missing = samples(runs, self.sampling, store)
        same = [each for each in found if each.row.corpus == found[0].row.corpus]
        notes += [
            f"{each.row.label}: left out, because it has another corpus"
            for each in found
            if each not in same
        ]
        rows: list[Json] = []
        panels = []
        for index in range(len(same[0].spans) if same else 0):
            for number, each in enumerate(same):
                new = list(self._rows(each, index))
                rows += new
                title = new[0]["passage"] if number == 0 else ""
                panels.append(_marked_passage(each, index, new, title))
        return Findings(_VIEWER_COLUMNS, tuple(rows), tuple(notes), tuple(panels), partial=missing)

    def _rows(self, sample: Sample, index: int) -> Iterator[Json]:
        passage = sample.passages[int(sample.places[index])]
        about = {"passage": passage.id, "policy": sample.row.label}
        scored = _scored(passage)
        known = {(start, end): score for start, end, score in scored}
        spans = sample.spans[index].tolist()
        if not spans:
            yield {**about, "what": "nothing masked"}
        for start, end in spans:
            where = _where(passage, start, end)
            yield {**about, "what": "masked", **where, "score": known.get((start, end))}
        for start, end, score in scored[: self.candidates]:
            yield {**about, "what": "candidate", **_where(passage, start, end), "score": score}


def _scored(passage: Passage) -> list[tuple[int, int, float]]:
    """Return (start, end, score) of a learned policy's candidates, best first."""
    spans, scores = (passage.columns.get(name) for name in ("candidates", "scores"))
    if spans is None or scores is None or len(spans) != len(scores):
        return []
    order = np.argsort(-scores, kind="stable").tolist()
    return [(*spans[place].tolist(), float(scores[place])) for place in order]


def _where(passage: Passage, first: int, end: int) -> Json:
    ((start, stop),) = passage.characters(np.array([[first, end]]))
    return {"start": start, "end": stop, "text": passage.text[start:stop]}


def _marked_passage(sample: Sample, index: int, rows: Sequence[Json], title: str) -> Marked:
    """Return the passage with its spans marked, masked ones more strongly than candidates."""
    passage = sample.passages[int(sample.places[index])]
    marks = [
        (row["start"], row["end"], 1.0 if row["what"] == "masked" else 0.0)
        for row in rows
        if "start" in row
    ]
    label = sample.row.label + (f"{BETWEEN}{title}" if title else "")
    return Marked(label, passage.text, marks, sample.row.color)
