"""Ranks as numbers of runs: rises, gaps at the nearest loss, and which of them are tested."""

from __future__ import annotations

import numpy as np
import pytest

from maskpolicy.findings.representations import SETS, Ranks
from maskpolicy.findings.representations.figures import MeasuredModel, panels
from maskpolicy.findings.representations.rank_numbers import NEAREST, RISE, table, values

WIDTH = 12


def spectrum(rank: int) -> np.ndarray:
    """Return squared singular values whose effective rank at 0.99 is `rank`."""
    return np.repeat([1.0, 0.0], [rank, WIDTH - rank])


def made(masks: tuple[int, ...], gap: int) -> Ranks:
    """Return ranks of `<mask>` by layer, and a gap between all tokens with and without masks."""
    layers = [{name: 4 for name in SETS} | {"mask": m, "all_with_masks": 4 + gap} for m in masks]
    squares = [{name: (spectrum(r),) * 2 for name, r in layer.items()} for layer in layers]
    return Ranks(WIDTH, dict.fromkeys(SETS, 100), squares)


def model(row, stage, loss, kept_at=0):
    line = f"{row} {stage}"
    label = f"{row}, run {stage}"
    return MeasuredModel("it", label, line, kept_at=kept_at, loss=loss, policy=row, stage=stage)


MEASURED = [
    each
    for stage, masks in enumerate([(1, 5), (2, 7), (1, 8)])
    for each in (
        (model("MLM", stage, 2.0, kept_at=50), made((1, 2), 1 + stage)),
        (model("MLM", stage, 0.5), made(masks, 5)),
        (model("MAE-LM", stage, 1.9), made((3, 3), 0)),
    )
]
BASES = {("it", "MLM"): "MLM", ("it", "MAE-LM"): "MLM"}


def found(policy, name, layer):
    return [
        (each["stage"], each["value"])
        for each in values(MEASURED, (0.99,), BASES)
        if (each["policy"], each["set"], each["layer"], each["centred"])
        == (policy, name, layer, False)
    ]


def test_a_rise_is_the_last_layer_less_the_first_of_the_model_at_the_end():
    assert found("MLM", "mask", RISE) == [(0, 4), (1, 5), (2, 7)]
    assert found("MLM", "mask", 1) == [(0, 5), (1, 7), (2, 8)]
    assert found("MAE-LM", "gap", 0) == [(0, 0), (1, 0), (2, 0)]


def test_a_gap_is_compared_at_the_nearest_loss():
    """MAE-LM ends where MLM was at step 50, not where MLM ends."""
    assert found("MAE-LM", "gap", NEAREST) == [(0, -1), (1, -2), (2, -3)]
    assert found("MLM", "gap", NEAREST) == []


def test_rises_and_gaps_at_the_nearest_loss_are_tested_over_runs():
    from scipy.stats import ttest_1samp

    rows = {
        (row["policy"], row["set"], row["layer"]): row
        for row in table(values(MEASURED, (0.99,), BASES))
        if not row["centred"]
    }
    rise, gap = rows["MLM", "mask", RISE], rows["MAE-LM", "gap", NEAREST]
    assert (rise["mean"], gap["mean"]) == (pytest.approx(16 / 3), -2)
    assert (rise["runs"], gap["runs"]) == (3, 3)
    plain = ttest_1samp([4, 5, 7], 0).pvalue
    assert rise["p (Holm)"] == pytest.approx(
        4 * plain
    )  # four tests: each with and without centring
    assert {place for place, row in rows.items() if "p (Holm)" in row} == {
        ("MLM", "mask", RISE),
        ("MAE-LM", "gap", NEAREST),
    }


def test_a_figure_has_a_line_for_each_row_with_an_interval_over_runs():
    drawn = {panel.title: panel.series for panel in panels(MEASURED, (0.99,))}
    line, flat = drawn["<mask> tokens (1b)"]
    assert (line.label, line.y) == ("MLM", [pytest.approx(4 / 3), pytest.approx(20 / 3)])
    assert line.low[1] < 20 / 3 < line.high[1]
    assert (flat.y, flat.low) == ([3, 3], (3, 3))
    (over_loss, _) = drawn["<mask> tokens, last layer"]
    assert over_loss.x == (0.5, 2.0)
    assert over_loss.y == [pytest.approx(20 / 3), 2]
