"""The status of an experiment, from the store's manifests and the events of the plan's last run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from maskpolicy.core.types import Json
from maskpolicy.pipeline.graph import planning
from maskpolicy.pipeline.graph.costs import known_costs, time_left
from maskpolicy.pipeline.graph.events import plan_digest, read_events
from maskpolicy.pipeline.graph.nodes import Stage, users_of
from maskpolicy.pipeline.graph.planning import undecided
from maskpolicy.pipeline.store.artifacts import Store

_UNDER_WAY = ("stage", "host", "pid", "done", "note")  # of an event, besides since and total
_FAILED = ("stage", "error", "host", "time")


@dataclass(frozen=True)
class Status:
    """The state of an experiment's stages."""

    plan: str  # its digest
    is_running: bool  # whether a command computes it
    done: int  # in the store, or no longer needed
    # stages that a run computes: host and pid are the command's, since is by its host's clock, and
    # done and total are units, e.g. steps; total null: unknown
    under_way: tuple[Mapping[str, Json], ...]
    failed: tuple[Mapping[str, Json], ...]  # in the last run; the next one tries these again
    blocked: int  # stages that depend on a failed one
    left: int  # all others
    seconds: float | None  # estimate of the time left; None: unknown
    measured: int  # finished stages whose times the estimate uses
    unknown: tuple[str, ...]  # kinds of stages without a finished one to estimate from


def status_of(order: Sequence[Stage], targets: Sequence[Stage], store: Store) -> Status:
    """Return the status of an experiment; writes nothing, and reads no files of artifacts."""
    plan = plan_digest(order)
    missing = planning.missing(targets, store, store.committed())
    perhaps = undecided(order, missing, store)  # one of each set of candidates is computed
    lines, is_running = read_events(store.events(plan))
    latest = {line["key"]: line for line in lines if line.get("key") in missing}
    began, first = dict[str, Json](), dict[str, Json]()
    for line in lines:
        if line["what"] == "started":
            began[line["key"]] = line
            first.pop(line["key"], None)
        elif line.get("done") and first.get(line["key"], {}).get("total") != line["total"]:
            first[line["key"]] = line  # a resumed stage begins at a later step
    # a finished stage without an error, whose artifact was removed later, did not fail
    failures = {key: line for key, line in latest.items() if line.get("error") is not None}
    blocked = _dependents(failures, order) & missing - failures.keys()
    busy = {
        key: line
        for key, line in latest.items()
        if is_running and line["what"] in ("started", "advanced")
    }
    rest = [stage for stage in order if stage.key in missing - failures.keys() - blocked]
    costs = known_costs(order, missing, store, elsewhere=store.records)
    unknown = costs.unknown(rest)
    needs = {each.key: cost.seconds for each in rest if (cost := costs.of(each)) is not None}
    for key, line in busy.items():
        since = first[key] if line != first.get(key, line) else began.get(key, line)
        needs[key] = _seconds_left(line, since, needs.get(key, 0.0))
    return Status(
        plan=plan,
        is_running=is_running,
        done=len(order) - len(missing) - len(perhaps),
        under_way=tuple(
            {name: line[name] for name in _UNDER_WAY}
            | {"since": began.get(key, line)["time"], "total": line["total"] or None}
            for key, line in busy.items()
        ),
        failed=tuple({name: line[name] for name in _FAILED} for line in failures.values()),
        blocked=len(blocked),
        left=len(rest) - len(busy),
        seconds=None if unknown else time_left(rest, needs, users_of(order), len(busy)),
        measured=costs.measured(rest),
        unknown=tuple(sorted(unknown)),
    )


def _dependents(failed: Collection[str], order: Sequence[Stage]) -> set[str]:
    """Return the keys of failed stages and of all stages that depend on them."""
    keys = set(failed)
    for stage in order:  # inputs come before their users
        if any(needed.key in keys for needed in stage.inputs.values()):
            keys.add(stage.key)
    return keys


def _seconds_left(line: Mapping[str, Json], since: Mapping[str, Json], typical: float) -> float:
    """Return the seconds left of a stage, by its progress `since` or else its `typical` seconds."""
    spent = (datetime.now(UTC) - datetime.fromisoformat(since["time"])).total_seconds()
    done, rest = line["done"] - since["done"], line["total"] - since["done"]
    return max(0.0, (spent * rest / done if done and line["total"] else typical) - spent)
