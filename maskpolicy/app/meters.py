"""Rates and times left: of one stage, from its reports, and of a whole run."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from maskpolicy.pipeline.graph.costs import Costs, known_costs, time_left
from maskpolicy.pipeline.graph.nodes import Stage, topological, users_of
from maskpolicy.pipeline.graph.planning import missing
from maskpolicy.pipeline.store.artifacts import Store

_WINDOW = 60.0  # seconds over which a rate is measured
_APART = 0.5  # seconds between two reports that count for the rate


def duration(seconds: float) -> str:
    """Return seconds as text with one unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


class Meter:
    """How far one stage is; all times are seconds of the same clock."""

    def __init__(self, now: float) -> None:
        """Begin at `now`."""
        self.began = now
        self.done = self.total = 0  # units; a total of 0 is unknown
        self.note = ""
        self._reports: deque[tuple[float, int]] = deque()  # (time, units)

    def report(self, done: int, total: int, note: str, now: float) -> None:
        """Take a report of the stage. The first one may be above 0: a stage that is resumed."""
        self.done, self.total, self.note = done, total, note
        if not self._reports or done < self._reports[-1][1]:  # a later part counts from 0 again
            self._reports = deque([(now, done)])
        elif now - self._reports[-1][0] >= _APART:
            self._reports.append((now, done))
        while len(self._reports) > 2 and now - self._reports[0][0] > _WINDOW:
            self._reports.popleft()

    @property
    def rate(self) -> float | None:
        """Units per second, or None before there are two reports."""
        reports = self._reports
        if len(reports) < 2:
            return None
        (first, before), (last, after) = reports[0], reports[-1]
        return (after - before) / (last - first) or None

    def left(self, now: float) -> float | None:
        """Return the seconds left, or None if rate or total are unknown."""
        if not self.rate or not self.total:
            return None
        return max(0.0, (self.total - self.done) / self.rate - (now - self._reports[-1][0]))

    def words(self, now: float) -> str:
        """Return share, rate, time left and note as text; the seconds spent if nothing else."""
        parts = []
        if self.total:
            share = f"{self.done} of {self.total} ({100 * self.done / self.total:.0f}%)"
            parts.append(share)
        elif self.done:
            parts.append(str(self.done))
        if (rate := self.rate) is not None:
            parts.append(f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
        if (left := self.left(now)) is not None:
            parts.append(f"{duration(left)} left")
        elif not parts:
            parts.append(duration(now - self.began))
        return ", ".join([*parts, self.note] if self.note else parts)


@dataclass(frozen=True)
class Preparation:
    """Work before the first stage, such as reading the files of a large corpus."""

    name: str

    def share(self, busy: Mapping[str, Meter], now: float) -> float:
        """Return 0, because the share is unknown."""
        return 0.0

    def words(self, busy: Mapping[str, Meter], now: float) -> str:
        """Return what is being done."""
        return self.name


@dataclass(frozen=True)
class Tally:
    """How many of several things are done."""

    done: int
    total: int
    name: str  # of the things

    def share(self, busy: Mapping[str, Meter], now: float) -> float:
        """Return the share that is done."""
        return self.done / self.total

    def words(self, busy: Mapping[str, Meter], now: float) -> str:
        """Return what is done as text."""
        return f"{self.done} of {self.total} {self.name}"


def forecast(targets: Sequence[Stage], store: Store, workers: int = 1) -> Forecast:
    """Return the forecast of a run that computes what `targets` need."""
    order, lacking = topological(targets), missing(targets, store)
    costs = known_costs(order, lacking, store, elsewhere=store.records)
    return Forecast(order, lacking, costs, workers)


class Forecast:
    """The time left of a run: of its stages under way, and of those that are open."""

    def __init__(
        self, order: Sequence[Stage], lacking: Collection[str], costs: Costs, workers: int = 1
    ) -> None:
        """Take the stages in topological order, the keys to compute, and how many at a time."""
        self._open = {stage.key: stage for stage in order if stage.key in lacking}
        self._users = users_of(order)
        self._workers = workers
        self.costs = costs
        self.count = len(order)
        self.spent = 0.0  # seconds of the stages that were computed since

    @property
    def done(self) -> int:
        """The number of stages that have an outcome."""
        return self.count - len(self._open)

    def finish(self, stage: Stage, seconds: float, computed: bool) -> None:
        """Take the outcome of a stage, and learn from the time that it took."""
        if self._open.pop(stage.key, None) is not None and computed and seconds:
            self.costs.learn(stage.kind, stage.keyed, seconds)
            self.spent += seconds

    def left(self, busy: Mapping[str, Meter], now: float) -> tuple[float | None, Collection[str]]:
        """Return the seconds left, and the kinds of stages of which the time is unknown.

        `busy` has the stages under way by key. Unknown kinds count as 0; None: nothing is known.
        """
        needs, unknown = {}, set()
        rest = list(self._open.values())  # another thread may finish one meanwhile
        for stage in rest:
            cost, meter = self.costs.of(stage), busy.get(stage.key)
            known = None if cost is None else cost.seconds
            if meter is not None:
                spent = now - meter.began
                measured = meter.left(now)
                known = measured if known is None or measured is not None else known - spent
            if known is None:
                unknown.add(stage.kind)
            needs[stage.key] = max(0.0, known or 0.0)
        if rest and unknown and not any(needs.values()):
            return None, unknown
        workers = max(self._workers, len(busy))  # as many as a cluster has
        return time_left(rest, needs, self._users, workers), unknown

    def share(self, busy: Mapping[str, Meter], now: float) -> float:
        """Return the share of this run's time that is over; of its stages, without an estimate."""
        left, _ = self.left(busy, now)
        spent = self.spent + sum(now - each.began for each in busy.values())
        if left is None:
            return self.done / max(1, self.count)
        return spent / ((spent + left * self._workers) or 1)

    def words(self, busy: Mapping[str, Meter], now: float) -> str:
        """Return the stages done and the time left as text."""
        left, unknown = self.left(busy, now)
        line = f"{self.done} of {self.count} stages"
        if left is None or not self._open:
            return line
        return f"{line}, {'at least' if unknown else 'about'} {duration(left)} left"
