"""`python -m benchmarks.standard_errors RUN`: the best row against the baseline, task by task.

For runs with too few seeds for the leaderboard's test: the standard error is over the groups of
test examples (paragraph, document, dialogue), each with the mean of its examples and of all seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskpolicy import predictions, results
from maskpolicy.results import Run


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.standard_errors")
    parser.add_argument("run", type=Path, help="a folder that `maskpolicy run` wrote")
    run = results.read(parser.parse_args().run)
    print(f"| task | groups | {run.baseline} | best | difference | standard error | ratio |")
    print("|---|---:|---:|---|---:|---:|---:|")
    for task in run.columns:
        rows = {row: _groups(run, row, task) for row in run.rows}
        base = rows.pop(run.baseline)
        best = max(rows, key=lambda row: rows[row].mean())
        difference = rows[best] - base
        error = _error(difference)
        print(
            f"| {task} | {len(base)} | {base.mean():.1f} (error {_error(base):.1f}) | {best} "
            f"| {difference.mean():.1f} | {error:.1f} | {difference.mean() / error:.1f} |"
        )


def _groups(run: Run, row: str, task: str) -> NDArray[np.float64]:
    """Return the percentage that a row scores on each group of a task's examples."""
    seeds = []
    for result in run.results:
        if (result.policy, result.task) == (row, task):
            name = results.file_name(row, task, result.seed)
            answers = predictions.read(run.folder / "predictions" / f"{name}.jsonl", result)
            if answers is None:
                raise SystemExit(f"{run.folder}: no answers of {name}")
            sums = np.bincount(answers.groups, answers.scores)
            seeds.append(100 * sums / np.bincount(answers.groups))
    return np.mean(seeds, axis=0)


def _error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


if __name__ == "__main__":
    main()
