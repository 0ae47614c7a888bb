"""Budgets as keys hold them, and resources of a training."""

from dataclasses import replace

import pytest

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment import budgets
from maskpolicy.experiment.definition import resolved
from maskpolicy.pipeline.stages import build

SPEC = budgets.settled(budgets.Training(steps=20), "finetune")
ALL, VALIDATED = budgets.TRAININGS, ("fit", "finetune")


@pytest.mark.parametrize(
    ("stages", "every", "patience", "kept"),
    [
        (ALL, 0, 2, (0, 0)),
        (ALL, 21, 2, (0, 0)),
        (("general", "intermediate"), 5, 1, (0, 0)),  # they are not validated
        (("finetune",), 20, 0, (0, 0)),  # an evaluation after the last step chooses nothing
        (("fit",), 20, 0, (20, 0)),  # but a fitted policy reports it
        (VALIDATED, 5, 2, (5, 2)),  # may end after step 15
        (VALIDATED, 5, 3, (5, 0)),
    ],
)
def test_settings_without_an_effect_are_in_no_key(stages, every, patience, kept):
    for stage in stages:
        found = budgets.settled(replace(SPEC, eval_every=every, patience=patience), stage)
        assert found == replace(SPEC, eval_every=kept[0], patience=kept[1])


WHERE = "it.yaml: resources"


def test_a_training_has_a_process_for_each_gpu_and_kinds_without_a_block_what_others_have():
    found = budgets.resources_block(
        {"intermediate": {"gpus": 4}, "finetune": {"processes": 2}}, WHERE
    )
    assert found.intermediate.members == 4
    assert (found.finetune.members, found.general.members) == (2, 1)
    assert found.gpus("intermediate", there=False) == 4
    assert (found.gpus("finetune", there=True), found.gpus("finetune", there=False)) == (2, 0)
    assert (found.gpus("evaluate", there=True), found.gpus("corpus", there=True)) == (1, 0)
    assert budgets.widest(found) == 4
    found = budgets.resources_block({"others": {"cpus": 2}, "annotate": {"cpus": 4}}, WHERE)
    assert (found.of("majority").cpus, found.of("annotate").cpus) == (2, 4)
    assert found.of("corpus") == budgets.Need()


def test_a_machine_without_the_gpus_is_refused():
    asked = budgets.Resources(intermediate=budgets.Need(gpus=2))
    budgets.check_machine(asked, ["intermediate"], gpus=2)
    budgets.check_machine(asked, ["finetune"], gpus=0)
    with pytest.raises(ConfigError, match=r"resources\.intermediate: needs 2 GPUs.* has 1"):
        budgets.check_machine(asked, ["intermediate"], gpus=1)


def test_resources_are_in_no_key_and_in_no_result(load):
    plain, asked = load(), load("resources.fit.gpus=2")
    assert asked.resources.fit.gpus == 2
    assert resolved(plain) == resolved(asked)
    shared = load("resources.intermediate.processes=2")
    (one, two) = (build(each).pretrained["random", 0] for each in (plain, shared))
    assert one.key == two.key
    assert (one.local.processes, two.local.processes) == (1, 2)


def test_stated_gpus_decide_what_auto_means_on_every_machine(load, monkeypatch):
    monkeypatch.setattr(budgets.hardware, "is_cuda", lambda: False)
    monkeypatch.setattr(budgets.hardware, "has_bf16", lambda: False)
    graph = build(load("resources.intermediate.gpus=4", "resources.finetune.gpus=0"))
    cell = graph.cells["none", "triviaqa", 0]
    tuned, base = (graph.pretrained[row, 0] for row in ("random", "none"))
    specs = [tuned.params.spec, base.params.spec, cell.params.spec]
    found = [(spec.precision, spec.attention, spec.micro_tokens) for spec in specs]
    assert found == [("bf16", "sdpa", 0)] * 2 + [("fp32", "eager", 4096)]
