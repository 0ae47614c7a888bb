"""Numbers that analyses have for each intermediate run, and cells of checkpoints."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from claimed import BETTER, run, verdict

from maskpolicy.findings import Findings
from maskpolicy.replication.contrast_evidence import Evidences
from maskpolicy.replication.contrasts import Claim, Measured
from maskpolicy.replication.verdicts import decide
from maskpolicy.results.cell import STEP, Run, cell_name
from maskpolicy.store.artifacts import Store

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
    """Evidence of which one analysis's table is known."""

    made = TABLE

    def table(self, name, settings, run):
        return self.made


class WithSteps(WithTable):
    """Evidence of numbers after 50 and 100 steps, of which run 2 of `good` has the first only."""

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


@pytest.fixture
def runs(tmp_path) -> list[Run]:
    return [run(tmp_path / "it", {"none": 0.1, "good": 0.8}, ("triviaqa",))]


def measured(contrast: Measured, runs: list[Run], tmp_path, kind=WithTable):
    evidences = kind(runs, Store(tmp_path / "store"))
    return decide([Claim("F0", "A sentence.", "a paper", (contrast,))], evidences)[0].tested[0]


def test_numbers_are_summed_over_rows_and_paired_by_run(runs, tmp_path):
    found = measured(replace(SHARE, resolution=0.01), runs, tmp_path)
    np.testing.assert_allclose(found.evidence.values, 1.0)
    assert found.p < 0.001


def test_equal_numbers_of_all_runs_are_tested_with_room_for_their_rounding_or_not_at_all(
    runs, tmp_path
):
    exact = measured(SHARE, runs, tmp_path)
    assert not exact.is_tested
    assert "same in every run" in exact.evidence.reason
    coarse = measured(replace(SHARE, resolution=4.0), runs, tmp_path)
    assert coarse.estimate.error == pytest.approx(4 * np.sqrt(2 / 12 / 5))


def test_the_last_value_and_the_slope_over_a_column(runs, tmp_path):
    alone = replace(SHARE, other=None, along="layer", where={"tag": ("NUM", "PROPN")})
    last = measured(replace(alone, reduce="last"), runs, tmp_path)
    np.testing.assert_allclose(last.evidence.values, 0.6 + np.arange(5) / 50)
    slope = measured(replace(alone, reduce="slope", resolution=1e-3), runs, tmp_path)
    np.testing.assert_allclose(slope.evidence.values, np.arange(5) / 100, atol=1e-12)


def test_a_run_without_the_last_step_has_no_number(runs, tmp_path):
    alone = measured(replace(PROBED, other=None), runs, tmp_path, WithSteps).evidence
    assert alone.seeds == (0, 1, 3, 4)
    np.testing.assert_allclose(alone.values, [130, 131, 139, 146])
    both = measured(PROBED, runs, tmp_path, WithSteps).evidence
    assert (both.seeds, both.reason) == ((), "the number is the same in every run")
    assert both.runs == 4


def test_two_rows_are_compared_at_the_same_last_step(runs, tmp_path):
    for row, other in (("good", "short"), ("short", "good")):
        found = measured(replace(PROBED, row=row, other=other), runs, tmp_path, WithSteps)
        assert found.evidence.reason == "probe has no number for short at the last steps"
        assert not found.evidence.is_absent


def test_the_first_checkpoint_is_read_from_the_store(runs, tmp_path):
    store, whole = Store(tmp_path / "store"), runs[0]
    early = []
    for step in (500, 250):
        for result in whole.results:
            name = cell_name(result.policy, result.task, result.seed)
            key = hashlib.sha256(f"{name} {step}".encode()).hexdigest()
            with store.write(key, {}) as out:
                text = (whole.folder / "predictions" / f"{name}.jsonl").read_bytes()
                (out / "predictions.jsonl").write_bytes(text)
            stages = {f"evaluate {result.policy}, step {step}": key}
            config = {**result.config, STEP: step}
            early.append(replace(result, config=config, stages=stages))
    kept = [replace(whole, early=tuple(early))]
    first = replace(BETTER, step="first checkpoint")
    found = verdict(first, runs=kept, store=store)
    assert found.text == "shown"
    assert {cell.config[STEP] for cell in early} == {250, 500}
    assert verdict(first, runs=runs, store=store).text.startswith("undecided: 0 seeds")
