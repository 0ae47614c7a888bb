"""How many stages a machine computes at a time, and with how many threads each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from maskpolicy import hardware
from maskpolicy.config.parse import make_experiment
from maskpolicy.config.resources import Need, Resources
from maskpolicy.errors import ConfigError
from maskpolicy.executors.capacity import check_jobs, default_jobs, is_small, set_threads

MANY = range(100)


def given(model):
    return {"model": model, "corpus": "world", "policies": ["none"], "tasks": [], "seeds": [0]}


def experiment(model):
    return make_experiment(given(model), "it", "", (), needs=())


@pytest.fixture
def machine(monkeypatch):
    """Return a function that changes the machine."""

    def machine(cores=8, gigabytes=64, gpus=0):
        monkeypatch.setattr(hardware, "cores", lambda: cores)
        monkeypatch.setattr(hardware, "memory", lambda: gigabytes * 2**30)
        monkeypatch.setattr(hardware, "gpus", lambda: gpus)

    return machine


@pytest.fixture
def threads(monkeypatch):
    """Return a function that sets the threads of this process and OMP_NUM_THREADS."""
    before = torch.get_num_threads()

    def threads(count, named=False):
        torch.set_num_threads(count)
        if named:
            monkeypatch.setenv("OMP_NUM_THREADS", str(count))
        else:
            monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    yield threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("model", "small"),
    [
        ("mini", True),
        ({"kind": "encoder", "name": "mini"}, True),
        ({"kind": "encoder", "name": "base"}, False),
        ("facebook/bart-base", False),
    ],
)
def test_small_models_are_those_whose_preset_says_so(model, small):
    assert is_small(experiment(model)) == small


def test_a_small_model_gets_a_process_for_each_core_that_memory_holds(machine):
    mini = experiment("mini")
    machine(cores=8)
    assert default_jobs(mini, MANY) == 8
    machine(cores=8, gigabytes=4)
    assert default_jobs(mini, MANY) == 2
    machine(cores=8, gigabytes=1)
    assert default_jobs(mini, MANY) == 1


def test_there_are_no_more_processes_than_missing_stages(machine):
    machine(cores=8)
    assert default_jobs(experiment("mini"), range(3)) == 3
    assert default_jobs(experiment("mini"), ()) == 1


def test_a_large_model_gets_the_whole_machine_or_each_gpu(machine):
    machine(cores=8)
    assert default_jobs(experiment("facebook/bart-base"), MANY) == 1
    machine(cores=8, gpus=2)
    assert default_jobs(experiment("facebook/bart-base"), MANY) == 2
    assert default_jobs(experiment("mini"), MANY) == 2
    wide = replace(experiment("mini"), resources=Resources(finetune=Need(gpus=2)))
    assert default_jobs(wide, MANY) == 1


def test_a_launcher_leaves_one_job(machine, monkeypatch):
    machine(cores=8)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert default_jobs(experiment("mini"), MANY) == 1


def test_more_jobs_than_cores_are_refused(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    check_jobs(4)
    with pytest.raises(ConfigError, match="at most 4"):
        check_jobs(5)


def test_a_small_model_has_one_thread_whatever_runs_beside_it(threads):
    for jobs in (1, 4):
        threads(8)
        assert set_threads(experiment("mini"), None, jobs) == torch.get_num_threads() == 1


def test_a_large_model_has_its_share_of_the_threads(threads):
    threads(8)
    assert set_threads(experiment("facebook/bart-base"), None, 2) == torch.get_num_threads() == 4


def test_users_can_name_the_threads(threads):
    threads(8)
    assert set_threads(experiment("mini"), 3) == torch.get_num_threads() == 3
    threads(8, named=True)
    assert set_threads(experiment("facebook/bart-base"), None, 4) == torch.get_num_threads() == 2


def test_the_environment_changes_no_bytes_of_a_small_model(threads):
    threads(8, named=True)
    assert set_threads(experiment("mini"), None) == torch.get_num_threads() == 1


SET_THREADS = """
import json, sys
from maskpolicy.config.parse import make_experiment
from maskpolicy.executors.capacity import set_threads

experiment = make_experiment(json.loads(sys.argv[1]), "it", "", (), needs=())
assert set_threads(experiment, None) == 1
assert "torch" not in sys.modules
import torch

print(torch.get_num_threads(), torch.__config__.parallel_info())
"""


def test_a_small_model_has_one_thread_although_pytorch_is_imported_later():
    many = os.environ | {"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "8"}
    command = [sys.executable, "-c", SET_THREADS, json.dumps(given("mini"))]
    found = subprocess.run(command, env=many, capture_output=True, text=True, check=True).stdout
    assert found.startswith("1 ")
    most = [line for line in found.splitlines() if "get_max_threads() :" in line]
    assert most
    assert all(line.endswith(" 1") for line in most)
