"""How many stages a machine computes at a time, and with how many threads each."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError
from maskpolicy.experiment.budgets import Need, Resources
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.pipeline.executors.engines import default_jobs, set_threads, threads_kept

BART = "facebook/bart-base"
BLOCK = {"corpus": "world", "policies": ["none"], "tasks": [], "seeds": [0]}


def experiment(model):
    return make_experiment({"model": model, **BLOCK}, "it", "", (), needs=())


@pytest.fixture
def threads(monkeypatch):
    """Return a function that sets the threads of this process and OMP_NUM_THREADS."""
    before = torch.get_num_threads()

    def threads(count, named):
        torch.set_num_threads(count)
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        if named:
            monkeypatch.setenv("OMP_NUM_THREADS", str(count))

    yield threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("model", "gigabytes", "gpus", "missing", "jobs"),
    [
        ("mini", 64, 0, 100, 8),  # a process for each core
        ("mini", 4, 0, 100, 2),  # that memory holds
        ("mini", 1, 0, 100, 1),
        ("mini", 64, 0, 3, 3),  # and not more than there are stages
        ("mini", 64, 0, 0, 1),
        ("mini", 64, 2, 100, 2),  # one for each GPU
        (BART, 64, 0, 100, 1),
        (BART, 64, 2, 100, 2),
    ],
)
def test_the_default_number_of_jobs(monkeypatch, model, gigabytes, gpus, missing, jobs):
    monkeypatch.setattr(hardware, "cores", lambda: 8)
    monkeypatch.setattr(hardware, "memory", lambda: gigabytes * 2**30)
    monkeypatch.setattr(hardware, "gpus", lambda: gpus)
    assert default_jobs(experiment(model), range(missing)) == jobs
    wide = replace(experiment(model), resources=Resources(finetune=Need(gpus=2)))
    assert default_jobs(wide, range(missing)) == (1 if gpus else jobs)


@pytest.mark.parametrize(
    ("model", "asked", "jobs", "named", "count"),
    [
        ("mini", None, 1, False, 1),  # whatever runs beside it
        ("mini", None, 4, False, 1),
        ("mini", None, 1, True, 1),  # the environment changes no bytes
        ("mini", 3, 1, False, 3),
        (BART, None, 2, False, 4),
        (BART, None, 4, True, 2),
    ],
)
def test_threads_of_a_process(threads, model, asked, jobs, named, count):
    threads(8, named)
    assert set_threads(experiment(model), asked, jobs) == torch.get_num_threads() == count


def test_a_call_in_python_leaves_the_threads_as_they_were(threads):
    threads(8, False)
    for model, count in ((BART, 4), ("mini", 1), (BART, 4)):
        with threads_kept():
            assert set_threads(experiment(model), None, 2) == count
    assert torch.get_num_threads() == 8


def test_threads_that_no_process_can_start_are_refused():
    with pytest.raises(ConfigError, match="--threads 100000: more than 1024"):
        set_threads(experiment("mini"), 100_000)


SET_THREADS = """
import json, sys
from maskpolicy.experiment.parse import make_experiment
from maskpolicy.pipeline.executors.engines import set_threads, threads_kept

experiment = make_experiment(json.loads(sys.argv[1]), "it", "", (), needs=())
with threads_kept():
    assert set_threads(experiment, None) == 1
    assert "torch" not in sys.modules
    import torch

    print(torch.get_num_threads(), torch.__config__.parallel_info())
assert torch.get_num_threads() == 8
"""


def test_a_small_model_has_one_thread_although_pytorch_is_imported_later():
    many = os.environ | {"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "8"}
    block = json.dumps({"model": "mini", **BLOCK})
    command = [sys.executable, "-c", SET_THREADS, block]
    found = subprocess.run(command, env=many, capture_output=True, text=True, check=True).stdout
    assert found.startswith("1 ")
    most = [line for line in found.splitlines() if "get_max_threads() :" in line]
    assert most
    assert all(line.endswith(" 1") for line in most)
