"""Linear probes of frozen encoders, and scores over the share of masks that they see."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from maskpolicy import Count, Findings, Json, Run, Seed, Store, analysis
from maskpolicy.analyses import over_runs
from maskpolicy.analyses.plots import Bars, Lines, Plot
from maskpolicy.analyses.representations.probes import Accuracy, accuracies
from maskpolicy.core import keys
from maskpolicy.experiment.definition import ENCODER, untuned
from maskpolicy.experiment.policy_blocks import apart

_PROBE_COLUMNS = (
    *("run", "policy", "steps", "probe", "layer", "accuracy", "low", "high", "runs", "floor"),
    *("classes", "tokens", "difference", "difference low", "difference high"),
    *("p (Holm)", "detectable"),
)
_ProbePlace: TypeAlias = tuple[str, str, int, str, int]
"""Run, row, steps, probe and layer."""


@analysis("probe", heading="What linear probes read from the frozen encoder", place=110, version=3)
@dataclass(frozen=True)
class Probe:
    """Accuracy of linear probes on the frozen encoder, over intermediate runs.

    Four probes predict from the states of single tokens of the world's entries, without masks.
    `name` predicts the person from a token of the name, which many people share;
    `person` predicts the person from the words of the sentence that states a fact; `relation`
    predicts the stated relation from the name; `value` predicts the stated value from all words.
    The tokens of the value itself are never read. Facts (`name`, `person`) or people of test are
    not in train. The classifier is linear discriminant analysis in float64, with a shrinkage chosen
    on dev; `floor` always guesses the most frequent class. Layer 0 is the input layer. `low` and
    `high` bound Student's 95% interval over intermediate runs. Rows are paired with the baseline by
    run, and tested at the end of their stage, in the last layer, as one family.
    """

    layers: Literal["last", "all"] = "last"
    people: Count = 300  # at most so many people's entries are read
    seed: Seed = 0  # of the parts train, dev and test

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Probe the models of every row and their checkpoints."""
        found, notes = accuracies(runs, store, self.people, self.seed)
        shown = [each for each in found if self.layers == "all" or each.is_last]
        groups: dict[_ProbePlace, list[Accuracy]] = defaultdict(list)
        for each in shown:
            model = each.model
            place = model.run.name, model.policy, model.steps, each.probe, each.layer
            groups[place].append(each)
        differences = _differences(shown, runs)
        rows, ended = [], []
        for place, group in groups.items():
            by_run = {each.model.stage: each.percent for each in group}
            row: dict[str, Json] = dict(zip(_PROBE_COLUMNS, place, strict=False))
            row |= {**over_runs.mean("accuracy", by_run.values()), "runs": len(by_run)}
            row |= {"floor": 100 * statistics.fmean(each.found.floor for each in group)}
            row |= {"classes": group[0].found.classes, "tokens": group[0].found.tokens}
            if not group[0].model.kept_at:
                row |= differences.get((*place[:2], *place[3:]), {})
                ended.append(row)
            rows.append(row)
        several = len(runs) > 1
        panels: Iterable[Plot] = _bars(ended, several) if ended else ()
        if self.layers == "all":
            panels = over_runs.panels(ended, "probe", "layer", "layer", "accuracy", several)
        values = map(_value, shown)
        partial = bool(notes)
        notes += over_runs.without_baseline(runs)
        return Findings.of_runs(
            runs, _PROBE_COLUMNS, rows, notes, panels, values=values, partial=partial
        )


def _value(found: Accuracy) -> dict[str, Json]:
    model = found.model
    about = {"run": model.run.name, "policy": model.policy, "stage": model.stage}
    where = {"steps": model.steps, "probe": found.probe, "layer": found.layer}
    return {**about, **where, "value": found.percent}


def _differences(
    found: Sequence[Accuracy], runs: Sequence[Run]
) -> dict[tuple[str, str, str, int], dict[str, Json]]:
    """Return the columns of each row's difference to the baseline, by run, row, probe and layer.

    The accuracies are from the last layer at the end of both stages.
    """
    numbers: dict[tuple[str, str, str, int], dict[int, float]] = defaultdict(dict)
    for each in found:
        model = each.model
        if each.is_last and model.has_stage and not model.kept_at:
            place = model.run.name, model.policy, each.probe, each.layer
            numbers[place][model.stage] = each.percent
    return over_runs.differences(numbers, runs)


def _bars(rows: Sequence[Mapping[str, Json]], several: bool) -> Iterator[Bars]:
    """Yield a panel of the accuracies of each row."""
    by_place = {(row["probe"], over_runs.label(row, several)): row for row in rows}
    probes, names = (list(dict.fromkeys(each)) for each in zip(*by_place, strict=True))
    unknown: dict[str, Json] = dict.fromkeys(("accuracy", "low", "high"))
    bars = {probe: [by_place.get((probe, name), unknown) for name in names] for probe in probes}
    series = [over_runs.series(probe, of_probe, "accuracy") for probe, of_probe in bars.items()]
    yield Bars("", "accuracy in the last layer (%)", names, series)


