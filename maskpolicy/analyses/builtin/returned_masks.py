"""Scores over the share of masks that the encoder sees."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from maskpolicy import Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses import over_runs
from maskpolicy.analyses.plots import Lines, Series
from maskpolicy.analyses.representations.probes import Accuracy, accuracies
from maskpolicy.core import keys
from maskpolicy.experiment.definition import ENCODER
from maskpolicy.experiment.policy_blocks import apart
from maskpolicy.plugins.registry import DENOISING_KEYS

COLUMNS = (
    *("run", "policy", "task", "delta", "score", "low", "high", "runs", "seeds"),
    *("p (Holm)", "detectable"),
)
_MLM, _SLOPE = "ordinary MLM", "slope"
_Place: TypeAlias = tuple[str, str, str]
"""Run, policy and task."""


@dataclass(frozen=True)
class _Scored:
    """One score of a model, in percent."""

    run: str
    policy: Json  # the block of its row
    kind: str  # of the model
    task: str  # or the probe
    stage: int  # number of the intermediate run
    score: float


@dataclass
class _Line:
    """Scores of one policy on one task by delta and intermediate run.

    `plain` has those of ordinary MLM by run.
    """

    scores: dict[float, dict[int, list[float]]] = field(default_factory=dict)
    plain: dict[int, list[float]] = field(default_factory=dict)

    @property
    def slopes(self) -> dict[int, float]:
        """The slope of the score over delta, by least squares, of each run with all deltas."""
        deltas = sorted(self.scores)
        shared = set.intersection(*map(set, self.scores.values())) if len(deltas) > 1 else ()
        means = {
            run: [statistics.fmean(self.scores[delta][run]) for delta in deltas]
            for run in sorted(shared)
        }
        return {run: statistics.linear_regression(deltas, y).slope for run, y in means.items()}


@analysis("returned-masks", heading="Scores over the share of masks put back", place=90, version=5)
@dataclass(frozen=True)
class ReturnedMasks:
    """Score over delta, the share of masks put back into the encoder (Meng et al., figure 4).

    delta is 1 - mask_exclusion. Rows that differ in nothing else form one line. An encoder's row
    with neither exclusion nor the shallow decoder is ordinary MLM and has no delta. `score` is the
    mean over intermediate runs of the mean over the seeds of each, and `low` and `high` bound
    Student's 95% interval over runs. The slope over delta is that of each run by least squares; its
    mean over runs is tested, all lines as one family. `probes=true` adds the accuracies of `analyze
    probe` to the tasks.
    """

    probes: bool = False

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Return the scores of each line in order of delta, and its slope."""
        scored = list(_scores(runs))
        notes: list[str] = []
        if self.probes:
            found, notes = accuracies(runs, store)
            scored += _probed(found)
        lines = _lines(scored, runs)
        slopes = {place: line.slopes for place, line in lines.items() if line.slopes}
        tests = over_runs.tested({place: [*known.values()] for place, known in slopes.items()})
        rows: list[Json] = []
        for place, line in lines.items():
            rows += _rows(place, line, slopes.get(place, {}), tests.get(place, {}))
        notes += [] if lines else ["no rows differ in mask_exclusion or shallow_decoder alone"]
        several = len({run for run, _, _ in lines}) > 1
        return Findings(
            COLUMNS if several else COLUMNS[1:],
            tuple(rows),
            tuple(notes),
            tuple(_panels(rows, several)),
            partial=self.probes and bool(notes),
            values=tuple(_values(slopes)),
        )


def _scores(runs: Sequence[Run]) -> Iterator[_Scored]:
    """Yield the score of every cell of rows with an intermediate stage."""
    for run in runs:
        for result in run.results:
            config = result.config
            if "mask_exclusion" in config["policy"] and result.percent is not None:
                kind, stage = config["model"].get("kind", ""), config.get("intermediate_seed", 0)
                yield _Scored(run.name, config["policy"], kind, result.task, stage, result.percent)


def _probed(found: Sequence[Accuracy]) -> Iterator[_Scored]:
    """Yield the accuracies of the last layer at the end of each intermediate stage."""
    for each in found:
        model, config = each.model, each.model.result.config
        if each.is_last and not model.kept_at and "mask_exclusion" in config["policy"]:
            task, kind = f"probe {each.probe}", config["model"].get("kind", "")
            yield _Scored(model.run.name, config["policy"], kind, task, model.stage, each.percent)


