"""The progress of a run, and the closing table of times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from maskpolicy.app.display import Detail, Display
from maskpolicy.app.meters import Forecast
from maskpolicy.pipeline.graph.events import Event, Outcome
from maskpolicy.pipeline.graph.nodes import Stage

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PARTS = ("general", "intermediate", "finetune", "evaluate")
REST = "all else"


@dataclass(frozen=True)
class StageSummary:
    """One part of a run: a kind of stage, or all others."""

    name: str
    computed: int  # stages
    seconds: float  # of the computed stages
    found: int  # stages taken from the store


def parts(outcomes: Iterable[Outcome], wall: float) -> list[StageSummary]:
    """Return the seconds of each part; "all else" is the rest of `wall` seconds.

    Resumed stages include the seconds of earlier attempts. With several processes, the parts may
    add up to more than `wall`; then "all else" has the seconds of its own stages.
    """
    by_name: dict[str, list[Outcome]] = {name: [] for name in (*PARTS, REST)}
    for outcome in outcomes:
        kind = outcome.stage.kind.partition("-")[0]  # parts of a training belong to it
        by_name[kind if kind in PARTS else REST].append(outcome)
    found = [_part(name, members) for name, members in by_name.items()]
    known = sum(part.seconds for part in found[:-1])
    rest = found[-1]
    return [
        *found[:-1],
        StageSummary(REST, rest.computed, max(rest.seconds, wall - known), rest.found),
    ]


def _part(name: str, outcomes: Sequence[Outcome]) -> StageSummary:
    computed = [outcome.seconds for outcome in outcomes if not outcome.hit and outcome.seconds]
    found = sum(outcome.hit for outcome in outcomes)
    return StageSummary(name, len(computed), sum(computed), found)


def to_table(found: Iterable[StageSummary], wall: float, jobs: int = 1) -> Table:
    """Return the closing table of a run that took `wall` seconds with `jobs` processes."""
    from rich.table import Table

    table = Table(title="what each part took", show_footer=True)
    table.add_column("part", "this run" if jobs == 1 else f"this run, {jobs} jobs")
    heads = (("computed", ""), ("seconds", f"{wall:.1f}"), ("from the store", ""))
    for name, total in heads:
        table.add_column(name, total, justify="right")
    for part in found:
        cells = (part.name, str(part.computed), f"{part.seconds:.1f}", str(part.found))
        table.add_row(*cells)
    return table


class RunProgress:
    """Shows the events of a run, and the time left, on a `Display`."""

    def __init__(
        self,
        console: Console,
        forecast: Forecast,
        *,
        failures: bool = True,
        detail: Detail = "normal",
    ) -> None:
        """Prepare the display; use as a context manager that gives the listener.

        Without `failures`, failed stages are not printed.
        """
        self._display = Display(console, "run", forecast, detail)
        self._forecast = forecast
        self._failures = failures
        self._first: dict[str, str] = {}  # cause -> the first stage that failed by it

    def __enter__(self) -> RunProgress:
        self._display.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._display.__exit__(kind, error, trace)

    def __call__(self, event: Event) -> None:
        """Show an event. A cause that several stages share is printed once."""
        stage = event.stage
        if event.outcome is not None:
            computed = not event.outcome.hit and event.outcome.error is None
            self._forecast.finish(stage, event.outcome.seconds, computed)
            self._display.end(stage.key)
            self._print(stage, event.outcome)
            return
        self._display.begin(stage.key, stage.name)
        if event.what != "started":
            self._display.report(stage.key, event.done, event.total, event.note)

    def _print(self, stage: Stage, outcome: Outcome) -> None:
        # never computed: a candidate that was not chosen
        is_unused = outcome.artifact is None and not outcome.seconds
        if outcome.exception is not None:
            cause = str(outcome.error)
            first = self._first.setdefault(cause, stage.name)
            line = f"✗ {stage.name}: {cause if first == stage.name else f'as {first}'}"
            if self._failures:
                self._display.say(line, "quiet")
        elif outcome.hit:
            self._display.say(f"= {stage.name}: is in the store", "verbose")
        elif outcome.error is None and not is_unused:
            self._display.say(f"✓ {stage.name}  {outcome.seconds:.1f} s", "normal")
