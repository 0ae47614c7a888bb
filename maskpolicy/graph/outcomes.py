"""What becomes of the stages of a run, and who hears of it while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from maskpolicy.graph.nodes import Stage
from maskpolicy.store.artifacts import Artifact


@dataclass(frozen=True)
class Outcome:
    """What became of a stage.

    A hit was there when the run began; one without an artifact was not needed: all that would have
    used it is there. `seconds` are those of the computation, by whichever process, also of a hit,
    earlier attempts included.
    """

    stage: Stage
    artifact: Artifact | None = None
    error: str | None = None  # one line
    seconds: float = 0.0
    hit: bool = False
    exception: Exception | None = field(default=None, repr=False)  # of the stage that failed


class Progress(Protocol):
    """Hears how a run goes on; `finish` comes once for each stage, `start` only for work."""

    def start(self, stage: Stage) -> None:
        """Begin to compute a stage, or to wait for another process that computes it."""
        ...

    def advance(self, done: int, total: int, note: str) -> None:
        """Go on in the stage that was started last; a `total` of 0 is unknown."""
        ...

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """End a stage: a hit, computed, failed, or not run because of an input."""
        ...


class Silent:
    """Progress that nobody watches."""

    def start(self, stage: Stage) -> None:
        """Say nothing."""

    def advance(self, done: int, total: int, note: str) -> None:
        """Say nothing."""

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """Say nothing."""
