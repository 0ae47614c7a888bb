"""Masked spans that are answers of a task, and answers among the best spans of a learned policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy import Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses import Sampling, answers, column_examples, samples
from maskpolicy.analyses.plots import Grid
from maskpolicy.core.metrics.per_example import normalise
from maskpolicy.models.learned.hits import TOP
from maskpolicy.pipeline.stages.fit import REPORT

_ANSWERS_COLUMNS = ("run", "policy", "task", "share", "spans", "answers")


@analysis("answers", heading="Masked spans that are answers of a task", of_masks=True, place=60)
@dataclass(frozen=True)
class Answers(Sampling):
    """The share of masked spans that are answers of a task, for each policy and task.

    A span counts if its text, after SQuAD's normalisation, equals an acceptable answer of any
    example of the task in any split. The example need not be about the span's passage.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Compare the spans of a sample of each row's passages with the tasks' answers."""
        rows: list[Json] = []
        notes: list[str] = []
        panels = []
        missing = False
        for run in runs:
            tasks, absent = column_examples(run, store)
            found, more, gone = samples([run], self.sampling, store)
            notes += [*absent, *more]
            missing |= gone or bool(absent)
            wanted = {task.task: answers(task.examples) for task in tasks}
            values = []
            for each in found:
                texts = [normalise(text) for text in each.texts()]
                counts = {task: sum(t in one for t in texts) for task, one in wanted.items()}
                shares = {task: n / len(texts) if texts else None for task, n in counts.items()}
                rows += [
                    {"run": run.name, "policy": each.row.label, "task": task, "share": share}
                    | {"spans": len(texts), "answers": counts[task]}
                    for task, share in shares.items()
                ]
                values.append([None if s is None else 100 * s for s in shares.values()])
            labels = [each.row.label for each in found]
            title = "masked spans that are answers (%)"
            title = f"{run.name}: {title}" if len(runs) > 1 else title
            panels.append(Grid(title, labels, list(wanted), values))
        columns = _ANSWERS_COLUMNS if len(runs) > 1 else _ANSWERS_COLUMNS[1:]
        return Findings(columns, tuple(rows), tuple(notes), tuple(panels), partial=missing)


WAYS = ("policy", "salient-span", "random")
FIGURES = {
    **{f"hits_{k}": ("hits", str(k)) for k in TOP},
    **{f"precision_{k}": ("precision", str(k)) for k in TOP[:2]},
}
_HITS_COLUMNS = ("run", "policy", "stage", "task", "contexts", "without_answer", "spans", *FIGURES)


@analysis("hits", heading="Answers among a learned policy's best spans", place=50)
@dataclass(frozen=True)
class Hits:
    """Share of dev contexts with the answer among a learned policy's best 1, 5, 20 spans (hits@k).

    For each fitted policy (`stage` numbers those of a row) and each task it was fitted on: its own
    best spans and, for comparison, equally many entities and spans of up to ten words, both drawn
    uniformly. `precision` is the share of spans that answer any question about the same context.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Return the figures stored with the fitted policies of the runs."""
        rows: list[Json] = []
        notes: list[str] = []
        for run in runs:
            for (label, number), cell in _cells(run).items():
                report = _report(cell, number, store)
                if report is None:
                    notes.append(
                        f"{run.name}, {label}: its fitted policy is not in the store {store.place}"
                        ": name the store of that run with --store, or run its experiment again"
                    )
                    continue
                for task, found in (report["dev"] or {}).items():
                    about = {"run": run.name, "policy": label, "stage": number, "task": task}
                    rows += [{**about, **_row(found, way)} for way in WAYS]
        columns = _HITS_COLUMNS if len(runs) > 1 else _HITS_COLUMNS[1:]
        if not rows and not notes:
            return Findings(columns, (), ("no row has a learned policy",))
        return Findings(columns, tuple(rows), tuple(notes), partial=bool(notes))


def _cells(run: Run) -> dict[tuple[str, int], Result]:
    """Return one cell for each fitted policy of a run, in the order of the rows."""
    learned = [result for result in run.results if "fit" in result.config]
    order = [*run.policies, *(result.policy for result in learned)]
    learned.sort(key=lambda one: (order.index(one.policy), one.config["intermediate_seed"]))
    return {(one.policy, one.config["intermediate_seed"]): one for one in learned}


def _report(cell: Result, number: int, store: Store) -> Json:
    key = cell.stage_key(f"fit {cell.trained_as}, run {number}")
    artifact = store.get(key) if key else None
    return None if artifact is None else json.loads((artifact.path / REPORT).read_text())


def _row(found: Json, way: str) -> dict[str, Json]:
    return {
        "contexts": found["contexts"],
        "without_answer": found["without_answer"],
        "spans": "its own" if way == "policy" else way,
        **{title: found[way][name][k] for title, (name, k) in FIGURES.items()},
    }
