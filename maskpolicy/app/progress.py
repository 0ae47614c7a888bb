"""Progress as bars on a terminal and as lines anywhere else; the seconds of a run's parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from maskpolicy.experiment.budgets import block_of
from maskpolicy.pipeline.graph.costs import Costs, known_costs, on_their_own, time_left
from maskpolicy.pipeline.graph.events import Event, Outcome
from maskpolicy.pipeline.graph.nodes import Stage, topological, users_of
from maskpolicy.pipeline.graph.planning import missing
from maskpolicy.pipeline.store.artifacts import Store

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, Task
    from rich.table import Table

Detail: TypeAlias = Literal["quiet", "normal", "verbose"]
State: TypeAlias = tuple[float, str]
"""The share of all work that is done, and a text about it."""
Whole: TypeAlias = State | Callable[[Mapping[str, "Task"]], State]
"""The state of all work, or a function that returns it from the parts under way by key."""

_DETAILS: tuple[Detail, ...] = ("quiet", "normal", "verbose")
_INTERVAL = 30.0  # seconds between two lines about what is under way
_SOON = 2.0  # seconds until the first line, if no part has begun
_WINDOW = 60.0  # seconds over which a rate is measured
_DRAWN = 4  # times a second that bars are drawn
PARTS = ("general", "intermediate", "finetune", "evaluate")
REST = "all else"


def duration(seconds: float) -> str:
    """Return seconds as text with one unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def words(part: Task) -> str:
    """Return share, rate, time left and note of a part, or the seconds spent so far."""
    said = []
    if part.total:
        said.append(f"{part.completed} of {part.total} ({part.percentage:.0f}%)")
    elif part.completed:
        said.append(str(part.completed))
    if rate := part.speed:
        said.append(f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
    if (left := part.time_remaining) is not None:
        said.append(f"{duration(left)} left")
    elif not said:
        said.append(duration(part.elapsed or 0.0))
    return ", ".join(filter(None, [*said, part.fields["note"]]))


class Display:
    """Shows the parts of some work that are under way; any thread may report.

    On a terminal there is a bar for all work, and one for each part. Elsewhere, as in a log file or
    a notebook without ipywidgets, a line is printed when a part begins, and every 30 seconds.
    """

    def __init__(self, console: Console, name: str, whole: Whole, detail: Detail) -> None:
        """Prepare a display of the work `name`; use as a context manager."""
        self._console = console
        self._whole = whole
        self._detail = detail
        can_update = console.is_interactive  # in a file, rich would add an empty line for bars
        if console.is_jupyter and find_spec("ipywidgets") is None:
            can_update = False
        self._has_bars = detail != "quiet" and can_update
        self._bars = _bars(console, self._has_bars)
        self._all = self._bars.add_task(name, total=1.0, words=self._summary)
        self._changes = threading.Lock()  # held until a part is there or gone, with its bar
        self._ended = threading.Event()
        self._printer = threading.Thread(target=self._print_regularly, daemon=True)

    def __enter__(self) -> Self:
        if self._has_bars:
            self._bars.start()
        elif self._detail != "quiet":
            self._printer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._bars.stop()
        if self._printer.is_alive():
            self._printer.join()

    def begin(self, key: str, name: str, how: str = "started") -> None:
        """Show a part, unless it is shown already; a file says `how` it has begun."""
        with self._changes:
            if key not in self._parts:
                self._bars.add_task(name, total=None, key=key, words=words, note="")
                self.say(f"… {name}: {how}", "verbose" if self._has_bars else "normal")

    def report(self, key: str, done: int, total: int, note: str) -> None:
        """Show that `done` of `total` units of a part are finished; 0: the total is unknown."""
        with self._changes:
            if part := self._parts.get(key):
                self._bars.update(part.id, completed=done, total=total or None, note=note)

    def end(self, key: str) -> None:
        """Remove a part."""
        with self._changes:
            if part := self._parts.get(key):
                self._bars.remove_task(part.id)

    def say(self, line: str, detail: Detail) -> None:
        """Print a line if the display has this level of detail, or a higher one."""
        if _DETAILS.index(detail) <= _DETAILS.index(self._detail):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @property
    def _parts(self) -> dict[str, Task]:
        return {each.fields["key"]: each for each in self._bars.tasks if each.id != self._all}

    def _summary(self, _: Task) -> str:
        """Return the text about all work, and move its bar."""
        share, said = self._whole(self._parts) if callable(self._whole) else self._whole
        self._bars.update(self._all, completed=share)
        return said

    def _print_regularly(self) -> None:
        """Print a line for each part under way, and one for all work, until the end."""
        with suppress(OSError, ValueError):  # the output was closed
            if not callable(self._whole) and not self._ended.wait(_SOON):
                self.say(f"… {self._whole[1]}", "normal")
            while not self._ended.wait(_INTERVAL):
                whole, *parts = self._bars.tasks
                for each in (*parts, whole):
                    self.say(f"… {each.description}: {each.fields['words'](each)}", "normal")


def _bars(console: Console, is_shown: bool) -> Progress:
    """Return bars whose last column is the text that the function `words` of a task returns."""
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    class Words(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.fields["words"](task), style="dim")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        Words(),
        console=console,
        transient=True,
        refresh_per_second=_DRAWN,
        speed_estimate_period=_WINDOW,
        disable=not is_shown,
    )


