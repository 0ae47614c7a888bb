"""The share of masked spans that are answers of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maskpolicy import Findings, Json, Run, Store, analysis
from maskpolicy.findings import Sampling, answers, column_examples, samples
from maskpolicy.metrics.per_example import normalise
from maskpolicy.plots import Grid

COLUMNS = ("run", "policy", "task", "share", "spans", "answers")


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
        columns = COLUMNS if len(runs) > 1 else COLUMNS[1:]
        return Findings(columns, tuple(rows), tuple(notes), tuple(panels), partial=missing)
