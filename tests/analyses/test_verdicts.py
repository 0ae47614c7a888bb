"""Verdicts on claims from folders of results: rules, families, and what is missing."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product

import folders
import numpy as np
import pytest
from claimed import BETTER, run, verdict

from benchmarks.simulation import Design
from benchmarks.simulation_of_claims import LEAST_FAVOURABLE, SIZES, rates
from maskpolicy.analyses import Findings
from maskpolicy.analyses.paper_claims.contrast_evidence import Evidences
from maskpolicy.analyses.paper_claims.contrasts import LOWER, Claim, Measured, Trend
from maskpolicy.analyses.paper_claims.verdicts import (
    REFUTED,
    SHOWN,
    UNDECIDED,
    ClaimedDifference,
    DirectionalClaim,
    Verdict,
    decide,
    holm_of_exclusive,
    judge,
)
from maskpolicy.core.errors import ConfigError
from maskpolicy.leaderboard import stats
from maskpolicy.leaderboard.results.cell import Run, read_run
from maskpolicy.pipeline.store.artifacts import Store


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Run]:
    return [run(tmp_path_factory.mktemp("it"))]


@pytest.fixture
def of_runs(runs, store) -> Callable[..., Verdict]:
    """Return the verdict on a claim from its contrasts, by those runs."""
    return partial(verdict, runs=runs, store=store)


def test_differences_are_shown_refuted_or_undecided_by_their_direction_and_size(of_runs):
    """Equal rows refute a claim about large effects, and leave one about small ones."""
    assert of_runs(BETTER).text == "shown"
    worse, refuted = replace(BETTER, direction=LOWER), "or more in the claimed direction"
    assert of_runs(worse).text == f"refuted: not 5 points {refuted}"
    same = replace(BETTER, row="like none", least=40.0)
    assert of_runs(same).text == f"refuted: not 40 points {refuted}"
    both = of_runs(BETTER, replace(worse, tasks=("zsre",)))
    assert both.text.endswith(f"{refuted} (good − none, zsre)")
    small = of_runs(replace(same, least=0.5))
    assert small.text.startswith("undecided: only a difference of ")
    assert small.tested[0].finds > 0.5
    good = replace(BETTER, least=0.5)
    weak = replace(good, row="like none", tasks=("zsre",))
    found = of_runs(good, weak)
    assert " points or more is found with 80% power (like none − none, zsre); " in found.text


def test_an_undecided_claim_says_how_many_runs_would_decide_it(of_runs):
    """The number is right: so many times as many runs, alike, find the difference."""
    unsure = replace(BETTER, row="like none", least=1.0)
    found = of_runs(unsure)
    (tested,) = found.tested
    towards = float(tested.claimed.difference)
    needed = min(tested.runs_for(towards, 1), tested.runs_for(1.0 - towards, 1))
    assert found.text.endswith(f"; with differences as estimated, {needed:g} runs would decide")
    own = replace(tested.estimate, error=1.0, freedom=4.0, fixed=0.0)
    counts = [replace(tested, estimate=own).runs_for(size, 1) for size in (2.0, 1.0, 0.5)]
    for size, count in zip((2.0, 1.0, 0.5), counts, strict=True):
        reach = [np.sqrt(5 / n) * stats.detectable(n - 1.0, 1, 1) for n in (count - 1, count)]
        assert reach[0] > size >= reach[1]
    assert replace(tested, estimate=own).runs_for(-1.0, 1) == np.inf
    kept = replace(tested, estimate=replace(own, fixed=0.9))  # by the sampling of examples
    assert kept.runs_for(2.0, 1) == np.inf
    few = replace(tested, estimate=replace(own, most_freedom=4.0))
    assert few.runs_for(0.5, 1) > counts[-1]
    # to exclude one of two effects is a choice between two tests
    two = of_runs(unsure, replace(unsure, tasks=("zsre",)))
    needed = min(
        max(one.runs_for(float(one.claimed.difference), 1) for one in two.tested),
        min(one.runs_for(1.0 - float(one.claimed.difference), 2) for one in two.tested),
    )
    assert f" {needed:g} runs would decide" in two.text


def test_fewer_than_five_runs_give_an_estimate_and_no_verdict(tmp_path, store):
    few = [run(tmp_path / "few", seeds=4)]
    found = verdict(BETTER, runs=few, store=store)
    assert found.text == "undecided: 4 runs: a verdict needs 5"
    assert found.tested[0].estimate.low > 0
    two = verdict(BETTER, runs=[run(tmp_path / "two", seeds=2)], store=store)
    assert two.text == "undecided: 2 runs: a verdict needs 5"
    shared = [run(tmp_path / "shared", runs=1)]
    assert "share one intermediate run" in verdict(BETTER, runs=shared, store=store).text


def test_missing_experiments_and_rows_are_named_and_left_out_if_they_may_be(of_runs):
    elsewhere, absent = replace(BETTER, experiment="other"), replace(BETTER, row="absent")
    untried = replace(BETTER, tasks=("nq",))
    assert of_runs(untried).text == "undecided: it has no task nq"
    assert of_runs(elsewhere).text == "undecided: no run of other"
    assert of_runs(absent).text == "undecided: it has no row absent"
    may_be = replace(absent, if_present=True)
    found = of_runs(BETTER, may_be)
    assert (found.text, len(found.tested)) == ("shown", 1)


def test_a_mean_over_tasks(of_runs):
    mean = of_runs(replace(BETTER, tasks=("triviaqa", "zsre")))
    of_tasks = [
        of_runs(replace(BETTER, tasks=(task,))).tested[0].estimate for task in ("triviaqa", "zsre")
    ]
    assert mean.text == "shown"
    every = of_runs(replace(BETTER, tasks=()))
    assert every.tested[0].estimate == mean.tested[0].estimate
    estimate = mean.tested[0].estimate
    assert estimate.difference == pytest.approx(sum(one.difference for one in of_tasks) / 2)
    assert estimate.error > 0


def test_a_slope_over_a_number_of_each_row(of_runs):
    rows = {"none": 0.0, "middle": 0.5, "good": 1.0}
    found = of_runs(Trend("it", rows, ("triviaqa",), "x"))
    whole = of_runs(BETTER).tested[0].estimate
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
    run(tmp_path / "d", {"none": 0.2, "good": 0.8}, seeds=3)
    folders.change(tmp_path / "d", "*", config={"intermediate": {"seed": 100}})
    again = read_run(tmp_path / "d")
    with pytest.raises(ConfigError, match=r"cannot be joined: give one of them"):
        verdict(BETTER, runs=[parts[0], again], store=store)


def test_tasks_in_several_folders_are_all_in_the_mean_over_tasks(of_runs, tmp_path, store):
    parts = [run(tmp_path / task, tasks=(task,)) for task in ("triviaqa", "zsre")]
    mean = replace(BETTER, tasks=())
    whole = of_runs(mean).tested[0].estimate
    for given in (parts, parts[::-1]):
        found = verdict(mean, runs=given, store=store).tested[0].estimate
        assert found.difference == pytest.approx(whole.difference)
        assert found.error == pytest.approx(whole.error)


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
def test_few_families_hold_a_wrong_verdict():
    """`python -m benchmarks.simulation_of_claims` simulates other true differences."""
    wrong, decided = rates(Design(5, sizes=SIZES, noise=0.2), LEAST_FAVOURABLE, 200)
    assert wrong <= 0.05
    assert 0.05 < decided < 0.5


def estimate(difference, error=1.0, freedom=20.0, least=5.0):
    return ClaimedDifference(np.asarray(difference), np.asarray(error), freedom, least)


def alone(*differences, counts="all", is_whole=True):
    return judge([DirectionalClaim(differences, counts, is_whole)])[0]


@pytest.mark.parametrize(
    ("difference", "error", "word"),
    [
        (20.0, 1.0, SHOWN),
        (2.0, 1.0, SHOWN),  # below the smallest effect, and yet in the claimed direction
        (1.5, 1.0, REFUTED),
        (-1.0, 1.0, REFUTED),
        (-20.0, 1.0, REFUTED),
        (2.0, 2.0, UNDECIDED),
    ],
)
def test_a_verdict_follows_from_difference_and_smallest_effect(difference, error, word):
    assert alone(estimate(difference, error)).word == word


def test_more_claims_make_each_verdict_harder():
    one = DirectionalClaim([estimate(2.0, freedom=30, least=3.0)])
    noise = DirectionalClaim([estimate(2.0, 2.0, 30)])
    assert judge([one])[0].word == SHOWN
    assert judge([one, noise, noise, noise])[0].word == UNDECIDED


def test_a_claim_about_all_rests_on_the_least_certain_difference_whatever_their_number():
    strong, weak, none = estimate(20.0), estimate(2.0), estimate(1.0, 2.0)
    assert alone(weak).p == alone(*[strong] * 9, weak).p == stats.one_sided(2.0, 1.0, 20)
    assert alone(*[strong] * 9, weak).word == SHOWN
    assert alone(strong, none).word == UNDECIDED
    assert alone(strong, estimate(-20.0)).word == REFUTED


def test_a_claim_about_any_rests_on_the_most_certain_difference_times_their_number():
    strong, none, less = estimate(20.0), estimate(3.0, 2.0), estimate(-20.0)
    assert alone(less, none, strong, counts="any").word == SHOWN
    assert alone(less, less, counts="any").word == REFUTED
    assert alone(less, none, counts="any").word == UNDECIDED
    two = alone(estimate(2.0), less, counts="any")
    assert two.p == 2 * stats.one_sided(2.0, 1.0, 20)
    weak = estimate(2.0, least=3.0)
    assert alone(weak).word == SHOWN
    assert alone(weak, weak, weak, counts="any").word == UNDECIDED


def test_what_was_not_measured_may_differ():
    strong, less = estimate(20.0), estimate(-20.0)
    assert alone(strong, is_whole=False).word == UNDECIDED
    assert alone(less, is_whole=False).word == REFUTED
    assert alone(strong, counts="any", is_whole=False).word == SHOWN
    assert alone(less, counts="any", is_whole=False).word == UNDECIDED


def shaffer(pairs: list[tuple[float, float]], level: float) -> set[tuple[int, int]]:
    """Reject hypotheses one by one, as the procedure is defined."""
    left = {(i, k): p for i, both in enumerate(pairs) for k, p in enumerate(both)}
    rejected: set[tuple[int, int]] = set()
    while left:
        true = sum(any((i, k) not in rejected for k in (0, 1)) for i in range(len(pairs)))
        place = min(left, key=lambda place: left[place])
        if left.pop(place) > level / true:
            break
        rejected.add(place)
    return rejected


def test_the_adjusted_p_are_those_of_the_stepwise_procedure():
    rng = np.random.default_rng(0)
    for number in range(1, 6):
        for _ in range(60):
            both = rng.random((number, 2)) ** 6
            one, other = holm_of_exclusive(both[:, 0], both[:, 1])
            for level in (0.01, 0.05, 0.3):
                wanted = shaffer([tuple(each) for each in both], level)
                found = {
                    (i, k) for i, k in product(range(number), (0, 1)) if (one, other)[k][i] <= level
                }
                assert found == wanted


TABLE = Findings(
    ("policy", "tag", "layer", "share"),
    tuple(
        {"policy": f"{label}, run {number}", "tag": tag, "layer": layer, "share": share}
        for label, base in (("good", 0.6), ("none", 0.1))
        for number in range(5)
        for tag, layer, share in (
            ("NUM", 0, base + number / 100),
            ("PROPN", 1, base + number / 50),
            ("VERB", 2, 0.5),
        )
    ),
)
SHARE = Measured(
    *("it", "good", "pos", "share"),
    other="none",
    where={"tag": ("NUM", "PROPN")},
    least=0.1,
    unit="share",
)
PROBED = Measured(
    *("it", "good", "probe", "value"),
    other="none",
    reduce="last",
    along="steps",
    least=5.0,
    unit="points",
)


class WithTable(Evidences):
    """Evidence with the same table for every analysis."""

    made = TABLE

    def table(self, name, settings, run):
        return self.made


class WithSteps(WithTable):
    """Numbers after 50 and 100 steps; run 2 of `good` has the first alone."""

    made = Findings(
        ("policy", "stage", "steps", "value"),
        tuple(
            {"policy": label, "stage": number, "steps": steps, "value": steps + base + number**2}
            for label, base in (("good", 30.0), ("none", 10.0), ("short", 0.0))
            for number in range(5)
            for steps in (50, 100)
            if steps == 50 or ((label, number) != ("good", 2) and label != "short")
        ),
    )


@pytest.fixture(scope="module")
def two_rows(tmp_path_factory) -> list[Run]:
    return [run(tmp_path_factory.mktemp("two"), {"none": 0.1, "good": 0.8}, ("triviaqa",))]


def measured(contrast: Measured, runs: list[Run], tmp_path, kind=WithTable):
    evidences = kind(runs, Store(tmp_path / "store"))
    return decide([Claim("F0", "A sentence.", "a paper", (contrast,))], evidences)[0].tested[0]


def test_numbers_are_summed_over_rows_and_paired_by_run(two_rows, tmp_path):
    """Equal numbers of all runs are tested with room for their rounding, or not at all."""
    found = measured(replace(SHARE, resolution=0.01), two_rows, tmp_path)
    np.testing.assert_allclose(found.evidence.values, 1.0)
    assert found.p < 0.001
    exact = measured(SHARE, two_rows, tmp_path)
    assert exact.claimed is None
    assert "same in every run" in exact.evidence.reason
    coarse = measured(replace(SHARE, resolution=4.0), two_rows, tmp_path)
    assert coarse.estimate.error == pytest.approx(4 * np.sqrt(2 / 12 / 5))


def test_the_last_value_and_the_slope_over_a_column(two_rows, tmp_path):
    alone = replace(SHARE, other=None, along="layer", where={"tag": ("NUM", "PROPN")})
    last = measured(replace(alone, reduce="last"), two_rows, tmp_path)
    np.testing.assert_allclose(last.evidence.values, 0.6 + np.arange(5) / 50)
    slope = measured(replace(alone, reduce="slope", resolution=1e-3), two_rows, tmp_path)
    np.testing.assert_allclose(slope.evidence.values, np.arange(5) / 100, atol=1e-12)


def test_a_run_without_the_last_step_has_no_number(two_rows, tmp_path):
    alone = measured(replace(PROBED, other=None), two_rows, tmp_path, WithSteps).evidence
    np.testing.assert_allclose(alone.values, [130, 131, 139, 146])
    both = measured(PROBED, two_rows, tmp_path, WithSteps).evidence
    assert both.reason == "the number is the same in every run"
    assert both.runs == 4
    # two rows are compared at the same last step
    for row, other in (("good", "short"), ("short", "good")):
        found = measured(replace(PROBED, row=row, other=other), two_rows, tmp_path, WithSteps)
        assert found.evidence.reason == "probe has no number for short at the last steps"
        assert not found.evidence.is_absent


def test_the_mean_over_steps_is_the_area_under_the_curves_of_both_rows(two_rows, store):
    """The checkpoints have the answers of the end, at step 1000; at step 0 rows are equal."""
    (last,) = verdict(BETTER, runs=two_rows, store=store).tested
    whole = replace(BETTER, over_steps=True)
    kept = [folders.with_checkpoints(two_rows[0], store, 600, 200)]
    found = verdict(whole, runs=kept, store=store)
    assert found.text == "shown"
    assert found.tested[0].contrast.compared == "good − none, mean over the steps"
    curve = [0.0, *[last.estimate.difference] * 3]
    area = np.trapezoid(curve, [0, 200, 600, 1000]) / 1000
    assert found.tested[0].estimate.difference == pytest.approx(area)
    whole_noise, noise = (one.evidence.pair.slope for one in (found.tested[0], last))
    assert whole_noise == pytest.approx(0.9**2 * noise)  # the noise of a run is that of its steps
    assert verdict(whole, runs=two_rows, store=store).text == "undecided: it kept no checkpoints"
