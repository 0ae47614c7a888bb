"""The settings in a cell's result are those that the cell depends on."""

from __future__ import annotations

from maskpolicy.config.parse import load_experiment
from maskpolicy.results.cell_config import cell_config

TEXT = "model: mini\ncorpus: world\npolicies: [none, random]\ntasks: [triviaqa, zsre]\n"


def test_a_none_cell_holds_nothing_of_the_intermediate_stage(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    experiment = load_experiment(path)
    none, random = experiment.policies
    settings = cell_config(experiment, none, experiment.tasks[0], 0)
    assert not {"corpus", "intermediate", "fit"} & set(settings)
    staged = cell_config(experiment, random, experiment.tasks[0], 0)
    assert staged["intermediate"]["steps"] == experiment.intermediate.steps
    assert "fit" not in staged


def test_seed_number_i_belongs_to_intermediate_run_i_mod_n(tmp_path):
    path = tmp_path / "runs.yaml"
    path.write_text(TEXT + "seeds: [5, 6, 7]\nintermediate_seeds: 2\n")
    experiment = load_experiment(path)
    random, task = experiment.policies[1], experiment.tasks[0]
    runs = [
        cell_config(experiment, random, task, seed)["intermediate_seed"]
        for seed in experiment.seeds
    ]
    assert runs == [0, 1, 0]


def test_runs_may_have_numbers_of_their_own(tmp_path):
    path = tmp_path / "runs.yaml"
    path.write_text(TEXT + "seeds: [5, 6, 7]\nintermediate_runs: [3, 4]\n")
    experiment = load_experiment(path)
    random, task = experiment.policies[1], experiment.tasks[0]
    cells = [cell_config(experiment, random, task, n) for n in experiment.seeds]
    assert [cell["intermediate_seed"] for cell in cells] == [3, 4, 3]
    assert cells[0]["intermediate_seeds"] == 2


def test_seed_number_i_rests_on_general_model_i_mod_n(tmp_path):
    path = tmp_path / "models.yaml"
    text = "seeds: [5, 6, 7, 8]\nintermediate_seeds: 4\ngeneral_seeds: 2\n"
    path.write_text(TEXT + text)
    experiment = load_experiment(path)
    for policy in experiment.policies:  # of `none` too
        cells = [
            cell_config(experiment, policy, experiment.tasks[0], seed) for seed in experiment.seeds
        ]
        assert [cell["general_seed"] for cell in cells] == [0, 1, 0, 1]
        assert cells[0]["general_seeds"] == 2
