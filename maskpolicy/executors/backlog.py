"""The stages that are left for each kind of worker; engines start workers by their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from maskpolicy.config.budgets import TRAININGS, Training, resolve_auto
from maskpolicy.config.experiment import Experiment
from maskpolicy.config.resources import Resources
from maskpolicy.graph import picking
from maskpolicy.graph.nodes import Stage, users_of
from maskpolicy.graph.outcomes import Outcome, Progress


@dataclass(frozen=True)
class Slot:
    """A kind of worker: what it takes of a machine, and the kinds of stages that it computes."""

    gpus: int
    cpus: int
    kinds: tuple[str, ...]

    def __str__(self) -> str:
        """Return the slot in words for a message."""
        gpus = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''} and " if self.gpus else ""
        return f"{gpus}{self.cpus} core{'s' if self.cpus > 1 else ''}"


def slots_of(resources: Resources, kinds: Iterable[str], gpus: bool) -> list[Slot]:
    """Return the slots for stages of `kinds`; `gpus`: whether the machines have GPUs."""
    found: dict[tuple[int, int], list[str]] = {}
    for kind in sorted(set(kinds)):
        need = resources.of(kind)
        found.setdefault((resources.gpus(kind, gpus), need.cpus * need.members), []).append(kind)
    return [Slot(*takes, tuple(members)) for takes, members in sorted(found.items(), reverse=True)]


@dataclass(frozen=True)
class Left:
    """The stages of one slot that have no outcome."""

    open: int = 0
    ready: int = 0  # those whose inputs are settled, so that a worker computes them or can
    changes: int = 0  # grows whenever a stage becomes ready


class Backlog:
    """A `Progress` that counts the stages that are left, and passes all reports on."""

    def __init__(self, order: Sequence[Stage], inner: Progress) -> None:
        """Start with all stages open."""
        self._inner = inner
        self._users = users_of(order)
        self._open = {stage.key: stage for stage in order}
        self._waits = {
            stage.key: len({needed.key for needed in stage.inputs.values()}) for stage in order
        }
        for choice, among in picking.options_of(order).items():
            for option in among:  # it does not begin before it is chosen
                self._users[choice].append(option)
                self._waits[option.key] += 1
        self._left: dict[str, Left] = {}
        for stage in order:
            self._count(stage, 1, ready=0 if self._waits[stage.key] else 1)

    def start(self, stage: Stage) -> None:
        """Pass a report on."""
        self._inner.start(stage)

    def wait(self, stage: Stage) -> None:
        """Pass a report on."""
        self._inner.wait(stage)

    def advance(self, done: int, total: int, note: str) -> None:
        """Pass a report on."""
        self._inner.advance(done, total, note)

    def elsewhere(self, stage: Stage, done: int, total: int, note: str) -> None:
        """Pass a report on."""
        self._inner.elsewhere(stage, done, total, note)

    def finish(self, stage: Stage, outcome: Outcome) -> None:
        """Count a stage as settled, and its users as ready if it was their last open input."""
        self._inner.finish(stage, outcome)
        if self._open.pop(stage.key, None) is None:
            return
        self._count(stage, -1, ready=0 if self._waits[stage.key] else -1)
        for user in self._users[stage.key]:
            self._waits[user.key] -= 1
            if not self._waits[user.key] and user.key in self._open:
                self._count(user, 0, ready=1)

    def left(self, slots: Iterable[Slot]) -> tuple[Left, ...]:
        """Return the counts of the stages that are left, for each slot."""
        return tuple(self._of(slot.kinds) for slot in slots)

    def kinds(self) -> set[str]:
        """Return the kinds of the stages that are left."""
        return {kind for kind, left in self._left.items() if left.open}

    def _of(self, kinds: Iterable[str]) -> Left:
        known = [self._left[kind] for kind in kinds if kind in self._left]
        return Left(*(sum(getattr(each, name) for each in known) for name in vars(Left())))

    def _count(self, stage: Stage, opened: int, ready: int) -> None:
        left = self._left.get(stage.kind, Left())
        self._left[stage.kind] = replace(
            left,
            open=left.open + opened,
            ready=left.ready + ready,
            changes=left.changes + max(0, ready),
        )


def pinned_keys(experiment: Experiment) -> tuple[str, ...]:
    """Return KEY=VALUE overrides for the settings on "auto", with the values of this machine.

    The keys of stages hold these settings, so workers on other hardware need the same values.
    """
    words = []
    for name in TRAININGS:
        spec: Training = getattr(experiment, name)
        settled: Mapping[str, object] = vars(resolve_auto(spec))
        for key, value in vars(spec).items():
            if settled[key] != value:
                words.append(f"{name}.{key}={settled[key]}")
    return tuple(words)
