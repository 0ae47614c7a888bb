"""Budgets as the keys of trainings hold them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from maskpolicy.experiment.budgets import TRAININGS, Training, settled

SPEC = settled(Training(steps=20), "finetune")


@pytest.mark.parametrize("stage", TRAININGS)
@pytest.mark.parametrize("idle", [{"patience": 2}, {"eval_every": 21, "patience": 2}])
def test_settings_without_an_effect_are_in_no_key(stage, idle):
    assert settled(replace(SPEC, **idle), stage) == SPEC


@pytest.mark.parametrize("stage", ["general", "intermediate"])
def test_a_training_that_is_not_validated_has_no_validation_in_its_key(stage):
    assert settled(replace(SPEC, eval_every=5, patience=1), stage) == SPEC


def test_an_evaluation_after_the_last_step_chooses_nothing_but_a_fitted_policy_reports_it():
    spec = replace(SPEC, eval_every=20)
    assert settled(spec, "finetune") == SPEC
    assert settled(spec, "fit") == spec


@pytest.mark.parametrize("stage", ["fit", "finetune"])
def test_patience_counts_if_it_can_end_a_training_early(stage):
    spec = replace(SPEC, eval_every=5, patience=2)  # after step 15
    assert settled(spec, stage) == spec
    assert settled(replace(spec, patience=3), stage) == replace(spec, patience=0)
