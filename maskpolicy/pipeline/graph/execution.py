"""Execute a graph of stages: one driver gives ready stages to an engine."""

from __future__ import annotations

import heapq
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from maskpolicy.core.errors import StageError, cause
from maskpolicy.experiment.budgets import TRAININGS, block_of
from maskpolicy.pipeline.graph import nodes
from maskpolicy.pipeline.graph.calls import KILLED, Answer, Call, Lost, answer, call_of
from maskpolicy.pipeline.graph.events import Event, Listener, Outcome, plan_digest, recorded, silent
from maskpolicy.pipeline.graph.nodes import Stage, sinks, stage_kind, topological, users_of
from maskpolicy.pipeline.graph.processes import Report
from maskpolicy.pipeline.store.artifacts import Store, run_name
from maskpolicy.pipeline.store.mirror import RECORDED
from maskpolicy.plugins import isolation

_MOST_LOST = 3  # processes that a stage may lose in a row without a new checkpoint
_TICK = 0.25  # seconds between two looks at the reports of stages
_PAUSE = 0.5  # seconds until stages that other commands compute are tried again
_URGENT = 1_000_000  # longer than any path
_log = logging.getLogger(__name__)


class Engine(Protocol):
    """Computes calls in other processes; the future of a killed one raises BrokenProcessPool."""

    capacity: int | None  # calls at a time; None: it queues all calls

    def submit(self, call: Call, report: Report) -> Future[Answer]:
        """Compute a stage."""


def execute(
    stages: Iterable[Stage],
    store: Store,
    listener: Listener = silent,
    *,
    targets: Iterable[Stage] | None = None,
    engine: Engine | None = None,
    workers: int = 1,
    threads: int | None = None,
    logs: Path | None = None,
) -> dict[str, Outcome]:
    """Compute what `targets` need, and return the outcome of every stage by key.

    `targets` are by default the sinks of the graph. Stages that only finished stages need are
    neither computed nor verified. If a stage raises, the stages that depend on it fail, and all
    others that a target needs are computed. If the process of a stage is killed, the stage starts
    again; the third time without a new checkpoint, it fails.

    Without an `engine`, this process computes one stage after the other. `workers` is the number of
    processes that a stage may start, `threads` the number of threads of each, `logs` a folder for
    trackers. Raises StoreError if the store cannot be used, e.g. on a full disk.
    """
    order, run = topological(stages), run_name()
    about = {
        "run": run,
        "workers": workers,
        "threads": threads,
        "logs": logs,
        "folder": str(Path.cwd()),
        "plugins": isolation.state(),
    }
    with (
        store.using([stage.key for stage in order], run),
        recorded(store.events(plan_digest(order)), listener) as listen,
    ):
        engine = engine or _Here(store)
        execution = _Execution(order, store, listen, engine, about, targets)
        outcomes = execution.run()
    execution._drop(execution.order)  # what stayed because other runs needed it
    return outcomes


@dataclass
class _Here:
    """An engine that computes stages in this process."""

    store: Store
    capacity: int | None = 1

    def submit(self, call: Call, report: Report) -> Future[Answer]:
        future: Future[Answer] = Future()
        try:
            future.set_result(answer(call, self.store, report))
        except Lost as lost:
            future.set_exception(lost)
        return future


