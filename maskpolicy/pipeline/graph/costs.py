"""What stages cost in seconds and bytes, estimated from finished stages of the same kind."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from maskpolicy.core.types import Json
from maskpolicy.pipeline.graph.nodes import Stage, users_of
from maskpolicy.pipeline.store.artifacts import Store

_SAMPLE = 20  # the most finished stages of a kind that an estimate uses


@dataclass(frozen=True)
class Cost:
    """The cost of a stage."""

    seconds: float
    size: int  # bytes of its artifact


class Costs:
    """The mean costs of finished stages, by kind; those of a training are per passage."""

    def __init__(self) -> None:
        """Start without any stage."""
        # the newest of each kind, with the seconds of one unit of work
        self._known: dict[str, deque[Cost]] = defaultdict(lambda: deque(maxlen=_SAMPLE))
        self.foreign: set[str] = set()  # kinds learned from stages outside of this plan
        self.of_others: set[str] = set()  # those of other experiments
        self.rests: dict[str, float] = {}  # of resumed trainings: the share that is left, by key

    def learn(self, kind: str, params: Json, seconds: float, size: int = 0) -> None:
        """Add a finished stage of this experiment, instead of those of other experiments."""
        if kind in self.foreign:
            self.foreign.remove(kind)
            size = size or round(mean(each.size for each in self._known.pop(kind)))
        self._known[kind].append(Cost(seconds / _work(kind, params), size))

    def learn_manifest(self, known: Json) -> None:
        """Add the finished stage of a manifest."""
        record, size = known["record"], sum(entry["size"] for entry in known["files"])
        self.learn(record["kind"], record.get("params"), float(known["seconds"]), size)

    def of(self, stage: Stage) -> Cost | None:
        """Return the estimated cost of a stage; None without a finished one of its kind."""
        known = tuple(self._known.get(stage.kind, ()))  # another thread may add one meanwhile
        if not known:
            return None
        seconds = mean(each.seconds for each in known) * _work(stage.kind, stage.keyed)
        seconds *= self.rests.get(stage.key, 1.0)
        return Cost(seconds, round(mean(each.size for each in known)))

    def unknown(self, stages: Iterable[Stage]) -> set[str]:
        """Return the kinds of these stages without a finished one."""
        return {stage.kind for stage in stages if not self._known.get(stage.kind)}

    def measured(self, stages: Iterable[Stage]) -> int:
        """Return the number of finished stages that the estimates of these stages use."""
        return sum(len(self._known.get(kind, ())) for kind in {stage.kind for stage in stages})


def _work(kind: str, params: Json) -> float:
    """Return the number of passages or examples that a training reads, and 1 for other stages."""
    spec = params.get("spec") if isinstance(params, Mapping) else None
    if not isinstance(spec, Mapping) or kind == "evaluate":  # its budget is that of fine-tuning
        return 1.0
    return float(_steps(params)) * float(spec.get("passages") or 1)  # batch_size in keys


def _steps(params: Json) -> int:
    return int((params.get("until") or params["spec"].get("steps") or 1) - params.get("first", 0))


def on_their_own(stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages without those that the training of another one leaves as by-products."""
    left = {byproduct.key for stage in stages for byproduct in stage.byproducts.values()}
    return [stage for stage in stages if stage.key not in left]


def known_costs(
    order: Sequence[Stage],
    missing: Collection[str],
    store: Store,
    *,
    elsewhere: Callable[[], Iterable[Json]],
) -> Costs:
    """Return the costs of the kinds of the `missing` stages.

    They are learned from finished stages of `order`, including dropped ones. If there are none of a
    kind, they are learned from manifests of the store, which `elsewhere` returns: those of the same
    experiment, or else those of all. By-products took no time of their own.
    """
    costs = Costs()
    rest = [stage for stage in order if stage.key in missing]
    room = {stage.kind: _SAMPLE for stage in rest}
    for stage in rest:
        is_training = _work(stage.kind, stage.keyed) != 1.0
        if is_training and (steps := store.checkpoints(stage.key).steps()):
            done = (steps[-1] - stage.keyed.get("first", 0)) / _steps(stage.keyed)
            costs.rests[stage.key] = min(1.0, max(0.0, 1.0 - done))
    for stage in on_their_own(order):
        wanted = stage.key not in missing and room.get(stage.kind)
        if wanted and (known := store.recall(stage.key)) is not None:
            room[stage.kind] -= 1
            costs.learn_manifest(known)
    lacking = costs.unknown(rest)
    found: dict[tuple[str, bool], list[Json]] = defaultdict(list)
    names = {stage.experiment for stage in rest}
    for known in elsewhere() if lacking else ():
        record = known["record"]
        if record.get("kind") == "intermediate" and "until" in record.get("params", ()):
            continue  # perhaps a by-product
        is_own = (record.get("logical") or {}).get("experiment") in names
        found[record.get("kind"), is_own].append(known)
    for kind in lacking:
        for known in sorted(found[kind, True] or found[kind, False], key=lambda m: m["committed"]):
            costs.learn_manifest(known)
    costs.foreign = lacking - costs.unknown(rest)
    costs.of_others = {kind for kind in costs.foreign if not found[kind, True]}
    return costs


def time_left(
    rest: Sequence[Stage],
    needs: Mapping[str, float],
    users: Mapping[str, Sequence[Stage]],
    workers: int,
) -> float:
    """Return the seconds until some workers have computed `rest`, which is in topological order.

    `needs` has the seconds of each stage; by-products take none. The result is their sum divided by
    the number of workers, or the time of the longest path if that is longer.
    """
    rest, paths = on_their_own(rest), defaultdict[str, float](float)
    for stage in reversed(rest):
        after = max((paths[user.key] for user in users[stage.key]), default=0.0)
        paths[stage.key] = needs[stage.key] + after
    return max(sum(needs[stage.key] for stage in rest) / max(1, workers), *paths.values(), 0.0)


@dataclass(frozen=True)
class Expected:
    """What some stages will take, as far as this is known."""

    seconds: float  # with `workers` stages at a time
    work: float  # seconds with one stage at a time
    workers: int
    written: int  # bytes of all artifacts
    kept: int  # bytes of the artifacts that are not dropped after use
    measured: int  # finished stages that these estimates use
    of_others: tuple[str, ...]  # kinds whose finished stages are of other experiments
    unknown: tuple[str, ...]  # kinds without a finished stage, which are left out


def expected(rest: Sequence[Stage], costs: Costs, workers: int) -> Expected:
    """Return what the stages of `rest`, in topological order, will take."""
    known = {stage.key: costs.of(stage) or Cost(0.0, 0) for stage in rest}
    needs = {key: cost.seconds for key, cost in known.items()}
    return Expected(
        seconds=time_left(rest, needs, users_of(rest), workers),
        work=sum(needs[stage.key] for stage in on_their_own(rest)),
        workers=workers,
        written=sum(cost.size for cost in known.values()),
        kept=sum(known[stage.key].size for stage in rest if not stage.transient),
        measured=costs.measured(rest),
        of_others=tuple(sorted(costs.of_others)),
        unknown=tuple(sorted(costs.unknown(rest))),
    )
