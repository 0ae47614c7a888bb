"""The workers of a run on a Ray cluster: as many as there is work and room for."""

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
from maskpolicy.executors.ray_actors import Board, Said, Worker
from maskpolicy.executors.request import Request

LOCAL = "local"  # the address for a Ray of its own
_LOOK = 2.0  # seconds between two looks at the nodes
_AGAIN = 10.0  # seconds after which an idle worker looks for stages of lost workers
_BUSY = 5.0  # seconds after which a call is no mere look
_STALLED = 120.0  # seconds without a busy worker after which the driver says so
_HOPELESS = 100  # workers lost one after another, without a finished stage between


@dataclass(frozen=True)
class Session:
    """What the process is to do."""

    address: str  # LOCAL, auto, HOST:PORT or ray://HOST:PORT
    request: Request
    resources: Resources
    kinds: tuple[str, ...]  # of all stages that are not in the store
    folder: str  # the working directory of the command
    sign: str  # in the store: see `shared_store`


@dataclass
class _Hired:
    """A worker of the pool: an actor, and the call that it is at."""

    slot: Slot
    label: str
    actor: Any
    call: Any  # None: it is idle
    is_up: bool = False
    saw: int = -1  # `Left.changes` when it was last called
    when: float = field(default_factory=time.monotonic)


