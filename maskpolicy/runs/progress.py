"""Progress bars of a run, and the closing table of times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from maskpolicy.graph.nodes import Stage
from maskpolicy.graph.outcomes import Outcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID
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


class ProgressBars:
    """Progress of a graph on a console: a line for each stage, a bar for the current one."""

    def __init__(self, console: Console, total: int, *, failures: bool = True) -> None:
        """Prepare bars for `total` stages; use as a context manager.

        Without `failures`, failed stages are not printed.
        """
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            Elapsed(),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
        )
        hidden = not console.is_interactive  # rich would add an empty line to a file
        self._progress = Progress(*columns, console=console, transient=True, disable=hidden)
        self._whole = self._progress.add_task("stages", total=total, note="")
        self._current: TaskID | None = None
        self._failures = failures
        self._first: dict[str, str] = {}  # cause -> the first stage that failed by it

    def __enter__(self) -> ProgressBars:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def start(self, stage: Stage) -> None:
        """Show a bar of unknown length for a stage."""
        self._end()
        self._current = self._progress.add_task(stage.name, total=None, note="")

    def wait(self, stage: Stage) -> None:
        """Show a bar of unknown length for a stage that another process computes."""
        self.start(stage)
        self.advance(0, 0, "another process is computing it")

    def advance(self, done: int, total: int, note: str) -> None:
        """Move the bar of the current stage."""
        if self._current is not None:
            self._progress.update(self._current, completed=done, total=total or None, note=note)

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """Print the outcome of a stage that was computed, here or in another process.

        A cause that several stages share is printed once.
        """
        self._end()
        self._progress.advance(self._whole)
        # never computed: a candidate that was not chosen
        is_unused = outcome.artifact is None and not outcome.seconds
        if outcome.exception is not None:
            if not self._failures:
                return
            cause = str(outcome.error)
            first = self._first.setdefault(cause, stage.name)
            line = f"✗ {stage.name}: {cause if first == stage.name else f'as {first}'}"
        elif outcome.hit or outcome.error is not None or is_unused:
            return
        else:
            line = f"✓ {stage.name}  {outcome.seconds:.1f} s"
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _end(self) -> None:
        if self._current is not None:
            self._progress.remove_task(self._current)
            self._current = None