_MASKS_COLUMNS = (
    *("run", "policy", "task", "delta", "score", "low", "high", "runs", "seeds"),
    *("p (Holm)", "detectable"),
)
_MLM, _SLOPE = "ordinary MLM", "slope"
_LinePlace: TypeAlias = tuple[str, str, str]
"""Run, policy and task."""
_Scored: TypeAlias = tuple[str, Json, str, int, float]
"""Run, a cell's config, its task or a probe, number of the intermediate run, score in percent."""


@dataclass
class _Line:
    """Scores of one policy on one task by delta and intermediate run.

    `plain` has the scores of ordinary MLM by run.
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


@analysis("returned-masks", heading="Scores over the share of masks put back", place=90, version=7)
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
        scored: list[_Scored] = [
            (run.name, one.config, one.task, one.config.get("intermediate_seed", 0), one.percent)
            for run in runs
            for one in run.results
            if one.percent is not None
        ]
        notes: list[str] = []
        if self.probes:
            found, notes = accuracies(runs, store)
            scored += [
                (at.run.name, at.result.config, f"probe {one.probe}", at.stage, one.percent)
                for one in found
                if one.is_last and not (at := one.model).kept_at
            ]
        lines = _lines([each for each in scored if "mask_exclusion" in each[1]["policy"]])
        slopes = {place: line.slopes for place, line in lines.items() if line.slopes}
        tests = over_runs.tested({place: [*known.values()] for place, known in slopes.items()})
        rows: list[Json] = []
        values: list[Json] = []
        for place, line in lines.items():
            known = slopes.get(place, {})
            rows += _rows(place, line, known, tests.get(place, {}))
            about = {**_head(place), "measure": "slope over delta"}
            values += [{**about, "stage": run, "value": slope} for run, slope in known.items()]
        notes += [] if lines else ["no rows differ in mask_exclusion or shallow_decoder alone"]
        named = {run for run, _, _ in lines}
        panels = _panels_over_delta(rows, len(named) > 1)
        partial = self.probes and bool(notes)
        return Findings.of_runs(
            named, _MASKS_COLUMNS, rows, notes, panels, values=values, partial=partial
        )


def _lines(scored: Sequence[_Scored]) -> dict[_LinePlace, _Line]:
    """Return the lines of two points or more by run, policy and task, in the order of scores.

    A line is named by its policy, and the settings in which the others of its run differ.
    """
    blocks: dict[str, dict[str, Json]] = defaultdict(dict)  # by run and identity
    for run, config, *_ in scored:
        block = _unmoved(config)
        blocks[run][keys.canonical(block)] = block
    lines: dict[_LinePlace, _Line] = defaultdict(_Line)
    for run, config, task, stage, score in scored:
        policy, block = config["policy"], _unmoved(config)
        alike = [other for other in blocks[run].values() if other["name"] == block["name"]]
        line = lines[run, apart(block["name"], block, alike), task]
        deep = policy["mask_exclusion"] > 0 or policy.get("shallow_decoder")
        if config["model"].get("kind") == ENCODER and not deep:
            line.plain.setdefault(stage, []).append(score)
        else:
            delta = round(1 - policy["mask_exclusion"], 9)
            line.scores.setdefault(delta, {}).setdefault(stage, []).append(score)
    return {place: line for place, line in lines.items() if len(line.scores) + bool(line.plain) > 1}


def _head(place: _LinePlace) -> dict[str, Json]:
    return dict(zip(("run", "policy", "task"), place, strict=True))


def _rows(
    place: _LinePlace, line: _Line, slopes: Mapping[int, float], test: Mapping[str, Json]
) -> Iterator[Json]:
    """Yield a row for each delta, for ordinary MLM, and for the slope."""
    head = _head(place)
    for delta, by_run in sorted(line.scores.items()):
        yield {**head, "delta": delta, **_summary(by_run)}
    if line.plain:
        yield {**head, "delta": _MLM, **_summary(line.plain)}
    if len(slopes) > 1:
        found = over_runs.mean("score", slopes.values())
        yield {**head, "delta": _SLOPE, **found, "runs": len(slopes), **test}


def _unmoved(config: Json) -> dict[str, Json]:
    """Return a row's policy and own trainings without the settings that vary along a line."""
    row = {**untuned(config["policy"], config.get("tune", {})), **config.get("trainings", {})}
    return {key: row[key] for key in row if key not in ("mask_exclusion", "shallow_decoder")}


def _summary(by_run: Mapping[int, Sequence[float]]) -> dict[str, Json]:
    """Return the columns of scores: the mean over runs of the mean over the seeds of each."""
    found = over_runs.mean("score", map(statistics.fmean, by_run.values()))
    return {**found, "runs": len(by_run), "seeds": sum(map(len, by_run.values()))}


def _panels_over_delta(rows: Sequence[Json], several: bool) -> Iterator[Lines]:
    """Yield a panel for each task; ordinary MLM is a horizontal line."""
    drawn = []
    for row in rows:
        label = over_runs.label(row, several)
        if row["delta"] == _MLM:
            drawn += [{**row, "policy": f"{label}, {_MLM}", "delta": end} for end in (0.0, 1.0)]
        elif row["delta"] != _SLOPE:
            drawn.append({**row, "policy": label})
    axis = "share of masks put back into the encoder (delta)"
    yield from over_runs.panels(drawn, "task", "delta", axis, "score", several=False)
