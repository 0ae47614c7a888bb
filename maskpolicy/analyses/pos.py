"""The parts of speech that policies mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskpolicy import Findings, Json, Run, Store, analysis
from maskpolicy.corpus import TAGS
from maskpolicy.findings import Sample, Sampling, samples
from maskpolicy.findings.parts_of_speech import tagged
from maskpolicy.plots import GREY, Bars, Series

COLUMNS = ("policy", "tag", "share", "corpus", "words")
_SHOWN = 0.005  # tags with a smaller share in every row are not plotted


@analysis("pos")
@dataclass(frozen=True)
class PartsOfSpeech(Sampling):
    """Shares of parts of speech among masked words, and among all words of the corpus.

    A word counts if any of its tokens is masked. Tags (Universal Dependencies) come from
    `pipeline`, a spaCy pipeline with a tagger; the embedded world has gold tags.
    """

    pipeline: str | None = None  # a name, e.g. en_core_web_sm, or a folder
    every: bool = False  # every intermediate run of a row, not only its first

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Count the tags of masked words in each row's sample."""
        found, notes, missing = samples(runs, self.sampling, store, every=self.every)
        rows: list[Json] = []
        series: dict[str, Series] = {}
        shares: dict[str, list[float]] = {}
        for each in found:
            tags = tagged(each, self.sampling, self.pipeline, store).flat
            every = _share(np.bincount(tags, minlength=len(TAGS)))
            counts = np.bincount(tags[_masked_words(each)], minlength=len(TAGS))
            shares[each.row.label] = _share(counts)
            shares.setdefault(f"corpus {each.row.corpus}", every)
            rows += [
                {"policy": each.row.label, "tag": name, "share": share, "corpus": whole, "words": n}
                for name, share, whole, n in zip(
                    TAGS, shares[each.row.label], every, counts.tolist(), strict=True
                )
                if n or whole
            ]
        kept = [i for i in range(len(TAGS)) if any(one[i] >= _SHOWN for one in shares.values())]
        for each in found:
            whole = f"corpus {each.row.corpus}"
            name = "(corpus)" if len({one.row.corpus for one in found}) == 1 else f"({whole[:13]})"
            series.setdefault(
                whole, Series(name, [100 * shares[whole][i] for i in kept], color=GREY)
            )
            label = each.row.label
            values = [100 * shares[label][i] for i in kept]
            series[label] = Series(label, values, color=each.row.color)
        panel = Bars("", "masked words (%)", [TAGS[i] for i in kept], list(series.values()))
        partial = missing or self.pipeline is not None  # it may change; tags are cached by version
        return Findings(COLUMNS, tuple(rows), tuple(notes), (panel,), partial)


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
