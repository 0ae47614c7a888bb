"""Texts masked by several policies or with several seeds: as data, and as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from maskpolicy.leaderboard.page.html_assets import templates
from maskpolicy.runs.preview import MaskedText
from maskpolicy.types import Json


@dataclass(frozen=True)
class Preview:
    """One text masked by one row with one seed."""

    row: str  # the policy, with its keys if it was given some of its own
    seed: int
    masked: MaskedText

    def to_json(self) -> Json:
        """Return row, seed, text, spans, source and target."""
        masked = self.masked
        about = {"policy": self.row, "seed": self.seed, "text": masked.text}
        return {**about, "spans": masked.spans, "source": masked.source, "target": masked.target}

    @property
    def parts(self) -> Iterator[tuple[bool, str]]:
        """The parts of the text, each with whether it is masked."""
        end, text = 0, self.masked.text
        for start, stop, _ in sorted(self.masked.spans):
            yield False, text[end:start]
            yield True, text[start:stop]
            end = stop
        yield False, text[end:]


def render(previews: Sequence[Preview]) -> str:
    """Return a page with a table for each text; `previews` of one text follow one another."""
    texts = [list(each) for _, each in groupby(previews, lambda each: each.masked.text)]
    has_seeds = len({each.seed for each in previews}) > 1
    page = templates("maskpolicy.runs").get_template("preview.html")
    return page.render(texts=texts, has_seeds=has_seeds)
