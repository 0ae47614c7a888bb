"""The outcome of each stage of a run, and the interface through which progress is reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from maskpolicy.graph.nodes import Stage


@dataclass(frozen=True)
class Outcome:
    """The outcome of a stage.

    A hit was in the store when the run began. An outcome without artifact and error was not
    needed, because everything that would use it exists. `seconds` is the time of the computation
    in whichever process, of a hit too, earlier attempts included.
    """

    stage: Stage
    artifact: Path | None = None  # its folder; verified if the stage is a target or computed here
    error: str | None = None  # one line
    seconds: float = 0.0
    hit: bool = False
    exception: Exception | None = field(default=None, repr=False)  # of the stage that failed
    here: bool = False  # this process computed it, or tried to


class Progress(Protocol):
    """Receives the progress of a run: `finish` at least once for each stage."""

    def start(self, stage: Stage) -> None:
        """Report that this process computes a stage."""
        ...

    def wait(self, stage: Stage) -> None:
        """Report that this process waits for a stage that another one computes."""
        ...

    def advance(self, done: int, total: int, note: str) -> None:
        """Report progress in the stage that was named last; a `total` of 0 is unknown."""
        ...

    def elsewhere(self, stage: Stage, done: int, total: int, note: str) -> None:
        """Report progress in a stage that another process computes, from any thread."""
        ...

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """Report the outcome of a stage: found, computed, failed, or not run for an input."""
        ...


class Silent:
    """A `Progress` that ignores all reports."""

    def start(self, stage: Stage) -> None:
        """Do nothing."""

    def wait(self, stage: Stage) -> None:
        """Do nothing."""

    def advance(self, done: int, total: int, note: str) -> None:
        """Do nothing."""

    def elsewhere(self, stage: Stage, done: int, total: int, note: str) -> None:
        """Do nothing."""

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """Do nothing."""