class Pool:
    """The workers of a run on a cluster."""

    def __init__(self, session: Session) -> None:
        self.ray: Any = import_module("ray")
        self.session = session
        self.slots = slots_of(session.resources, session.kinds, self.has_gpus())
        here = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy(
            self.ray.get_runtime_context().get_node_id(), soft=True
        )
        placed = {"num_cpus": 0, "max_restarts": -1, "scheduling_strategy": here}
        self.board = self.ray.remote(**placed)(Board).remote()
        self.hearing = self.board.hear.remote()
        self.hired: list[_Hired] = []
        self.number = 0
        self.said: list[Said] = []  # by this process
        self.lost = 0  # workers since a stage was last finished
        self.open = -1
        self.told: set[Slot] = set()  # slots that no node has room for
        self.nodes: list[Mapping[str, Any]] = []
        self.looked = -_LOOK
        self.made_room = -_LOOK
        self.moved: dict[Slot, tuple[Left, float]] = {}  # and when a slot was last busy
        self.stalled: set[Slot] = set()  # slots that have been called so

    def has_gpus(self) -> bool:
        """Return whether a node has a GPU."""
        return bool(self.ray.cluster_resources().get("GPU"))

    def tend(self, left: Sequence[Left]) -> None:
        """Settle finished calls, and give every slot as many workers as it has work and room for.

        Raises what a worker raises that no other one could do better.
        """
        self._settle(left)
        if time.monotonic() - self.looked > _LOOK:
            self.nodes, self.looked = [n for n in self.ray.nodes() if n["Alive"]], time.monotonic()
        for slot, what in zip(self.slots, left, strict=True):
            room = self._room(slot)
            if what.ready and not room and slot not in self.told:
                self.told.add(slot)
                self._say(f"no node has {slot} for {', '.join(slot.kinds)}: waiting for one")
            own = [each for each in self.hired if each.slot == slot]
            # with one slot, all of its workers get ready while the first ones compute
            wanted = what.open if len(self.slots) == 1 else what.ready
            for _ in range(min(wanted, max(1, room)) - len(own)):
                self._hire(slot)
            for each in own:
                self._call(each, what)
            self._tell_stalled(slot, what)
        self._make_room(left)

    def _settle(self, left: Sequence[Left]) -> None:
        still_open = sum(what.open for what in left)
        if still_open != self.open:
            self.open, self.lost = still_open, 0
        calls = {each.call: each for each in self.hired if each.call is not None}
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
                each.call, each.is_up = None, True

    def _raise(self, each: _Hired, error: Any) -> None:
        """Raise the error of a worker, in one line."""
        inner = error.cause if isinstance(error.cause, MaskpolicyError) else None
        line = f"{each.label}: {cause(inner or error.cause or error)}"
        if not each.is_up:  # it has other files, another version, or fewer packages
            raise ConfigError(
                f"{line} (all nodes need the same version of maskpolicy, and the experiment, its "
                "plugins and its data under the same paths)"
            )
        raise type(inner)(line) if inner else StageError(line)

    def _lose(self, each: _Hired, error: Any) -> None:
        """Forget a worker that has died; others take over what it was at."""
        self.hired.remove(each)
        self.lost += 1
        if not each.is_up and "creation task" in str(error):
            raise ConfigError(
                f"{each.label}: cannot import maskpolicy: install the same version on all nodes"
            )
        self._say(f"{each.label} was lost: another one takes over what it was at")
        if self.lost == _HOPELESS:
            raise StageError(
                f"{_HOPELESS} workers were lost one after another without finishing a stage: look "
                "for the reason in Ray's logs, e.g. too little memory for each worker"
            )

    def _hire(self, slot: Slot) -> None:
        """Start a worker, which prepares itself."""
        self.number += 1
        label = f"worker {self.number}"
        takes = {"num_cpus": slot.cpus, "num_gpus": slot.gpus, "max_restarts": 0}
        actor = self.ray.remote(**takes)(Worker).remote(label, self.board)
        session = self.session
        threads = session.request.threads or slot.cpus
        request = replace(session.request, kinds=slot.kinds, threads=threads)
        call = actor.prepare.remote(request, session.folder, session.sign)
        self.hired.append(_Hired(slot, label, actor, call))

    def _call(self, each: _Hired, what: Left) -> None:
        """Let an idle worker look for stages, if one became ready or another worker was lost."""
        if each.call is None and what.open:
            waited = time.monotonic() - each.when
            if each.saw != what.changes or waited > _AGAIN:
                each.saw, each.when = what.changes, time.monotonic()
                each.call = each.actor.compute.remote()

    def _room(self, slot: Slot) -> int:
        """Return how many workers of a slot the cluster could hold without any others."""
        room = 0
        for node in self.nodes:
            has = node["Resources"]
            fits = [has.get("CPU", 0) // slot.cpus]
            fits += [has.get("GPU", 0) // slot.gpus] if slot.gpus else []
            room += int(min(fits))
        return room

    def _make_room(self, left: Sequence[Left]) -> None:
        """End an idle worker that its slot can spare, if those of another slot wait for room.

        Stages that are computed are ready too, so a slot can spare what exceeds its ready stages.
        """
        if time.monotonic() - self.made_room < _LOOK:  # the last room may be taken still
            return
        waiting = {each.slot for each in self.hired if not each.is_up}
        ready = {slot: what.ready for slot, what in zip(self.slots, left, strict=True)}
        short = {slot for slot in waiting if ready[slot]}
        for slot in self.slots:
            own = [each for each in self.hired if each.slot == slot and each.is_up]
            idle = [each for each in own if each.call is None]
            if idle and len(own) > ready[slot] and short - {slot}:
                self.hired.remove(idle[0])
                self.ray.kill(idle[0].actor)
                self.made_room = time.monotonic()
                return

    def _tell_stalled(self, slot: Slot, what: Left) -> None:
        """Say so once if nobody computes stages of a slot that are ready."""
        own = [each for each in self.hired if each.slot == slot]
        now = time.monotonic()
        busy = any(each.is_up and each.call is not None and now - each.when > _BUSY for each in own)
        before, since = self.moved.get(slot, (None, now))
        if busy or not what.ready or what != before:
            self.moved[slot] = what, now
            self.stalled.discard(slot)
        elif now - since > _STALLED and slot not in self.stalled:
            self.stalled.add(slot)
            are_up = any(each.is_up for each in own)
            reason = (
                "other processes hold them (`maskpolicy status` names these)"
                if are_up
                else f"no node has {slot} free, or workers do not start: see Ray's logs"
            )
            kinds = ", ".join(slot.kinds)
            self._say(
                f"stages of {kinds} are ready ({what.ready}), and no worker has been at one for "
                f"{_STALLED:.0f} s: {reason}"
            )

    def heard(self) -> list[Said]:
        """Return what there is to log since the last call."""
        messages, self.said = self.said, []
        if self.ray.wait([self.hearing], timeout=0)[0]:
            with suppress(self.ray.exceptions.RayActorError):  # its node died: it starts elsewhere
                messages += self.ray.get(self.hearing)
            self.hearing = self.board.hear.remote()
        return messages

    def _say(self, line: str) -> None:
        self.said.append((__name__, logging.WARNING, line))

    def end(self) -> None:
        """End all workers."""
        for each in self.hired:
            with suppress(Exception):
                self.ray.kill(each.actor)
