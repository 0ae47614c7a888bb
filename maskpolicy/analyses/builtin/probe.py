"""Linear probes of frozen encoders: what the states of tokens tell of the entry around them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from maskpolicy import Count, Findings, Json, Run, Seed, Store, analysis
from maskpolicy.analyses import over_runs
from maskpolicy.analyses.plots import Bars, Lines
from maskpolicy.analyses.representations.probes import Accuracy, accuracies

COLUMNS = (
    *("run", "policy", "steps", "probe", "layer", "accuracy", "low", "high", "runs", "floor"),
    *("classes", "tokens", "difference", "difference low", "difference high"),
    *("p (Holm)", "detectable"),
)
_Place: TypeAlias = tuple[str, str, int, str, int]
"""Run, row, steps, probe and layer."""


@analysis("probe", heading="What linear probes read from the frozen encoder", place=110, version=2)
@dataclass(frozen=True)
class Probe:
    """Accuracy of linear probes on the frozen encoder, over intermediate runs.

    Four probes read the states of single tokens of the world's entries, without masks: `name`, whom
    the entry is about, off single tokens of the name, which many people share; `person`, the same,
    off the words of the sentence that states the fact; `relation`, which relation it states, off
    the name; `value`, which value it states, off all words. The value's own tokens are never read.
    Facts (`name`, `person`) or people of test are not in train. The classifier is
    linear discriminant analysis in float64, with a shrinkage chosen on dev; `floor` always guesses
    the most frequent class. The last layer, or all: layer 0 is the input layer. `low` and `high`
    bound Student's 95% interval over intermediate runs. Rows are paired with the baseline by run,
    and tested at the end of their stage, in the last layer, as one family.
    """

    layers: Literal["last", "all"] = "last"
    people: Count = 300  # the most whose entries are read
    seed: Seed = 0  # of the parts train, dev and test

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Probe every row's models, those kept on the way too."""
        found, notes = accuracies(runs, store, self.people, self.seed)
        shown = [each for each in found if self.layers == "all" or each.is_last]
        groups: dict[_Place, list[Accuracy]] = defaultdict(list)
        for each in shown:
            groups[_place(each)].append(each)
        differences = _differences(shown, runs)
        rows, ended = [], []
        for place, group in groups.items():
            row = _row(place, group)
            if not group[0].model.kept_at:
                run, policy, _, probe, layer = place
                row |= differences.get((run, policy, probe, layer), {})
                ended.append(row)
            rows.append(row)
        several = len(runs) > 1
        panels = _panels if self.layers == "all" else _bars
        return Findings(
            COLUMNS if several else COLUMNS[1:],
            tuple(rows),
            tuple(notes),
            tuple(panels(ended, several)),
            partial=bool(notes),
            values=tuple(_value(each) for each in shown),
        )


def _place(found: Accuracy) -> _Place:
    model = found.model
    return model.run.name, model.policy, model.steps, found.probe, found.layer


def _differences(
    found: Sequence[Accuracy], runs: Sequence[Run]
) -> dict[tuple[str, str, str, int], dict[str, Json]]:
    """Return each row's columns about its difference to the baseline, by run, row, probe and layer.

    The accuracies are those of the last layer at the end of both stages.
    """
    numbers: dict[tuple[str, str, str, int], dict[int, float]] = defaultdict(dict)
    for each in found:
        model = each.model
        if each.is_last and model.has_stage and not model.kept_at:
            place = model.run.name, model.policy, each.probe, each.layer
            numbers[place][model.stage] = each.percent
    pairs = over_runs.against_baselines(numbers, runs)
    tests = over_runs.tested(pairs)
    return {
        place: {
            "difference": statistics.fmean(known),
            **over_runs.of_difference(tests.get(place, {})),
        }
        for place, known in pairs.items()
    }


def _row(place: _Place, group: Sequence[Accuracy]) -> dict[str, Json]:
    run, policy, steps, probe, layer = place
    by_run = {each.model.stage: each.percent for each in group}
    row: dict[str, Json] = {"run": run, "policy": policy, "steps": steps, "probe": probe}
    row |= {"layer": layer, **over_runs.mean("accuracy", by_run.values()), "runs": len(by_run)}
    row |= {"floor": 100 * statistics.fmean(each.found.floor for each in group)}
    return row | {"classes": group[0].found.classes, "tokens": group[0].found.tokens}


def _value(found: Accuracy) -> dict[str, Json]:
    model = found.model
    about = {"run": model.run.name, "policy": model.policy, "stage": model.stage}
    where = {"steps": model.steps, "probe": found.probe, "layer": found.layer}
    return {**about, **where, "value": found.percent}


def _panels(rows: Sequence[Mapping[str, Json]], several: bool) -> Iterator[Lines]:
    """Yield for each probe a panel of the accuracies over layers."""
    for probe in dict.fromkeys(row["probe"] for row in rows):
        series = []
        for label in dict.fromkeys(_label(row, several) for row in rows):
            line = [row for row in rows if (_label(row, several), row["probe"]) == (label, probe)]
            places = [float(row["layer"]) for row in line]
            series.append(over_runs.series(label, line, "accuracy", places))
        yield Lines(probe, "layer", "accuracy (%)", series)


def _bars(rows: Sequence[Mapping[str, Json]], several: bool) -> Iterator[Bars]:
    """Yield a panel of the accuracies of each row."""
    by_place = {(row["probe"], _label(row, several)): row for row in rows}
    names = list(dict.fromkeys(label for _, label in by_place))
    unknown: dict[str, Json] = dict.fromkeys(("accuracy", "low", "high"))
    probes = dict.fromkeys(row["probe"] for row in rows)
    series = [
        over_runs.series(
            probe, [by_place.get((probe, name), unknown) for name in names], "accuracy"
        )
        for probe in probes
    ]
    if series:
        yield Bars("", "accuracy in the last layer (%)", names, series)


def _label(row: Mapping[str, Json], several: bool) -> str:
    return f"{row['policy']} ({row['run']})" if several else str(row["policy"])
