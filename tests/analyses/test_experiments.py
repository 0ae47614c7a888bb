"""The experiments of the findings hold the rows and tasks of the claims, and share their models."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskpolicy.analyses.builtin.findings import CLAIMS, FIGURES
from maskpolicy.analyses.paper_claims.contrasts import Contrast, Interaction, Measured, Trend
from maskpolicy.analyses.paper_claims.verdicts import RUNS
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import topological

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FOLDER = EXPERIMENTS / "findings"
SHARED = ("closed-book", "efficiency", "knowledge-intensive", "zsre", "zsre-near")
CONTRASTS = [
    pytest.param(each, id=f"{claim.number}: {each.compared} on {each.on}")
    for claim in CLAIMS
    for each in claim.contrasts
]


def of(contrast: Contrast) -> list[tuple[str, list[str], tuple[str, ...]]]:
    """Return the experiments of a contrast, each with its rows and tasks."""
    if isinstance(contrast, Interaction):
        return of(contrast.first) + of(contrast.second)
    if isinstance(contrast, Trend):
        return [(contrast.experiment, list(contrast.rows), contrast.tasks)]
    rows = [contrast.row, *([contrast.other] if contrast.other else [])]
    tasks = () if isinstance(contrast, Measured) else contrast.tasks
    return [(contrast.experiment, rows, tasks)]


@pytest.mark.parametrize("contrast", CONTRASTS)
def test_an_experiment_has_the_rows_tasks_and_runs_of_a_contrast(contrast):
    for name, rows, tasks in of(contrast):
        experiment = load_experiment(FOLDER / f"{name}.yaml")
        assert set(rows) <= {block.label for block in experiment.policies}
        assert set(tasks) <= {block.label for block in experiment.tasks}
        assert len(experiment.seeds) == len(experiment.runs) == RUNS


def test_every_figure_has_an_experiment_and_learning_efficiency_has_checkpoints():
    names = {path.stem for path in FOLDER.glob("*.yaml")}
    assert {figure.experiment for figure in FIGURES} <= names
    assert load_experiment(FOLDER / "efficiency.yaml").checkpoint_steps


@pytest.mark.slow
def test_experiments_about_entities_share_the_models_of_a_policy():
    keys = []
    for name in SHARED:
        made = stages.build(load_experiment(FOLDER / f"{name}.yaml"))
        keys.append(
            {
                stage.key
                for stage in topological(made.targets)
                if stage.kind == "intermediate"
                and stage.label.startswith("salient-span, run")
                and "first" not in stage.label
            }
        )
    assert len(keys[0]) == RUNS
    assert all(each == keys[0] for each in keys[1:])
