"""The workers of a run on a Ray cluster: as many as there are stages and room for."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from maskpolicy.config.resources import Resources
from maskpolicy.errors import ConfigError, MaskpolicyError, StageError, cause
from maskpolicy.executors.backlog import Left, Slot, slots_of
from maskpolicy.executors.ray_actors import Message, MessageQueue, Worker
from maskpolicy.executors.request import Request

LOCAL = "local"  # the address of a Ray of this machine, which is started
_POLL = 2.0  # seconds between two listings of the nodes
_RETRY = 10.0  # seconds after which an idle worker tries to claim the stages of lost workers
_BUSY = 5.0  # seconds after which a call counts as computing a stage
_STALLED = 120.0  # seconds without a busy worker after which the command says so
_MOST_LOST = 100  # workers that may be lost one after another without a finished stage between


@dataclass(frozen=True)
class Session:
    """The arguments of `ray_session.serve`."""

    address: str  # LOCAL, auto, HOST:PORT or ray://HOST:PORT
    request: Request
    resources: Resources
    kinds: tuple[str, ...]  # of all stages that are not in the store
    folder: str  # the working directory of the command
    marker: str  # in the store: see `store_marker`


@dataclass
class _PoolWorker:
    """A worker of the pool: an actor, and the call that it is computing."""

    slot: Slot
    label: str
    actor: Any
    call: Any  # None: it is idle
    is_prepared: bool = False
    changes: int = -1  # `Left.changes` when it was last called
    called: float = field(default_factory=time.monotonic)


class Pool:
    """The workers of a run on a cluster."""

    def __init__(self, session: Session) -> None:
        self.ray: Any = import_module("ray")
        self.session = session
        self.slots = slots_of(session.resources, session.kinds, self.has_gpus())
        # not soft: Ray then prefers other nodes to one without cores, and loses it with them
        here = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(
            self.ray.get_runtime_context().get_node_id(), soft=False
        )
        placed = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
        self.queue = self.ray.remote(**placed)(MessageQueue).remote()
        self.fetching = self.queue.fetch.remote()
        self.workers: list[_PoolWorker] = []
        self.number = 0
        self.own_messages: list[Message] = []
        self.lost = 0  # workers since a stage was last finished
        self.open = -1  # stages, when they were last counted
        self.too_wide: set[Slot] = set()  # slots that no node has room for
        self.nodes: list[Mapping[str, Any]] = []
        self.polled = -_POLL
        self.made_room = -_POLL
        self.last_change: dict[Slot, tuple[Left, float]] = {}  # counts, and when a slot was busy
        self.stalled: set[Slot] = set()  # slots that have been reported as stalled

    def has_gpus(self) -> bool:
        """Return whether a node has a GPU."""
        return bool(self.ray.cluster_resources().get("GPU"))

    def update(self, left: Sequence[Left]) -> None:
        """Settle finished calls, and start workers for each slot's stages as far as there is room.

        Raises an error of a worker that every other one would raise too.
        """
        self._settle(left)
        if time.monotonic() - self.polled > _POLL:
            self.nodes, self.polled = [n for n in self.ray.nodes() if n["Alive"]], time.monotonic()
        for slot, what in zip(self.slots, left, strict=True):
            room = self._room(slot)
            if what.ready and not room and slot not in self.too_wide:
                self.too_wide.add(slot)
                self._warn(f"no node has {slot} for {', '.join(slot.kinds)}: waiting for one")
            own = [each for each in self.workers if each.slot == slot]
            # with one slot, all of its workers prepare while the first ones compute
            wanted = what.open if len(self.slots) == 1 else what.ready
            for _ in range(min(wanted, max(1, room)) - len(own)):
                self._start(slot)
            for each in own:
                self._call(each, what)
            self._warn_if_stalled(slot, what)
        self._make_room(left)

    def _settle(self, left: Sequence[Left]) -> None:
        still_open = sum(what.open for what in left)
        if still_open != self.open:
            self.open, self.lost = still_open, 0
        calls = {each.call: each for each in self.workers if each.call is not None}
        if not calls:
            return
        for call in self.ray.wait(list(calls), num_returns=len(calls), timeout=0)[0]:
            each = calls[call]
            try:
                self.ray.get(call)
            except self.ray.exceptions.RayTaskError as error:
                self._raise(each, error)
            except self.ray.exceptions.RayError as error:
                self._lose(each, error)
            else:
                each.call, each.is_prepared = None, True

    def _raise(self, each: _PoolWorker, error: Any) -> None:
        """Raise the error of a worker, in one line."""
        inner = error.cause if isinstance(error.cause, MaskpolicyError) else None
        line = f"{each.label}: {cause(inner or error.cause or error)}"
        if not each.is_prepared:  # its node has other files, another version, or fewer packages
            raise ConfigError(
                f"{line} (all nodes need the same version of maskpolicy, and the experiment, its "
                "plugins and its data under the same paths)"
            )
        raise type(inner)(line) if inner else StageError(line)

    def _lose(self, each: _PoolWorker, error: Any) -> None:
        """Remove a worker that has died; another one takes over its stage."""
        self.workers.remove(each)
        self.lost += 1
        if not each.is_prepared:
            _check_importable(each.label, error)
        self._warn(f"{each.label} was lost: another one takes over its stage")
        if self.lost == _MOST_LOST:
            raise StageError(
                f"{_MOST_LOST} workers were lost one after another without finishing a stage: see "
                "Ray's logs for the reason, e.g. too little memory for each worker"
            )

    def _start(self, slot: Slot) -> None:
        """Start a worker, which first plans the experiment."""
        self.number += 1
        label = f"worker {self.number}"
        takes = {"num_cpus": slot.cpus, "num_gpus": slot.gpus, "max_restarts": 0}
        actor = self.ray.remote(**takes)(Worker).remote(label, self.queue)
        session = self.session
        threads = session.request.threads or slot.cpus
        request = replace(session.request, kinds=slot.kinds, threads=threads)
        call = actor.prepare.remote(request, session.folder, session.marker)
        self.workers.append(_PoolWorker(slot, label, actor, call))

    def _call(self, each: _PoolWorker, what: Left) -> None:
        """Make an idle worker compute, if a stage became ready, or now and then anyway."""
        if each.call is None and what.open:
            waited = time.monotonic() - each.called
            if each.changes != what.changes or waited > _RETRY:
                each.changes, each.called = what.changes, time.monotonic()
                each.call = each.actor.compute.remote()

    def _room(self, slot: Slot) -> int:
        """Return how many workers of a slot the cluster could hold if there were no others."""
        room = 0
        for node in self.nodes:
            has = node["Resources"]
            fits = [has.get("CPU", 0) // slot.cpus]
            fits += [has.get("GPU", 0) // slot.gpus] if slot.gpus else []
            room += int(min(fits))
        return room

    def _make_room(self, left: Sequence[Left]) -> None:
        """End an idle worker that its slot can spare, if workers of another slot wait for room.

        Ready stages include those that are computed now, so a slot can spare the workers that
        exceed its ready stages.
        """
        if time.monotonic() - self.made_room < _POLL:  # the last room may still be taken
            return
        waiting = {each.slot for each in self.workers if not each.is_prepared}
        ready = {slot: what.ready for slot, what in zip(self.slots, left, strict=True)}
        short = {slot for slot in waiting if ready[slot]}
        for slot in self.slots:
            own = [each for each in self.workers if each.slot == slot and each.is_prepared]
            idle = [each for each in own if each.call is None]
            if idle and len(own) > ready[slot] and short - {slot}:
                self.workers.remove(idle[0])
                self.ray.kill(idle[0].actor)
                self.made_room = time.monotonic()
                return

    def _warn_if_stalled(self, slot: Slot, what: Left) -> None:
        """Warn once if stages of a slot are ready and no worker computes any of them."""
        own = [each for each in self.workers if each.slot == slot]
        now = time.monotonic()
        busy = any(
            each.is_prepared and each.call is not None and now - each.called > _BUSY for each in own
        )
        before, since = self.last_change.get(slot, (None, now))
        if busy or not what.ready or what != before:
            self.last_change[slot] = what, now
            self.stalled.discard(slot)
        elif now - since > _STALLED and slot not in self.stalled:
            self.stalled.add(slot)
            reason = (
                "other processes hold them (`maskpolicy status` names these)"
                if any(each.is_prepared for each in own)
                else f"no node has {slot} free, or workers do not start: see Ray's logs"
            )
            kinds = ", ".join(slot.kinds)
            self._warn(
                f"stages of {kinds} are ready ({what.ready}), and no worker has computed one for "
                f"{_STALLED:.0f} s: {reason}"
            )

    def messages(self) -> list[Message]:
        """Return the messages of workers and of this process since the last call."""
        messages, self.own_messages = self.own_messages, []
        if self.ray.wait([self.fetching], timeout=0)[0]:
            try:
                messages += self.ray.get(self.fetching)
            except self.ray.exceptions.RayActorError as error:  # its process starts again, unless
                _check_importable("the command's node", error)
            self.fetching = self.queue.fetch.remote()
        return messages

    def _warn(self, line: str) -> None:
        self.own_messages.append((__name__, logging.WARNING, line))

    def end(self) -> None:
        """End all workers."""
        for each in self.workers:
            with suppress(Exception):
                self.ray.kill(each.actor)


def _check_importable(where: str, error: Exception) -> None:
    """Raise ConfigError if an actor died because its class could not be imported."""
    if "creation task" in str(error):
        raise ConfigError(
            f"{where}: cannot import maskpolicy: install the same version on all nodes"
        )
