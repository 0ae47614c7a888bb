"""Passages with the spans that each policy masks, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from maskpolicy import Count, Findings, Json, Passage, Run, Store, analysis
from maskpolicy.analyses import Sample, Sampling, samples
from maskpolicy.analyses.plots import Marked

COLUMNS = ("passage", "policy", "what", "start", "end", "text", "score")


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
                panels.append(_panel(each, index, new, title))
        return Findings(COLUMNS, tuple(rows), tuple(notes), tuple(panels), partial=missing)

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
    start, stop = int(passage.offsets[first, 0]), int(passage.offsets[end - 1, 1])
    start += len(passage.text[start:stop]) - len(passage.text[start:stop].lstrip())
    return {"start": start, "end": stop, "text": passage.text[start:stop]}


def _panel(sample: Sample, index: int, rows: Sequence[Json], title: str) -> Marked:
    """Return the passage with its spans marked, masked ones more strongly than candidates."""
    passage = sample.passages[int(sample.places[index])]
    marks = [
        (row["start"], row["end"], 1.0 if row["what"] == "masked" else 0.0)
        for row in rows
        if "start" in row
    ]
    label = sample.row.label + (f" — passage {title}" if title else "")
    return Marked(label, passage.text, marks, sample.row.color)
