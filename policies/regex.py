"""Mask the matches of a regular expression, extended to whole words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from maskpolicy import ConfigError, Count, Passage, Spans, as_spans, policy


@policy("regex", target="spans")
@dataclass(frozen=True)
class Regex:
    """Mask matches of a pattern (or of one of its groups), drawn uniformly."""

    pattern: str  # a regular expression of Python's `re`
    group: int | str = 0  # number or name of the group to mask; 0: the whole match
    spans: Count | Literal["all"] = "all"  # number of matches to mask
    only_select: ClassVar = ("spans",)  # fields that annotate does not read

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid pattern or a group that the pattern lacks."""
        try:
            compiled = re.compile(self.pattern)
        except re.error as error:
            raise ConfigError(f"pattern: {self.pattern!r} is not valid: {error}") from None
        except (RecursionError, OverflowError):
            raise ConfigError("pattern: is too large, or nested too deeply") from None
        if self.group not in (*range(compiled.groups + 1), *compiled.groupindex):
            raise ConfigError(f"group: {self.pattern!r} has no group {self.group!r}")

    def annotate(
        self, passages: Sequence[Passage], fitted: Path | None = None
    ) -> dict[str, list[Spans]]:
        """Return the column "matches": the token spans of each passage's matches."""
        found = ([m.span(self.group) for m in re.finditer(self.pattern, p.text)] for p in passages)
        return {"matches": [p.at(each) for p, each in zip(passages, found, strict=True)]}

    def select(self, passage: Passage, rng: np.random.Generator) -> Spans:
        """Draw `spans` matches without replacement; no span if nothing matches."""
        found = passage.columns["matches"]
        count = len(found) if self.spans == "all" else self.spans
        return as_spans(found[np.sort(rng.permutation(len(found))[:count])])