def _lines(scored: Sequence[_Scored], runs: Sequence[Run]) -> dict[_Place, _Line]:
    """Return the lines of two points or more by run, policy and task, in the order of scores."""
    names = {run.name: _names(run.results) for run in runs}
    lines: dict[_Place, _Line] = {}
    for one in scored:
        name = names[one.run][_identity(one.policy)]
        line = lines.setdefault((one.run, name, one.task), _Line())
        deep = one.policy["mask_exclusion"] > 0 or one.policy.get("shallow_decoder")
        if one.kind == ENCODER and not deep:
            line.plain.setdefault(one.stage, []).append(one.score)
        else:
            delta = round(1 - one.policy["mask_exclusion"], 9)
            line.scores.setdefault(delta, {}).setdefault(one.stage, []).append(one.score)
    return {place: line for place, line in lines.items() if len(line.scores) + bool(line.plain) > 1}


def _rows(
    place: _Place, line: _Line, slopes: Mapping[int, float], test: Mapping[str, Json]
) -> Iterator[Json]:
    """Yield a row for each delta, for ordinary MLM, and for the slope."""
    head = dict(zip(("run", "policy", "task"), place, strict=True))
    for delta, by_run in sorted(line.scores.items()):
        yield {**head, "delta": delta, **_summary(by_run)}
    if line.plain:
        yield {**head, "delta": _MLM, **_summary(line.plain)}
    if len(slopes) > 1:
        found = over_runs.mean("score", slopes.values())
        yield {**head, "delta": _SLOPE, **found, "runs": len(slopes), **test}


def _values(slopes: Mapping[_Place, Mapping[int, float]]) -> Iterator[Json]:
    for (run, policy, task), known in slopes.items():
        about = {"run": run, "policy": policy, "task": task, "measure": "slope over delta"}
        yield from ({**about, "stage": stage, "value": slope} for stage, slope in known.items())


def _names(results: Sequence[Result]) -> dict[str, str]:
    """Return the name of each line: its policy, and the settings in which the others differ."""
    blocks = {
        _identity(policy): _unmoved(policy)
        for policy in (result.config["policy"] for result in results)
        if "mask_exclusion" in policy
    }
    return {
        identity: apart(
            block["name"],
            block,
            [other for other in blocks.values() if other["name"] == block["name"]],
        )
        for identity, block in blocks.items()
    }


def _identity(policy: Json) -> str:
    return keys.canonical(_unmoved(policy))


def _unmoved(policy: Json) -> dict[str, Json]:
    """Return a policy's block without the settings that vary along the line."""
    moving = {"mask_exclusion", "shallow_decoder"} & set(DENOISING_KEYS)
    return {key: value for key, value in policy.items() if key not in moving}


def _summary(by_run: Mapping[int, Sequence[float]]) -> dict[str, Json]:
    """Return the columns of scores: the mean over runs of the mean over the seeds of each."""
    found = over_runs.mean("score", map(statistics.fmean, by_run.values()))
    return {**found, "runs": len(by_run), "seeds": sum(map(len, by_run.values()))}


def _panels(rows: Sequence[Json], several: bool) -> list[Lines]:
    """Return a panel for each task; ordinary MLM is a horizontal line."""
    panels = []
    for task in dict.fromkeys(row["task"] for row in rows):
        series: list[Series] = []
        here = [row for row in rows if row["task"] == task]
        for name in dict.fromkeys((row["run"], row["policy"]) for row in here):
            mine = [row for row in here if (row["run"], row["policy"]) == name]
            label = f"{name[1]} ({name[0]})" if several else name[1]
            line = [row for row in mine if row["delta"] not in (_MLM, _SLOPE)]
            plain = [row for row in mine if row["delta"] == _MLM] * 2
            places = [row["delta"] for row in line]
            if line:
                series.append(over_runs.series(label, line, "score", places))
            if plain:
                series.append(over_runs.series(f"{label}, {_MLM}", plain, "score", [0.0, 1.0]))
        title = "share of masks put back into the encoder (delta)"
        panels.append(Lines(task, title, "score (%)", series))
    return panels
