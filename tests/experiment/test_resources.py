from __future__ import annotations

import pytest

from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.budgets import Need, Resources, check_machine, resources_block, widest
from maskpolicy.experiment.definition import resolved
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline.stages import build

WHERE = "it.yaml: resources"


def test_a_training_has_a_process_for_each_gpu():
    found = resources_block({"intermediate": {"gpus": 4}, "finetune": {"processes": 2}}, WHERE)
    assert found.intermediate.members == 4
    assert (found.finetune.members, found.general.members) == (2, 1)
    assert found.gpus("intermediate", there=False) == 4
    assert (found.gpus("finetune", there=True), found.gpus("finetune", there=False)) == (2, 0)
    assert (found.gpus("evaluate", there=True), found.gpus("corpus", there=True)) == (1, 0)
    assert widest(found) == 4


def test_kinds_without_a_block_take_what_others_take():
    found = resources_block({"others": {"cpus": 2}, "annotate": {"cpus": 4}}, WHERE)
    assert (found.of("majority").cpus, found.of("annotate").cpus) == (2, 4)
    assert found.of("corpus") == Need()


def test_a_machine_without_the_gpus_is_refused():
    asked = Resources(intermediate=Need(gpus=2))
    check_machine(asked, ["intermediate"], gpus=2)
    check_machine(asked, ["finetune"], gpus=0)
    with pytest.raises(ConfigError, match=r"resources\.intermediate: takes 2 GPUs.* has 1"):
        check_machine(asked, ["intermediate"], gpus=1)


def test_resources_are_in_no_key_and_in_no_result(tmp_path):
    file = tmp_path / "it.yaml"
    file.write_text("model: mini\ncorpus: world\npolicies: [none, random]\ntasks: [zsre]\n")
    plain, asked = (load_experiment(file, keys) for keys in ([], ["resources.fit.gpus=2"]))
    assert asked.resources.fit.gpus == 2
    assert resolved(plain) == resolved(asked)
    shared = load_experiment(file, ["resources.intermediate.processes=2"])
    (one, two) = (build(each).pretrained["random", 0] for each in (plain, shared))
    assert one.key == two.key
    assert (one.local.processes, two.local.processes) == (1, 2)
