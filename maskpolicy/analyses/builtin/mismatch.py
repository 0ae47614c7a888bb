"""Scores on relations that occur in train against relations that do not."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from maskpolicy import Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses import ColumnExamples, Sampling, answers, column_examples, derive, samples
from maskpolicy.analyses.plots import Bars, Series
from maskpolicy.core.metrics.per_example import normalise
from maskpolicy.leaderboard.results import predictions
from maskpolicy.pipeline.graph.nodes import params_of
from maskpolicy.pipeline.stages.params import EvaluateParams

COLUMNS = ("run", "policy", "task", "relations", "score", "std", "examples", "seeds", "hits")
SEEN, UNSEEN = "seen in train", "unseen"
Reader: TypeAlias = Callable[[Run, Result], Path | None]


@analysis("mismatch", heading="Relations seen in train, and unseen ones", place=60)
@dataclass(frozen=True)
class Mismatch(Sampling):
    """Score and hits of each policy on relations seen in train against unseen ones (zsRE).

    For every task whose examples have the `slice`. `score` is that of the stored predictions on
    test. If no test example has a seen relation, as in zsRE's official files, dev examples, which
    are split from train, are used for seen relations; these need `keep_models: [finetune]`.
    `hits` is the share of masked spans that answer a question of such a relation in any split, and
    of no relation of the other kind.
    """

    slice: str = "relation"

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Compare seen and unseen relations on each task that has slices."""
        rows: list[Json] = []
        notes: list[str] = []
        missing = False
        for run in runs:
            tasks, absent = column_examples(run, store)
            sliced = [task for task in tasks if any(self.slice in e.slices for e in task.examples)]
            found, more, gone = samples([run], self.sampling, store) if sliced else ([], [], False)
            missing |= gone or bool(absent)
            notes += [*absent, *more]
            if not sliced and not absent:
                notes.append(f"{run.name}: none of its tasks has examples with a {self.slice!r}")
            texts = {each.row.label: [normalise(t) for t in each.texts()] for each in found}
            for task in sliced:
                new = list(self._rows(run, task, texts, store))
                rows += new
                # a cell may lack its answers to dev although others of its row have theirs
                cells = Counter(r.policy for r in run.results if r.task == task.task and r.metrics)
                missing |= any(row["seeds"] < cells[row["policy"]] for row in new)
                scored = {row["relations"] for row in new if row["score"] is not None}
                if SEEN not in scored:
                    notes.append(
                        f"{task.task}: no test example has a {self.slice} of train, and the models "
                        "to answer dev were not kept: for a score on seen ones, set "
                        "keep_models: [finetune] in the experiment and run it again"
                    )
                    missing = True
        columns = COLUMNS if len(runs) > 1 else COLUMNS[1:]
        return Findings(
            columns, tuple(rows), tuple(notes), tuple(_panels(rows, runs)), partial=missing
        )

    def _rows(
        self, run: Run, task: ColumnExamples, texts: dict[str, list[str]], store: Store
    ) -> Iterator[Json]:
        seen = {example.slices.get(self.slice, "") for example in task.splits["train"]}
        parts = {
            SEEN: [e for e in task.examples if e.slices.get(self.slice, "") in seen],
            UNSEEN: [e for e in task.examples if e.slices.get(self.slice, "") not in seen],
        }
        wanted = {name: answers(examples) for name, examples in parts.items()}
        only = {SEEN: wanted[SEEN] - wanted[UNSEEN], UNSEEN: wanted[UNSEEN] - wanted[SEEN]}
        for label in run.rows:
            cells = [r for r in run.results if (r.policy, r.task) == (label, task.task)]
            scores = self._scores(run, cells, seen, _stored)
            if SEEN not in scores:
                dev = self._scores(run, cells, seen, partial(_on_dev, store))
                scores |= {name: found for name, found in dev.items() if name == SEEN}
            for name in (SEEN, UNSEEN):
                by_seed = scores.get(name, {})
                means = [statistics.fmean(values) for values in by_seed.values()]
                masked = texts.get(label)
                hits = sum(text in only[name] for text in masked or ())
                yield {
                    "run": run.name,
                    "policy": label,
                    "task": task.task,
                    "relations": name,
                    "score": 100 * statistics.fmean(means) if means else None,
                    "std": 100 * statistics.stdev(means) if len(means) > 1 else None,
                    "examples": len(next(iter(by_seed.values()), [])),
                    "seeds": len(means),
                    "hits": hits / len(masked) if masked else None,
                }

    def _scores(
        self, run: Run, cells: Sequence[Result], seen: set[str], read: Reader
    ) -> dict[str, dict[int, list[float]]]:
        """Return the scores of the examples in `cells`, by SEEN or UNSEEN and seed."""
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for cell in cells:
            path = read(run, cell)
            if path is None or not path.is_file():
                continue
            for row in predictions.rows(path):
                part = SEEN if row["slices"].get(self.slice, "") in seen else UNSEEN
                found[part][cell.seed].append(row["score"])
        return dict(found)


def _stored(run: Run, cell: Result) -> Path | None:
    """Return the file of the run's predictions on test."""
    return replace(cell, folder=run.folder).answers


def _on_dev(store: Store, run: Run, cell: Result) -> Path | None:
    """Return the file of predictions on dev, or None if the fine-tuned model was not kept."""
    key = cell.stage_key("evaluate") or ""
    manifest = store.peek(key)
    if manifest is None or store.peek(manifest["record"]["inputs"]["model"]) is None:
        return None
    record = manifest["record"]
    params = replace(params_of(record, EvaluateParams), split="dev")
    label = f"{cell.policy}, {cell.task}, seed {cell.seed}, dev"
    learnt = cell.examples_key("dev")
    inputs = record["inputs"] | ({"examples": learnt} if learnt else {})
    return derive(store, "evaluate", label, params, inputs).path / "predictions.jsonl"


def _panels(rows: Sequence[Json], runs: Sequence[Run]) -> Iterator[Bars]:
    """Yield two panels for each task: scores and hits."""
    for run, task in dict.fromkeys((row["run"], row["task"]) for row in rows):
        own = [row for row in rows if (row["run"], row["task"]) == (run, task)]
        labels = list(dict.fromkeys(row["policy"] for row in own))
        title = f"{task} ({run})" if len(runs) > 1 else task
        for key, y, scale in (("score", "score (%)", 1), ("hits", "masked spans (%)", 100)):
            series = [
                Series(label, [_times(row[key], scale) for row in own if row["policy"] == label])
                for label in labels
            ]
            yield Bars(f"{title}: {key}", y, [SEEN, UNSEEN], series)


def _times(value: float | None, scale: int) -> float | None:
    return None if value is None else scale * value
