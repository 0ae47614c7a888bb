"""Answers of tasks among masked spans and among candidates, and relations seen in train."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from maskpolicy import Example, Findings, Json, Result, Run, Store, analysis
from maskpolicy.analyses import ColumnExamples, Sampling, answers, column_examples, derive, samples
from maskpolicy.analyses.cache import lacking
from maskpolicy.analyses.over_runs import over_seeds, percent
from maskpolicy.analyses.plots import Bars, Grid, Series
from maskpolicy.core.metrics.per_example import normalise
from maskpolicy.leaderboard.results import predictions
from maskpolicy.models.learned.hits import TOP
from maskpolicy.pipeline.graph.nodes import params_of
from maskpolicy.pipeline.stages.fit import REPORT
from maskpolicy.pipeline.stages.params import EvaluateParams

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
                values.append([percent(share) for share in shares.values()])
            labels = [each.row.label for each in found]
            title = "masked spans that are answers (%)"
            title = f"{run.name}: {title}" if len(runs) > 1 else title
            panels.append(Grid(title, labels, list(wanted), values))
        return Findings.of_runs(runs, _ANSWERS_COLUMNS, rows, notes, panels, partial=missing)


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

    For each fitted policy (`stage` is the number of the run) and each task that it was fitted on:
    its own best spans and, for comparison, as many entities and spans of up to ten words, both
    drawn uniformly. `precision` is the share of spans that answer any question about the context.
    """

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Return the figures stored with the fitted policies of the runs."""
        rows: list[Json] = []
        notes: list[str] = []
        for run in runs:
            for number, label, key in _fitted(run):
                artifact = store.get(key)
                if artifact is None:
                    notes.append(f"{run.name}, {label}: {lacking(store, 'its fitted policy')}")
                    continue
                report = json.loads((artifact.path / REPORT).read_text())
                for task, found in (report["dev"] or {}).items():
                    about = {"run": run.name, "policy": label, "stage": number, "task": task}
                    about |= {name: found[name] for name in ("contexts", "without_answer")}
                    rows += [
                        {**about, "spans": "its own" if way == "policy" else way}
                        | {title: found[way][name][k] for title, (name, k) in FIGURES.items()}
                        for way in WAYS
                        if found[way] is not None
                    ]
        nothing = [] if rows or notes else ["no row has a learned policy that ranks spans"]
        return Findings.of_runs(runs, _HITS_COLUMNS, rows, notes or nothing, partial=bool(notes))


def _fitted(run: Run) -> Iterator[tuple[int, str, str]]:
    """Yield intermediate run, label and key of each fitted policy, in the order of the rows."""
    learned = [result for result in run.results if "fit" in result.config]
    cells = {(run.rows.index(one.policy), one.config["intermediate_seed"]): one for one in learned}
    for (_, number), cell in sorted(cells.items()):
        yield from ((number, label, key) for label, key in cell.fitted().items())


_MISMATCH_COLUMNS = (
    *("run", "policy", "task", "relations", "score", "std", "examples", "seeds", "hits"),
)
SEEN, UNSEEN = "seen in train", "unseen"


@analysis("mismatch", heading="Relations seen in train, and unseen ones", place=60, version=2)
@dataclass(frozen=True)
class Mismatch(Sampling):
    """Score and hits of each policy on relations seen in train against unseen ones (zsRE).

    For every task whose examples have the `slice`. `score` is that of the stored predictions on
    test. If no test example has a seen relation, as in zsRE's official files, dev examples, which
    are split from train, are used for seen relations; these need `keep_models: [finetune]`.
    `hits` is the share of masked spans that answer a question about such a relation in any split,
    and no question about a relation of the other kind.
    """

    slice: str = "relation"

    def analyse(self, runs: Sequence[Run], store: Store) -> Findings:
        """Compare seen and unseen relations on each task that has slices."""
        rows: list[Json] = []
        notes: list[str] = []
        missing = False
        for run in runs:
            tasks, absent = column_examples(run, store)
            trained = [task for task in tasks if "train" in task.splits]  # pairs have none
            sliced = [t for t in trained if any(self.slice in e.slices for e in t.examples)]
            found, more, gone = samples([run], self.sampling, store) if sliced else ([], [], False)
            missing |= gone or bool(absent)
            notes += [*absent, *more]
            if not sliced and not absent:
                notes.append(f"{run.name}: none of its tasks has examples with a {self.slice!r}")
            texts = {each.row.label: [normalise(t) for t in each.texts()] for each in found}
            for task in sliced:
                new = list(self._rows(run, task, texts, store))
                rows += new
                if not _is_mean(run, task.task):
                    notes.append(f"{task.task}: its metric is not a mean over examples: no scores")
                    continue
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
        panels = _mismatch_panels(rows, runs)
        return Findings.of_runs(runs, _MISMATCH_COLUMNS, rows, notes, panels, partial=missing)

    def _rows(
        self, run: Run, task: ColumnExamples, texts: dict[str, list[str]], store: Store
    ) -> Iterator[Json]:
        seen = {example.slices.get(self.slice, "") for example in task.splits["train"]}
        parts: dict[str, list[Example]] = {SEEN: [], UNSEEN: []}
        for example in task.examples:
            parts[self._part(example.slices, seen)].append(example)
        of_seen, of_unseen = answers(parts[SEEN]), answers(parts[UNSEEN])
        only = {SEEN: of_seen - of_unseen, UNSEEN: of_unseen - of_seen}
        for label in run.rows:
            cells = [r for r in run.results if (r.policy, r.task) == (label, task.task)]
            cells = cells if _is_mean(run, task.task) else []
            on_test = {cell.seed: cell.answers for cell in cells}
            scores = self._scores(on_test, seen)
            if SEEN not in scores:
                on_dev = {cell.seed: _on_dev(cell, store) for cell in cells}
                dev = self._scores(on_dev, seen)
                scores |= {SEEN: dev[SEEN]} if SEEN in dev else {}
            for name in (SEEN, UNSEEN):
                masked = texts.get(label)
                hits = sum(text in only[name] for text in masked or ())
                yield {
                    "run": run.name,
                    "policy": label,
                    "task": task.task,
                    "relations": name,
                    **over_seeds([*scores.get(name, {}).values()]),
                    "hits": hits / len(masked) if masked else None,
                }

    def _part(self, slices: Mapping[str, str], seen: set[str]) -> str:
        return SEEN if slices.get(self.slice, "") in seen else UNSEEN

    def _scores(
        self, answered: Mapping[int, Path | None], seen: set[str]
    ) -> dict[str, dict[int, list[float]]]:
        """Return the scores of the examples in files, by SEEN or UNSEEN and seed."""
        found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for seed, path in answered.items():
            for row in predictions.rows(path) if path and path.is_file() else ():
                found[self._part(row["slices"], seen)][seed].append(row["score"])
        return dict(found)


def _is_mean(run: Run, task: str) -> bool:
    """Return whether the score of a task is the mean of its examples' scores."""
    metrics = (result.metrics for result in run.results if result.task == task)
    return all(each is None or each.mean is None for each in metrics)


def _on_dev(cell: Result, store: Store) -> Path | None:
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


def _mismatch_panels(rows: Sequence[Json], runs: Sequence[Run]) -> Iterator[Bars]:
    """Yield two panels for each task: scores and hits."""
    for run, task in dict.fromkeys((row["run"], row["task"]) for row in rows):
        own = [row for row in rows if (row["run"], row["task"]) == (run, task)]
        labels = list(dict.fromkeys(row["policy"] for row in own))
        title = f"{task} ({run})" if len(runs) > 1 else task
        for key, y in (("score", "score (%)"), ("hits", "masked spans (%)")):
            values = {id(row): percent(row[key]) if key == "hits" else row[key] for row in own}
            series = [
                Series(label, [values[id(row)] for row in own if row["policy"] == label])
                for label in labels
            ]
            yield Bars(f"{title}: {key}", y, [SEEN, UNSEEN], series)