class _Execution:
    """The state of one run. A stage is settled once it has an outcome, and open before."""

    def __init__(
        self,
        order: list[Stage],
        store: Store,
        listener: Listener,
        engine: Engine,
        about: Mapping[str, Any],
        targets: Iterable[Stage] | None,
    ) -> None:
        self.order = order
        self.targets = {
            stage.key: stage for stage in (sinks(order) if targets is None else targets)
        }
        self.users = users_of(order)
        self.makers: dict[str, list[Stage]] = defaultdict(list)  # by the keys of by-products
        for stage in order:
            for byproduct in stage.byproducts.values():
                self.makers[byproduct.key].append(stage)
        self.kept = self.targets.keys() | {stage.key for stage in order if not stage.transient}
        self.choices = {each.inputs[nodes.CHOICE].key for each in order if nodes.options(each)}
        self.store = store
        self.recorded = time.monotonic()  # when a bucket was told last what this run uses
        self.listener = listener
        self.engine = engine
        self.about = about
        self.ranks = ranks_of(order, self.users)
        self.ready: list[tuple[int, int, int]] = []  # a heap of ranks; some may be settled
        self.open: dict[str, Stage] = {}
        self.undecided: dict[str, Stage] = {}  # depend on a future choice; neither open nor settled
        self.outcomes: dict[str, Outcome] = {}
        self.busy: dict[str, Future[Answer]] = {}  # of the stages that the engine computes, by key
        self.started: set[str] = set()
        self.elsewhere: dict[str, Stage] = {}  # stages that other commands compute
        self.again = 0.0  # when those are tried again
        self.reports: SimpleQueue[tuple[Stage, int, int, str]] = SimpleQueue()
        self.losses: dict[str, tuple[int, int]] = {}  # since a checkpoint, and the step of that
        self.is_stale = False  # whether some open stages may no longer be needed

    def run(self) -> dict[str, Outcome]:
        self.store.prefetch(self.users)
        self._look_for(self.targets.values())
        self._settle_unneeded(is_first=True)
        self._drop(self.order)
        if self.open and self.store.mirror:
            self.store.mirror.prepare()  # an error now rather than after hours of computation
        try:
            while self.open:
                self._submit_ready()
                self._take_answers()
                if self.is_stale:
                    self._settle_unneeded()
                self._record_use()
        finally:
            for future in self.busy.values():
                future.cancel()
        return {key: self.outcomes[key] for key in self.users if key in self.outcomes}

    def _record_use(self) -> None:
        """Tell a bucket twice a day what this run uses, because others may prune there.

        The bucket's clock may differ from this one, so it is asked more often.
        """
        if self.store.mirror and time.monotonic() - self.recorded > RECORDED.total_seconds() / 2:
            self.store.mirror.record_use(self.users)
            self.recorded = time.monotonic()

    def _submit_ready(self) -> None:
        """Give ready stages to the engine, up to its capacity."""
        if self.elsewhere and time.monotonic() >= self.again:
            waiting, self.elsewhere = self.elsewhere, {}
            for stage in waiting.values():
                self._queue(stage)
        while self.ready and (
            self.engine.capacity is None or len(self.busy) < self.engine.capacity
        ):
            stage = self.order[heapq.heappop(self.ready)[-1]]
            if not self._is_ready(stage):
                continue
            if self._find(stage, hit=False):  # another command has computed it meanwhile
                self.is_stale = True
                self._drop(stage.inputs.values())
            elif self.store.is_busy(stage.key):
                self._wait_for(stage)
            else:
                self._submit(stage)

    def _submit(self, stage: Stage) -> None:
        wanted = {
            name: byproduct
            for name, byproduct in stage.byproducts.items()
            if byproduct.key in self.open or byproduct.key in self.undecided
        }
        call = call_of(stage, self.store, wanted, **self.about)
        if self.engine.capacity is not None:
            self._start(stage)
        self.busy[stage.key] = self.engine.submit(call, self._report_of(stage))

    def _wait_for(self, stage: Stage) -> None:
        """Note that another command computes a stage, which is tried again in a moment."""
        if not self.elsewhere:
            self.again = time.monotonic() + _PAUSE
        self.elsewhere[stage.key] = stage
        self.listener(Event("waits", stage, note="another command computes it"))

    def _start(self, stage: Stage) -> None:
        """Report that a stage has started; a queued one starts with its first report."""
        if stage.key not in self.started:
            self.started.add(stage.key)
            self.listener(Event("started", stage))

    def _report_of(self, stage: Stage) -> Report:
        if isinstance(self.engine, _Here):
            return lambda done, total, note: self.listener(
                Event("advanced", stage, done, total, note)
            )
        return lambda done, total, note: self.reports.put((stage, done, total, note))

    def _take_answers(self) -> None:
        """Wait a moment for answers, and settle their stages."""
        if not self.busy and self.elsewhere and not self.ready:
            time.sleep(max(0.0, self.again - time.monotonic()))
        wait(self.busy.values(), timeout=_TICK, return_when=FIRST_COMPLETED)
        answered = [key for key, future in self.busy.items() if future.done()]
        while not self.reports.empty():
            stage, done, total, note = self.reports.get()
            if stage.key in self.open:
                self._start(stage)
                self.listener(Event("advanced", stage, done, total, note))
        for key in answered:
            stage, future = self.open[key], self.busy.pop(key)
            self.started.discard(key)
            try:
                self._settle(stage, future.result())
            except BrokenProcessPool as lost:
                self._lose(stage, str(lost) if isinstance(lost, Lost) else KILLED)
            self._drop(stage.inputs.values())

    def _settle(self, stage: Stage, answer: Answer) -> None:
        if answer.is_busy:
            self._wait_for(stage)
        elif answer.lost:
            inputs = [stage.inputs[name] for name in answer.lost]
            for needed in inputs:
                self.outcomes.pop(needed.key, None)
            self._look_for(inputs, verify=True)
            self._queue(stage)
        elif answer.error is not None:
            self._fail(stage, answer.error, answer.seconds)
        else:
            path = self.store.path(stage.key)
            self._finish(Outcome(stage, path, seconds=answer.seconds, here=True))

    def _lose(self, stage: Stage, lost: str) -> None:
        """Queue a stage whose process was killed; the third time without progress, it fails."""
        count, before = self.losses.get(stage.key, (0, 0))
        step = max(self.store.checkpoints(stage.key).steps(), default=0)
        count = 1 if step > before else count + 1
        self.losses[stage.key] = count, step
        if count < _MOST_LOST:
            _log.warning("%s: %s: it starts again from its last checkpoint", stage.name, lost)
            self._queue(stage)
            return
        kind = block_of(stage.kind)
        smaller = f"lower {kind}.micro_tokens, or " if kind in TRAININGS else ""
        error = StageError(
            f"{lost}, {count} times in a row: if memory ran out, {smaller}give each process more "
            "(lower --jobs, or raise slurm.memory); then run it again"
        )
        self._fail(stage, error)

    def _fail(self, stage: Stage, error: Exception, seconds: float = 0.0) -> None:
        self._finish(Outcome(stage, None, cause(error), seconds, exception=error, here=True))

    def _look_for(self, stages: Iterable[Stage], verify: bool = False) -> None:
        """Settle stages that are in the store; open the others, and look for their inputs."""
        waiting, missing = list(stages), []
        while waiting:
            stage = waiting.pop()
            if not self._is_known(stage) and not self._find(stage, hit=True, verify=verify):
                self.open[stage.key] = stage
                missing.append(stage)
                waiting.extend(self._needs(stage))
        for stage in missing:
            self._queue(stage)

    def _is_known(self, stage: Stage) -> bool:
        """Return whether a stage is open or settled."""
        return stage.key in self.open or stage.key in self.outcomes

    def _needs(self, stage: Stage) -> list[Stage]:
        """Return the inputs that a stage needs; before a choice is made, only the choice."""
        if self._is_undecided(stage):
            return [stage.inputs[nodes.CHOICE]]
        return nodes.needed(stage, self.store)

    def _is_undecided(self, stage: Stage) -> bool:
        """Return whether a stage has options and depends on a future choice."""
        return bool(nodes.options(stage) and stage.inputs[nodes.CHOICE].key not in self.outcomes)

    def _find(self, stage: Stage, hit: bool, verify: bool = False) -> bool:
        """Settle a stage if its artifact is in the store; return whether it is.

        Targets are verified now, other artifacts when a stage that needs them is computed.
        """
        if (verify or stage.key in self.targets) and self.store.get(stage.key) is None:
            return False
        if (manifest := self.store.peek(stage.key)) is None:
            return False
        self.store.tidy(stage.key)
        self.store.touch(stage.key)
        path = self.store.path(stage.key)
        self._finish(Outcome(stage, path, seconds=manifest["seconds"], hit=hit))
        return True

    def _queue(self, stage: Stage) -> None:
        """Queue an open stage that is ready; settle it as not run if one of its inputs failed."""
        if stage.key not in self.open or stage.key in self.busy:
            return
        if nodes.options(stage):  # the chosen option is opened as soon as it is known
            self._look_for(self._needs(stage))
        inputs = (self.outcomes.get(needed.key) for needed in self._needs(stage))
        failed = next((one for one in inputs if one is not None and one.error is not None), None)
        if failed is not None:  # if that was not run either, its error names the first failure
            why = f"not run, because {failed.stage.name} failed: " if failed.exception else ""
            self._finish(Outcome(stage, error=f"{why}{failed.error}"))
        elif self._is_ready(stage):
            heapq.heappush(self.ready, self.ranks[stage.key])

    def _is_ready(self, stage: Stage) -> bool:
        """Return whether an open stage can be computed.

        All its inputs are settled, and no open stage has it as a by-product.
        """
        return (
            stage.key in self.open
            and stage.key not in self.busy
            and all(needed.key in self.outcomes for needed in self._needs(stage))
            and not any(maker.key in self.open for maker in self.makers.get(stage.key, ()))
        )

    def _settle_unneeded(self, is_first: bool = False) -> None:
        """Settle, without artifacts, the stages that no target and no choice needs any more."""
        self.is_stale = False
        needed: dict[str, Stage] = {}
        waiting = [stage for stage in self.targets.values() if stage.key in self.open]
        while waiting:
            stage = waiting.pop()
            if stage.key not in needed:
                needed[stage.key] = stage
                waiting += [each for each in self._needs(stage) if each.key in self.open]
        choosing = filter(self._is_undecided, needed.values())
        self.undecided = nodes.undecided(choosing, self.store, self._is_known)
        wanted = needed.keys() | self.busy.keys() | self.undecided.keys() | self.outcomes.keys()
        for stage in self.order:
            if stage.key not in wanted:
                self.store.tidy(stage.key)
                known = self.store.recall(stage.key)
                seconds = 0.0 if known is None else known["seconds"]
                self._finish(Outcome(stage, seconds=seconds, hit=is_first or known is not None))
                self._drop(() if is_first else stage.inputs.values())

    def _drop(self, stages: Iterable[Stage]) -> None:
        """Remove transient artifacts if all stages of this graph that use them have finished.

        Artifacts that another running command may use stay until it ends, and those that another
        run computed to keep them stay.
        """
        done = set()
        for key in {stage.key for stage in stages} - self.kept:
            users = [self.outcomes.get(user.key) for user in self.users[key]]
            if all(one and one.error is None for one in users) and self.store.has(key):
                sealed = self.store.peek(key) or {"record": {}}  # {}: it is damaged
                if sealed["record"].get("transient", True):
                    done.add(key)
        for key in done - self.store.in_use() if done else ():
            self.store.drop(key)

    def _finish(self, outcome: Outcome) -> None:
        """Settle a stage with its outcome, and queue the stages that are ready now."""
        stage = outcome.stage
        self.outcomes[stage.key] = outcome
        self.open.pop(stage.key, None)
        self.listener(Event("finished", stage, outcome=outcome))
        for waiting in (*self.users[stage.key], *stage.byproducts.values()):
            self._queue(waiting)
        self.is_stale |= stage.key in self.choices or outcome.error is not None


