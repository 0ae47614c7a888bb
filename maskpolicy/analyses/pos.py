"""The parts of speech that policies mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Findings, Json, Run, Store, analysis
from maskpolicy.corpus import TAGS
from maskpolicy.findings import Sample, Sampling, over_runs, samples
from maskpolicy.findings.masked_sample import by_row
from maskpolicy.findings.parts_of_speech import tagged
from maskpolicy.plots import GREY, Bars, Series

COLUMNS = ("policy", "tag", "share", "corpus", "words")
OVER_RUNS = ("policy", "tag", "share", "low", "high", "corpus", "words")
_SHOWN = 0.005  # tags with a smaller share in every row are not plotted


@analysis("pos", heading="Parts of speech of the masked words", of_masks=True, place=40)
@dataclass(frozen=True)
class PartsOfSpeech(Sampling):
    """Shares of parts of speech among masked words, and among all words of the corpus.

    A word counts if any of its tokens is masked. Tags (Universal Dependencies) come from
    `pipeline`, a spaCy pipeline with a tagger; the embedded world has gold tags. With `every`, rows
    with several runs also have the mean of these with Student's 95% interval, `low` to `high`.
    """

    pipeline: str | None = None  # a name, e.g. en_core_web_sm, or a folder
    every: bool = False  # every intermediate run of a row, not only its first

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Count the tags of masked words in each row's sample."""
        found, notes, missing = samples(runs, self.sampling, store, every=self.every)
        rows: list[Json] = []
        shares: dict[str, list[float]] = {}
        corpora: dict[str, list[float]] = {}
        for each in found:
            tags = tagged(each, self.sampling, self.pipeline, store).flat
            whole = _share(np.bincount(tags, minlength=len(TAGS)))
            whole = corpora.setdefault(each.row.corpus, whole)
            counts = np.bincount(tags[_masked_words(each)], minlength=len(TAGS))
            own = shares[each.row.label] = _share(counts)
            rows += [
                {"policy": each.row.label, "tag": name, "share": share, "corpus": every, "words": n}
                for name, share, every, n in zip(TAGS, own, whole, counts.tolist(), strict=True)
                if n or every
            ]
        rows += (means := _means(found, shares))
        partial = missing or self.pipeline is not None  # it may change; tags are cached by version
        columns = OVER_RUNS if means else COLUMNS
        panel = _panel(found, shares, corpora, means)
        return Findings(columns, tuple(rows), tuple(notes), (panel,), partial=partial)


def _means(found: Sequence[Sample], shares: Mapping[str, Sequence[float]]) -> list[Json]:
    """Return the mean share of each tag over the intermediate runs of each row with several."""
    rows: list[Json] = []
    for name, own in by_row(found).items():
        for i, tag in enumerate(TAGS):
            values = [shares[one.row.label][i] for one in own]
            if len(own) > 1 and any(values):
                rows.append({"policy": name, "tag": tag, **over_runs.mean("share", values)})
    return rows


def _panel(
    found: Sequence[Sample],
    shares: Mapping[str, Sequence[float]],
    corpora: Mapping[str, Sequence[float]],
    means: Sequence[Json],
) -> Bars:
    """Return bars for each corpus and row; a row with several runs has their means."""
    every = [*shares.values(), *corpora.values()]
    kept = [i for i in range(len(TAGS)) if any(one[i] >= _SHOWN for one in every)]
    series: dict[str, Series] = {}
    for name, own in by_row(found).items():
        row, corpus = own[0].row, own[0].row.corpus
        title = "(corpus)" if len(corpora) == 1 else f"(corpus {corpus[:6]})"
        values = [100 * corpora[corpus][i] for i in kept]
        series.setdefault(corpus, Series(title, values, color=GREY))
        of_tag = {mean["tag"]: mean for mean in means if mean["policy"] == name}
        none = dict.fromkeys(("share", "low", "high"), 0.0)
        plain = [{"share": share} for share in shares[row.label]]
        bars = [of_tag.get(TAGS[i], none) if of_tag else plain[i] for i in kept]
        y, *ends = ([_percent(bar.get(key)) for bar in bars] for key in ("share", "low", "high"))
        low, high = ends if of_tag else ((), ())
        series[name] = Series(name, y, (), low, high, row.color)
    return Bars("", "masked words (%)", [TAGS[i] for i in kept], list(series.values()))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _masked_words(sample: Sample) -> NDArray[np.bool_]:
    """Return for each word whether any of its tokens is masked."""
    words = sample.passages.arrays["words"].take(sample.places)
    begins = np.repeat(sample.tokens.bounds[:-1], words.lengths)[:, None]
    before = np.concatenate([[0], np.cumsum(sample.is_masked)])
    first, end = (words.flat + begins).T
    masked: NDArray[np.bool_] = before[end] > before[first]
    return masked


def _share(counts: NDArray[np.int64]) -> list[float]:
    shares: list[float] = (counts / max(1, counts.sum())).tolist()
    return shares
