"""Execute a graph of stages: each missing one is computed by one of the processes that share it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from maskpolicy.errors import ClaimLost, cause
from maskpolicy.graph import picking, processes
from maskpolicy.graph.computing import Computer
from maskpolicy.graph.nodes import Stage, load_imports, sinks, topological, users_of
from maskpolicy.graph.outcomes import Outcome, Progress, Silent
from maskpolicy.graph.scheduling import BackOff, Ready, makers_of, poll_interval
from maskpolicy.graph.shared_notes import (
    count_death,
    forgive,
    note_failure,
    noted_failure,
    noted_progress,
)
from maskpolicy.store.artifacts import Store

_log = logging.getLogger(__name__)
_SHOWN = 8  # stages of other processes whose notes of progress are read at a time
_LATE = 5.0  # seconds in which a run waits at its end for others to let go of what it drops


def execute(
    stages: Iterable[Stage],
    store: Store,
    progress: Progress | None = None,
    *,
    targets: Iterable[Stage] | None = None,
    workers: int = 1,
    logs: Path | None = None,
    kinds: Collection[str] | None = None,
    wait: bool = True,
    retry: bool = True,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, Outcome]:
    """Compute what `targets` need, in this process, and return the outcome of every stage by key.

    `targets` are by default the sinks of the graph. Stages that only finished stages need are
    neither computed nor verified. If a stage raises, the stages that depend on it fail, and all
    others that a target needs are computed.

    `workers` is the number of processes that a stage may start, `logs` a folder for trackers.
    This process computes only stages of `kinds` (None: all of them; empty: it waits for other
    processes). Without `wait`, stages that are left to other processes have no outcome. A stage
    that failed in another process is not tried here; `retry` ignores failures from before this
    call. `pause` is called with the seconds to wait whenever this process has nothing to compute;
    it may raise. Raises StoreError if the store cannot be used, e.g. on a full disk.
    """
    order = topological(stages)
    if retry:
        forgive(store, order)
    reports = progress or Silent()
    computer = Computer(store, reports, workers, logs)
    run = _Execution(order, store, reports, computer, targets, kinds, pause)
    return run.run(wait)


class _Execution:
    """The state of one run. A stage is settled once it has an outcome, and open before.

    A process holds several locks only while it computes: that of the stage, and those of its
    transient inputs. It takes all of these or none and waits for none, so it cannot deadlock.
    """

    def __init__(
        self,
        order: list[Stage],
        store: Store,
        progress: Progress,
        computer: Computer,
        targets: Iterable[Stage] | None,
        kinds: Collection[str] | None,
        pause: Callable[[float], None],
    ) -> None:
        self.order = order
        self.targets = {
            stage.key: stage for stage in (sinks(order) if targets is None else targets)
        }
        self.users = users_of(order)
        self.makers = makers_of(order)
        self.kept = self.targets.keys() | {stage.key for stage in order if not stage.transient}
        self.store = store
        self.progress = progress
        self.computer = computer
        self.kinds = kinds
        self.pause = pause
        self.open: dict[str, Stage] = {}
        # needed only if a choice that is not made yet takes it; neither open nor settled
        self.undecided: dict[str, Stage] = {}
        self.choices = picking.options_of(order).keys()
        self.outcomes: dict[str, Outcome] = {}
        self.ready = Ready(order, self.users)
        self.back_off = BackOff(store.patience)
        self.polled = time.monotonic()
        self.poll_seconds = 0.0  # that the last poll took
        self.awaited: Stage | None = None  # the stage that progress shows
        self.undropped: set[str] = set()  # keys that another process held

    def run(self, wait: bool) -> dict[str, Outcome]:
        with self.store.using(self.users):
            return self._run(wait)

    def _run(self, wait: bool) -> dict[str, Outcome]:
        self.store.prefetch(self.users)
        self.store.record_use(self.users)
        self._require(self.targets.values())
        self.undecided = self._undecided()
        for stage in self.order:
            if not self._is_known(stage) and stage.key not in self.undecided:
                self._settle_unneeded(stage)
        self._drop(self.order)
        while self.open:
            if (next_stage := self.ready.pop()) is not None:
                self._step(next_stage)
            elif not self._poll():
                if not wait:
                    break
                self._wait()
        self._drop_late()
        return {key: self.outcomes[key] for key in self.users if key in self.outcomes}

    def _require(self, stages: Iterable[Stage], verify: bool = False) -> None:
        """Settle the stages that are in the store, and open the others, inputs included.

        The inputs of a stage that is in the store are not looked for.
        """
        waiting, missing = list(stages), []
        while waiting:
            stage = waiting.pop()
            if self._is_known(stage):
                continue
            if not self._find(stage, hit=True, verify=verify):
                self.open[stage.key] = stage
                missing.append(stage)
                waiting.extend(self._needs(stage))
        for stage in missing:
            self._queue(stage)

    def _is_known(self, stage: Stage) -> bool:
        """Return whether a stage is open or settled."""
        return stage.key in self.open or stage.key in self.outcomes

    def _needs(self, stage: Stage) -> list[Stage]:
        """Return the inputs that a stage needs; before a choice is made, the choice alone."""
        if self._is_undecided(stage):
            return [stage.inputs[picking.CHOICE]]
        return picking.needed(stage, self.store)

    def _is_undecided(self, stage: Stage) -> bool:
        """Return whether a stage takes an input by a choice that is not made yet."""
        return bool(
            picking.options(stage) and stage.inputs[picking.CHOICE].key not in self.outcomes
        )

    def _undecided(self) -> dict[str, Stage]:
        """Return what open stages need only if a choice takes it that is not made yet."""
        waiting = filter(self._is_undecided, self.open.values())
        return picking.undecided(waiting, self.store, self._is_known)

    def _decide(self) -> None:
        """Settle what no choice can take any more."""
        before, self.undecided = self.undecided, self._undecided()
        for stage in before.values():
            if stage.key not in self.undecided and not self._is_known(stage):
                self._settle_unneeded(stage, hit=self.store.has(stage.key))
                self._drop(stage.inputs.values())

    def _find(self, stage: Stage, hit: bool, verify: bool = False) -> bool:
        """Settle a stage if its artifact is in the store; return whether it is.

        Targets are verified at once, all others when a stage that needs them is computed.
        """
        if verify or stage.key in self.targets:
            artifact = self.store.get(stage.key)
            manifest = None if artifact is None else artifact.manifest
        else:
            manifest = self.store.peek(stage.key)
        if manifest is None:
            return False
        self.store.tidy(stage.key)
        self.store.touch(stage.key)
        path = self.store.path(stage.key)
        self._finish(Outcome(stage, path, seconds=manifest["seconds"], hit=hit))
        return True

    def _queue(self, stage: Stage) -> None:
        """Queue an open stage that is ready; settle it as not run if one of its inputs failed.

        What only such stages need is not computed.
        """
        if stage.key not in self.open:
            return
        if picking.options(stage):  # what it takes is opened as soon as that is known
            self._require(self._needs(stage))
        known = (self.outcomes.get(needed.key) for needed in self._needs(stage))
        failed = next((each for each in known if each is not None and each.error is not None), None)
        if failed is not None:
            self._finish(Outcome(stage, error=_blocked_by(failed)))
            self._settle_unneeded_inputs(stage)
        elif self._is_ready(stage) and self._may_compute(stage):
            self.ready.push(stage)

    def _is_ready(self, stage: Stage) -> bool:
        """Return whether all inputs are settled, and no open stage has this one as a by-product."""
        return all(needed.key in self.outcomes for needed in self._needs(stage)) and not any(
            maker.key in self.open for maker in self.makers.get(stage.key, ())
        )

    def _may_compute(self, stage: Stage) -> bool:
        return self.kinds is None or stage.kind in self.kinds

    def _step(self, stage: Stage) -> None:
        """Settle a stage if it is still ready, or defer it if another process has claimed it."""
        if stage.key not in self.open or not self._is_ready(stage):
            return
        with suppress(ImportError, OSError):  # the stage will raise it again, and fail
            load_imports(stage.kind)
        try:
            with self.store.try_lock(stage.key) as is_mine:
                if is_mine:
                    self.awaited = None
                    self._settle(stage)
                else:
                    self.ready.defer(stage)
        except ClaimLost:  # another process computes the stage now
            if processes.count() > 1:  # the other processes of this command still compute it
                raise
            _log.warning("%s: taken over by another process, as this one stood still", stage.name)
            self.ready.defer(stage)
        if time.monotonic() - self.polled > poll_interval(self.poll_seconds):
            self._poll()

    def _settle(self, stage: Stage) -> None:
        """Look for the artifact again under the lock; if it is missing and needed, compute it."""
        if self._find(stage, hit=False):
            pass
        elif not self._is_needed(stage):  # another process computed, used and dropped it
            self._settle_unneeded(stage, hit=False)
        elif (failed := noted_failure(self.store, stage)) is not None:
            self._finish(failed)
        elif (deaths := count_death(self.store, stage)) is not None:
            note_failure(self.store, stage, deaths)
            self._finish(Outcome(stage, error=cause(deaths), exception=deaths, here=True))
        else:
            self._compute(stage)
        self._drop(stage.inputs.values())

    def _compute(self, stage: Stage) -> None:
        """Compute a stage; if an input is lost, require that input again instead.

        If another process holds a transient input, the stage is deferred.
        """
        inputs = list({needed.key: needed for needed in self._needs(stage)}.values())
        may_use = self.open.keys() | self.undecided.keys()
        wanted = {name: each for name, each in stage.byproducts.items() if each.key in may_use}
        transient = [needed.key for needed in inputs if needed.transient]
        with self.store.try_lock_all(transient) as are_mine:  # so that no process drops them
            if not are_mine:
                self.ready.defer(stage)
                return
            lost = [needed for needed in inputs if self.store.get(needed.key) is None]
            if not lost:
                self._finish(self.computer.compute(stage, wanted))
                return
        for needed in lost:
            self.outcomes.pop(needed.key)
        self._require(lost, verify=True)
        self._queue(stage)

    def _poll(self) -> bool:
        """Settle stages that other processes settled; return whether there were any."""
        settled, self.polled = len(self.outcomes), time.monotonic()
        self.store.record_use(self.users)
        there = self.store.committed() & self.open.keys()
        for stage in [self.open[key] for key in self.users if key in there]:
            if self._find(stage, hit=False):
                self._settle_unneeded_inputs(stage)
                self._drop(stage.inputs.values())
        for key in self.store.failures.keys() & self.open.keys():
            failed = noted_failure(self.store, self.open[key])
            if failed is not None and not self.store.is_busy(key):
                self._finish(failed)
        self.ready.resume()
        self.poll_seconds = time.monotonic() - self.polled
        return len(self.outcomes) != settled

    def _settle_unneeded_inputs(self, stage: Stage) -> None:
        """Settle those inputs of a settled stage that no open stage needs any more."""
        for needed in stage.inputs.values():
            if needed.key in self.open and not self._is_needed(needed):
                self._settle_unneeded(needed, hit=False)
                self._settle_unneeded_inputs(needed)

    def _wait(self) -> None:
        """Pause, because other processes compute every stage that is ready."""
        busy = self._under_way()
        if busy is not self.awaited:
            self.awaited = busy
            self.progress.wait(busy)
        known_keys = self.store.progress.keys() & self.open.keys() - {busy.key}
        for stage in (busy, *(self.open[key] for key in sorted(known_keys)[:_SHOWN])):
            known = noted_progress(self.store, stage)
            if known is not None and stage is busy:
                self.progress.advance(*known)
            elif known is not None:
                self.progress.elsewhere(stage, *known)
        self.pause(self.back_off.pause(self.poll_seconds))

    def _under_way(self) -> Stage:
        """Return a stage that this process waits for, if possible one with a note of progress."""
        known = self.store.progress.keys() & self.open.keys()
        deferred = [stage for stage in self.ready.deferred if stage.key in self.open]
        ready = (stage for stage in self.open.values() if self._is_ready(stage))
        first = deferred[0] if deferred else next(ready)
        return first if first.key in known or not known else self.open[min(known)]

    def _is_needed(self, stage: Stage) -> bool:
        """Return whether a missing stage is a target, or an input of a needed missing stage."""
        if stage.key in self.targets:
            return True
        return any(
            user.key in self.open
            and any(needed.key == stage.key for needed in self._needs(user))
            and self.store.peek(user.key) is None
            and self._is_needed(user)
            for user in self.users[stage.key]
        )

    def _drop(self, stages: Iterable[Stage]) -> None:
        """Remove transient artifacts whose users in this graph have all finished."""
        for key in {stage.key for stage in stages} - self.kept:
            users = [self.outcomes.get(user.key) for user in self.users[key]]
            done = all(outcome is not None and outcome.error is None for outcome in users)
            if done and self.store.has(key) and not self.store.drop(key):
                self.undropped.add(key)

    def _drop_late(self) -> None:
        """Remove what another process held before, which died or is about to remove it."""
        until = time.monotonic() + _LATE
        while True:
            held = (key for key in self.undropped if self.store.has(key))
            self.undropped = {key for key in held if not self.store.drop(key)}
            if not self.undropped or time.monotonic() > until:
                return
            self.pause(_LATE / 50)

    def _settle_unneeded(self, stage: Stage, hit: bool = True) -> None:
        """Settle a stage without an artifact: all that would use it is there."""
        self.store.tidy(stage.key)
        seconds = (self.store.recall(stage.key) or {}).get("seconds", 0.0)
        self._finish(Outcome(stage, seconds=seconds, hit=hit))

    def _finish(self, outcome: Outcome) -> None:
        """Settle a stage with its outcome, and queue the stages that waited for nothing else."""
        stage = outcome.stage
        self.outcomes[stage.key] = outcome
        self.open.pop(stage.key, None)
        self.back_off.reset()
        self.progress.finish(stage, outcome)
        for waiting in (*self.users[stage.key], *stage.byproducts.values()):
            self._queue(waiting)
        if stage.key in self.choices or picking.options(stage):
            self._decide()


def _blocked_by(failed: Outcome) -> str:
    if failed.exception is None:  # it was not run either: its error names the first failure
        return str(failed.error)
    return f"not run, because {failed.stage.name} failed: {failed.error}"