class Forecast:
    """Estimates the time left of a run from the stages that are not finished."""

    def __init__(
        self, order: Sequence[Stage], lacking: Collection[str], costs: Costs, workers: int
    ) -> None:
        """Take all stages in topological order, and the keys of the `lacking` ones.

        `workers` is the number of stages that are computed at a time.
        """
        self._open = {stage.key: stage for stage in order if stage.key in lacking}
        self._own = {stage.key for stage in on_their_own(list(self._open.values()))}
        self._users = users_of(order)
        self._workers = workers
        self._costs = costs
        self._count = len(order)
        self._spent = 0.0  # seconds of the stages that were computed since

    def finish(self, stage: Stage, seconds: float, computed: bool) -> None:
        """Note that a stage is finished, and learn from the seconds that it took."""
        is_own = self._open.pop(stage.key, None) is not None and stage.key in self._own
        if is_own and computed and seconds:
            self._costs.learn(stage.kind, stage.keyed, seconds)
            self._spent += seconds
        if not computed:  # it may have failed, and then its by-products are trained on their own
            self._own |= {byproduct.key for byproduct in stage.byproducts.values()}

    def left(self, busy: Mapping[str, Task]) -> tuple[float | None, Collection[str]]:
        """Return the seconds left, or None if unknown, and the kinds of stages of unknown time.

        `busy` has the stages under way by key. Stages of unknown time count as 0 seconds.
        """
        needs, unknown = {}, set()
        opened = list(self._open.values())  # a copy: another thread may finish one meanwhile
        rest = [stage for stage in opened if stage.key in self._own]
        for stage in rest:
            cost, part = self._costs.of(stage), busy.get(stage.key)
            seconds = None if cost is None else cost.seconds
            if part is not None and part.time_remaining is not None:
                seconds = part.time_remaining
            elif part is not None and seconds is not None:
                seconds -= part.elapsed or 0.0
            if seconds is None:
                unknown.add(stage.kind)
            needs[stage.key] = max(0.0, seconds or 0.0)
        if rest and unknown and not any(needs.values()):
            return None, unknown
        workers = max(self._workers, len(busy))  # a cluster may have more
        return time_left(rest, needs, self._users, workers), unknown

    def __call__(self, busy: Mapping[str, Task]) -> State:
        """Return the share of the run's time that is over, and a text about stages and time left.

        Without an estimate, it is the share of the stages that are finished.
        """
        left, unknown = self.left(busy)
        done = self._count - len(self._open)
        line = f"{done} of {self._count} stages"
        if left is None:
            return done / max(1, self._count), line
        if self._open:
            line += f", {'at least' if unknown else 'about'} {duration(left)} left"
        spent = self._spent + sum(part.elapsed or 0.0 for part in busy.values())
        return spent / ((spent + left * self._workers) or 1), line


