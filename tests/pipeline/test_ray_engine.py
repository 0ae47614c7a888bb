"""What cannot be a cluster is one line, before any work and without a wait of minutes."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
import tiny

from maskpolicy.core import errors
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline.executors import ray_engine
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.graph.nodes import Stage
from maskpolicy.pipeline.store.artifacts import Store

YAML = "model: mini\ncorpus: world\npolicies: [none]\ntasks: [zsre]\nworld: {people: 8}\n"


@pytest.fixture
def asked(tmp_path, refused):
    """Run with an executor; returns the one line."""
    file = tmp_path / "it.yaml"
    file.write_text(YAML)
    places = ("--store", tmp_path / "store", "--out", tmp_path / "out")

    def asked(executor, *words):
        line = refused("run", file, *places, "--executor", executor, *words)
        assert not list((tmp_path / "store").glob("artifacts/*"))
        return line

    return asked


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("rai",), "did you mean 'ray'"),
        (("ray=",), "only ray takes an address"),
        (("slurm=host:1",), "only ray takes an address"),
        (("ray", "--jobs", "2"), "leave it out"),
    ],
)
def test_words_that_name_no_executor(words, told, asked):
    assert told in asked(*words)


def test_a_missing_extra(asked, monkeypatch):
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    assert "pip install 'maskpolicy[ray]'" in asked("ray")


def test_addresses_where_nobody_answers(asked):
    pytest.importorskip("ray")
    assert "is not an address" in asked("ray=somewhere")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        assert "nobody answers" in asked(f"ray=127.0.0.1:{one.getsockname()[1]}")


def test_an_address_where_somebody_else_answers(asked, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_engine, "_CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert "accepts connections, but is no Ray cluster" in asked(f"ray=127.0.0.1:{port}")


@pytest.mark.cluster
@pytest.mark.slow
def test_a_ray_of_this_machine_computes_what_one_process_computes(tmp_path, monkeypatch):
    """A task that is killed is computed again; the third time it fails, alone."""
    pytest.importorskip("ray")
    tests = str(Path(tiny.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([tests, *sys.path]))  # of Ray's workers
    monkeypatch.setattr(ray_engine, "_REPAIR", 0.5)
    (tmp_path / "it.yaml").write_text(YAML)
    store, reference = Store(tmp_path / "store"), Store(tmp_path / "reference")
    execute(tiny.diamond(), reference)
    fatal = Stage("tiny-fatal", "", tiny.Fate(0), {}, tiny.TinyLocal(count=str(tmp_path / "count")))
    notes = []
    with ray_engine.RayEngine("", load_experiment(tmp_path / "it.yaml")) as engine:
        stages = [*tiny.diamond(), fatal]
        outcomes = execute(stages, store, lambda event: notes.append(event.note), engine=engine)
    assert [outcomes[each.key].error for each in tiny.diamond()] == [None] * 4
    assert tiny.content(store, tiny.diamond()) == tiny.content(reference, tiny.diamond())
    assert "3 times in a row" in outcomes[fatal.key].error
    assert (tmp_path / "count").read_text().count("\n") == 3
    assert any(note.startswith("x ") for note in notes)