def ranks_of(
    order: Sequence[Stage], users: Mapping[str, Sequence[Stage]]
) -> dict[str, tuple[int, int, int]]:
    """Return the rank of each stage by key; the ready stage of the lowest rank is computed first.

    Stages of higher priority come first, those of equal priority by depth, deepest first, then by
    their place in `order`. The priority is the number of stages on the longest path from this stage
    to a sink, or the priority of a by-product if that is higher. A stage that uses a transient
    artifact has at least the priority of the stage that computes it, so that the store has few
    transient artifacts at a time. Urgent stages and their inputs come first.
    """
    lengths: dict[str, int] = {}

    def longest(stage: Stage) -> int:
        if stage.key not in lengths:
            after = [1 + longest(user) for user in users[stage.key]]
            byproducts = [longest(each) for each in stage.byproducts.values() if each.key in users]
            own = _URGENT if stage_kind(stage.kind).urgent else 1
            lengths[stage.key] = max((own, *after, *byproducts))
        return lengths[stage.key]

    priority: dict[str, int] = {}
    for stage in order:  # inputs come before their users
        transient = (need.key for need in stage.inputs.values() if need.transient)
        priority[stage.key] = max((longest(stage), *(priority[key] for key in transient)))
    return {
        stage.key: (-priority[stage.key], -stage.depth, index) for index, stage in enumerate(order)
    }
