"""Verdicts on claims from folders of results: rules, families, and what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from claimed import BETTER, run, verdict
from simulation import Design
from simulation_of_claims import LEAST_FAVOURABLE, SIZES, rates

from maskpolicy.errors import ConfigError
from maskpolicy.replication.contrast_evidence import Evidences
from maskpolicy.replication.contrasts import LOWER, Claim, Interaction, Measured, Trend
from maskpolicy.replication.verdicts import decide
from maskpolicy.results.cell import Run
from maskpolicy.store.artifacts import Store


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def runs(tmp_path) -> list[Run]:
    return [run(tmp_path / "it")]


def test_a_difference_in_the_claimed_direction_is_shown_and_in_the_other_refuted(runs, store):
    assert verdict(BETTER, runs=runs, store=store).text == "shown"
    worse = replace(BETTER, direction=LOWER)
    assert verdict(worse, runs=runs, store=store).text == "refuted"


def test_equal_rows_refute_a_claim_about_large_effects_and_leave_one_about_small_ones(runs, store):
    same = replace(BETTER, row="like none", least=40.0)
    assert verdict(same, runs=runs, store=store).text == "refuted"
    small = verdict(replace(same, least=0.5), runs=runs, store=store)
    assert small.text.startswith("undecided: only a difference of ")
    assert small.tested[0].finds > 0.5


def test_an_undecided_claim_names_the_comparison_that_it_lacks(runs, store):
    good = replace(BETTER, least=0.5)
    weak = replace(good, row="like none", tasks=("zsre",))
    found = verdict(good, weak, runs=runs, store=store)
    assert found.text.endswith(" points or more is found with 80% power (like none − none, zsre)")


def test_a_claim_of_which_no_run_has_the_rows_is_undecided(runs, store):
    absent = replace(BETTER, row="absent", if_present=True)
    assert verdict(absent, runs=runs, store=store).text == "undecided: no run has its rows"


def test_all_contrasts_must_hold_or_any_of_them(runs, store):
    both = (BETTER, replace(BETTER, row="like none", least=40.0))
    assert verdict(*both, runs=runs, store=store).text == "refuted"
    assert verdict(*both, runs=runs, store=store, counts="any").text == "shown"
    assert verdict(*both[1:], runs=runs, store=store, counts="any").text == "refuted"


def test_fewer_than_five_runs_give_an_estimate_and_no_verdict(tmp_path, store):
    few = [run(tmp_path / "few", seeds=4)]
    found = verdict(BETTER, runs=few, store=store)
    assert found.text == "undecided: 4 runs: a verdict needs 5"
    assert found.tested[0].estimate.low > 0
    two = verdict(BETTER, runs=[run(tmp_path / "two", seeds=2)], store=store)
    assert two.text == "undecided: 2 runs: a verdict needs 5"
    shared = [run(tmp_path / "shared", runs=1)]
    assert "share one intermediate run" in verdict(BETTER, runs=shared, store=store).text


def test_missing_experiments_and_rows_are_named_and_left_out_if_they_may_be(runs, store):
    elsewhere, absent = replace(BETTER, experiment="other"), replace(BETTER, row="absent")
    assert verdict(elsewhere, runs=runs, store=store).text == "undecided: no run of other"
    assert verdict(absent, runs=runs, store=store).text == "undecided: it has no row absent"
    may_be = replace(absent, if_present=True)
    found = verdict(BETTER, may_be, runs=runs, store=store)
    assert (found.text, len(found.tested)) == ("shown", 1)


def test_a_mean_over_tasks_and_a_change_between_tasks(runs, store):
    mean = verdict(replace(BETTER, tasks=("triviaqa", "zsre")), runs=runs, store=store)
    of_tasks = [
        verdict(replace(BETTER, tasks=(task,)), runs=runs, store=store).tested[0].estimate
        for task in ("triviaqa", "zsre")
    ]
    assert mean.text == "shown"
    every = verdict(replace(BETTER, tasks=()), runs=runs, store=store)
    assert every.tested[0].estimate == mean.tested[0].estimate
    estimate = mean.tested[0].estimate
    assert estimate.difference == pytest.approx(sum(one.difference for one in of_tasks) / 2)
    assert estimate.error > 0
    change = Interaction(BETTER, replace(BETTER, tasks=("zsre",)), least=40.0)
    found = verdict(change, runs=runs, store=store).tested[0]
    less = of_tasks[0].difference - of_tasks[1].difference
    assert found.estimate.difference == pytest.approx(less)
    assert found.p_least < 0.05 < found.p


def test_an_interaction_of_two_experiments(tmp_path, store):
    both = [
        run(tmp_path / "far", {"none": 0.6, "good": 0.2}, name="far"),
        run(tmp_path / "near", {"none": 0.6, "good": 0.6}, name="near"),
    ]
    far, near = (replace(BETTER, experiment=name) for name in ("far", "near"))
    assert verdict(Interaction(far, near, LOWER), runs=both, store=store).text == "shown"
    other = [both[0], run(tmp_path / "first", {"none": 0.6, "good": 0.6}, name="near", first=1)]
    text = verdict(Interaction(far, near, LOWER), runs=other, store=store).text
    assert text == "undecided: the two differences have different seeds"


def test_a_slope_over_a_number_of_each_row(runs, store):
    rows = {"none": 0.0, "middle": 0.5, "good": 1.0}
    found = verdict(Trend("it", rows, ("triviaqa",), "x"), runs=runs, store=store)
    whole = verdict(BETTER, runs=runs, store=store).tested[0].estimate
    assert found.text == "shown"
    assert found.tested[0].estimate.difference == pytest.approx(whole.difference)
    uneven = Trend("it", {"none": 0.0, "middle": 1.0, "good": 4.0}, ("triviaqa",), "x")
    assert sum(uneven.weights.values()) == pytest.approx(0)
    assert sum(w * uneven.rows[label] for label, w in uneven.weights.items()) == pytest.approx(1)


def test_one_experiment_in_several_folders_is_one_and_other_settings_are_refused(tmp_path, store):
    parts = [
        run(tmp_path / "a", {"none": 0.1, "good": 0.8}, seeds=3),
        run(tmp_path / "b", {"none": 0.1, "good": 0.8}, seeds=2, first=3),
    ]
    found = verdict(BETTER, runs=parts, store=store)
    assert (found.text, found.tested[0].evidence.runs) == ("shown", 5)
    foreign = run(tmp_path / "c", {"none": 0.1, "good": 0.8}, first=9, model={"name": "other"})
    with pytest.raises(ConfigError, match=r"differ in model\.name.*give runs of one experiment"):
        verdict(BETTER, runs=[parts[0], foreign], store=store)


def test_an_analysis_without_a_result_is_a_note(runs, store):
    contrast = Measured("it", "good", "frequency", "slope", other="none", least=0.1, unit="slope")
    evidences = Evidences(runs, store)
    claim = Claim("F0", "A sentence.", "a paper", (contrast,))
    found = decide([claim], evidences)[0]
    assert found.text == "undecided: frequency has no number for good or none"
    unknown = replace(contrast, analysis="frequenzy")
    decide([replace(claim, contrasts=(unknown,))], evidences)
    assert any("frequenzy" in note for note in evidences.notes)


@pytest.mark.slow
@pytest.mark.parametrize("gains", ["none", "the smallest effect", LEAST_FAVOURABLE])
def test_few_families_hold_a_wrong_verdict(gains):
    wrong, decided = rates(Design(5, sizes=SIZES, noise=0.2), gains, 200)
    assert wrong <= 0.05
    assert 0.05 < decided < 0.5