class RunProgress(Display):
    """Shows the events of a run, and the time left from earlier stages of the same kinds."""

    def __init__(
        self,
        console: Console,
        targets: Sequence[Stage],
        store: Store,
        jobs: int = 1,
        *,
        failures: bool = True,
        detail: Detail = "normal",
    ) -> None:
        """Prepare the display of a run that computes what `targets` need, `jobs` stages at a time.

        Use as a context manager, which returns the listener. Without `failures`, failed stages are
        not printed.
        """
        order, lacking = topological(targets), missing(targets, store)
        costs = known_costs(order, lacking, store, elsewhere=store.records)
        self._forecast = Forecast(order, lacking, costs, jobs)
        super().__init__(console, "run", self._forecast, detail)
        self._failures = failures
        self._first: dict[str, str] = {}  # cause -> the first stage that failed for it

    def __call__(self, event: Event) -> None:
        """Show an event. A cause of several failures is printed once."""
        stage = event.stage
        if event.outcome is not None:
            computed = not event.outcome.hit and event.outcome.error is None
            self._forecast.finish(stage, event.outcome.seconds, computed)
            self.end(stage.key)
            self._print(stage, event.outcome)
            return
        self.begin(stage.key, stage.name, event.note if event.what == "waits" else "started")
        if event.what != "started":
            self.report(stage.key, event.done, event.total, event.note)

    def _print(self, stage: Stage, outcome: Outcome) -> None:
        is_unused = outcome.artifact is None and not outcome.seconds  # a candidate nobody chose
        if outcome.exception is not None:
            cause = str(outcome.error)
            first = self._first.setdefault(cause, stage.name)
            line = f"✗ {stage.name}: {cause if first == stage.name else f'as {first}'}"
            if self._failures:
                self.say(line, "quiet")
        elif outcome.hit:
            self.say(f"= {stage.name}: is in the store", "verbose")
        elif outcome.error is None and not is_unused:
            self.say(f"✓ {stage.name}  {outcome.seconds:.1f} s", "normal")


@dataclass(frozen=True)
class StageSummary:
    """The stages of one kind in a run, or all other stages."""

    name: str
    computed: int  # stages
    seconds: float  # of the computed stages
    found: int  # stages that were in the store


def parts(outcomes: Iterable[Outcome], wall: float) -> list[StageSummary]:
    """Return the seconds of each part; "all else" is the rest of `wall` seconds.

    The seconds of a resumed stage include earlier attempts. Several processes may need more than
    `wall` seconds in all; then "all else" has the seconds of its own stages.
    """
    by_name: dict[str, list[Outcome]] = {name: [] for name in (*PARTS, REST)}
    for outcome in outcomes:
        kind = block_of(outcome.stage.kind)
        by_name[kind if kind in PARTS else REST].append(outcome)
    summaries = list[StageSummary]()
    for name, members in by_name.items():
        computed = [each.seconds for each in members if not each.hit and each.seconds]
        rest = wall - sum(part.seconds for part in summaries) if name == REST else 0.0
        seconds, hits = max(sum(computed), rest), sum(each.hit for each in members)
        summaries.append(StageSummary(name, len(computed), seconds, hits))
    return summaries


def to_table(summaries: Iterable[StageSummary], wall: float, jobs: int = 1) -> Table:
    """Return the table at the end of a run that took `wall` seconds with `jobs` processes."""
    from rich.table import Table

    table = Table(title="what each part took", show_footer=True)
    table.add_column("part", "this run" if jobs == 1 else f"this run, {jobs} jobs")
    heads = (("computed", ""), ("seconds", f"{wall:.1f}"), ("from the store", ""))
    for name, total in heads:
        table.add_column(name, total, justify="right")
    for part in summaries:
        table.add_row(part.name, str(part.computed), f"{part.seconds:.1f}", str(part.found))
    return table
