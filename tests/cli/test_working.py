"""maskpolicy work: exit codes, and what it refuses before any work."""

from __future__ import annotations

import os

import pytest

from maskpolicy.version import VERSION

YAML = """
model: mini
corpus: world
policies: [none]
tasks: [zsre]
world: {people: 20, general_people: 6}
general: {steps: 2, batch_size: 4}
finetune: {steps: 2, batch_size: 4, warmup: 1}
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "it.yaml").write_text(YAML)
    return tmp_path / "it.yaml"


def test_a_worker_computes_all_and_the_run_finds_it(call, file, tmp_path):
    store = ("--store", tmp_path / "store")
    digest = call("plan", file, *store, "--digest")[1].strip()
    code, out, err = call("work", file, *store, "--plan", digest)
    assert (code, out) == (0, "")
    assert f"{os.uname().nodename} {os.getpid()}: finetune none, zsre, seed 0: started" in err
    assert err.splitlines()[-1] == "10 stages are done, 10 of them by this worker"
    code, out, _ = call("run", file, *store, "--out", tmp_path / "out")
    assert code == 0
    assert "none" in out
    table = [line.split() for line in out.splitlines() if line.startswith("│ finetune")]
    assert [row[3] for row in table] == ["0"]


@pytest.mark.parametrize(
    ("digest", "why"),
    [
        ("0.0.0:00", f"has maskpolicy {VERSION}"),
        (f"{VERSION}:0000000000000000", "plans other stages"),
        ("no-digest", "--digest"),
    ],
)
def test_another_plan_is_refused_before_any_work(refused, file, tmp_path, digest, why):
    assert why in refused("work", file, "--store", tmp_path / "store", "--plan", digest)
    assert not (tmp_path / "store").exists()


def test_a_plugin_with_other_bytes_is_another_plan(call, refused, file, tmp_path):
    plugin = tmp_path / "my_metric.py"
    text = "from maskpolicy import metric\n\n\n@metric('mine')\ndef mine(prediction, answers):\n"
    words = (file, "--store", tmp_path / "store", "--plugin", plugin)
    plugin.write_text(f"{text}    return 0.0\n")
    digest = call("plan", *words, "--digest")[1].strip()
    plugin.write_text(f"{text}    return 1.0\n")
    assert "plans other stages" in refused("work", *words, "--plan", digest)
