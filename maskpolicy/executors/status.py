"""The status of an experiment: stages done, under way, failed and left, and the time left.

All of it is read from the store, so it does not matter which workers compute, and where.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from maskpolicy.executors.request import plan_digest
from maskpolicy.executors.stage_worker import Planned
from maskpolicy.graph.costs import Costs, known_costs, time_left
from maskpolicy.graph.nodes import Stage, users_of
from maskpolicy.graph.planning import lacking, undecided
from maskpolicy.graph.shared_notes import noted_failure, noted_progress
from maskpolicy.store.artifacts import Store
from maskpolicy.store.holders import Holder


@dataclass(frozen=True)
class UnderWay:
    """A stage that a process computes; the times are by that process's clock."""

    stage: str
    host: str
    pid: int
    since: str
    done: int | None  # units, e.g. steps; None: unknown
    total: int | None
    note: str
    silent: str | None = None  # no heartbeat since then, by the store's clock; None: it has one


@dataclass(frozen=True)
class Failed:
    """A stage that failed; workers try it again only if they are asked to."""

    stage: str
    error: str
    host: str
    time: str


@dataclass(frozen=True)
class Status:
    """The state of an experiment's stages."""

    plan: str  # its digest
    done: int  # in the store, or not needed any more
    under_way: tuple[UnderWay, ...]
    failed: tuple[Failed, ...]
    blocked: int  # stages that depend on a failed one
    left: int  # all others
    seconds: float | None  # estimate of the time left; None: unknown
    measured: int  # finished stages whose times the estimate uses
    unknown: tuple[str, ...]  # kinds of stages without a finished one to estimate from


def status_of(planned: Planned) -> Status:
    """Return the status of an experiment; writes nothing, and reads no files of artifacts."""
    store, order = planned.store, planned.order
    missing = lacking(planned.targets, store, store.committed().__contains__)
    perhaps = undecided(order, missing, store)  # one of each set of candidates is computed
    failures = store.failures.keys() & missing
    failed = {stage.key: stage for stage in order if stage.key in failures}
    failed = {key: one for key, one in failed.items() if noted_failure(store, one) is not None}
    blocked = _dependents(failed, order) & missing - failed.keys()
    claimed = store.claimed() & missing - failed.keys()
    holders = {key: holder for key in claimed if (holder := store.holder(key)) is not None}
    busy = {stage: holders[stage.key] for stage in order if stage.key in holders}
    silent = {stage: _silent(store, stage, holder) for stage, holder in busy.items()}
    alive = {stage: holder for stage, holder in busy.items() if silent[stage] is None}
    rest = [stage for stage in order if stage.key in missing - failed.keys() - blocked]
    costs = known_costs(order, missing, store)
    unknown = costs.unknown(rest)
    return Status(
        plan=plan_digest(order),
        done=len(order) - len(missing) - len(perhaps),
        under_way=tuple(
            _under_way(stage, holder, silent[stage], store) for stage, holder in busy.items()
        ),
        failed=tuple(_failed(stage, store) for stage in failed.values()),
        blocked=len(blocked),
        left=len(rest) - len(busy),
        seconds=None if unknown else _seconds_left(rest, users_of(order), alive, costs, store),
        measured=costs.measured(rest),
        unknown=tuple(sorted(unknown)),
    )


def _dependents(failed: Collection[str], order: list[Stage]) -> set[str]:
    """Return the keys of the failed stages and of all that depend on them, at any depth."""
    found = set(failed)
    for stage in order:  # inputs come before their users
        if any(needed.key in found for needed in stage.inputs.values()):
            found.add(stage.key)
    return found


def _silent(store: Store, stage: Stage, holder: Holder) -> str | None:
    """Return the time of a claim's last refresh if its lease has passed since, or None.

    The time is by the store's clock and compared with this machine's: it is for people only.
    """
    refreshed = store.last_refresh(stage.key)
    if refreshed is None or (datetime.now(UTC) - refreshed).total_seconds() < holder.lease:
        return None
    return refreshed.isoformat(timespec="seconds")


def _under_way(stage: Stage, holder: Holder, silent: str | None, store: Store) -> UnderWay:
    done, total, note = noted_progress(store, stage, holder) or (None, None, "")
    since = holder.since.isoformat(timespec="seconds")
    return UnderWay(
        stage=stage.name,
        host=holder.host,
        pid=holder.pid,
        since=since,
        done=done,
        total=total or None,
        note=note,
        silent=silent,
    )


def _failed(stage: Stage, store: Store) -> Failed:
    note = store.failures.read(stage.key) or {}
    return Failed(stage.name, *(str(note.get(name, "")) for name in ("error", "host", "time")))


def _seconds_left(
    rest: list[Stage],
    users: Mapping[str, list[Stage]],
    busy: Mapping[Stage, Holder],
    costs: Costs,
    store: Store,
) -> float:
    """Return an estimate of the seconds until all stages of `rest` are computed.

    As many workers as compute now (at least one) share them.
    """
    typical = ((stage.key, costs.of(stage)) for stage in rest)
    needs = {key: cost.seconds for key, cost in typical if cost is not None}
    now = datetime.now(UTC)
    for stage, holder in busy.items():
        spent = max(0.0, (now - holder.since).total_seconds())
        done, total, _ = noted_progress(store, stage, holder) or (0, 0, "")
        whole = spent * total / done if done and total else needs[stage.key]
        needs[stage.key] = max(0.0, whole - spent)
    return time_left(rest, needs, users, len(busy))
