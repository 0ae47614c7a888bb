"""An executor that cannot be used is one line, before any work and within seconds."""

import socket

import pytest

from maskpolicy.core import errors
from maskpolicy.pipeline.executors import ray_engine
from maskpolicy.pipeline.graph import calls

YAML = "model: mini\ncorpus: world\npolicies: [none]\ntasks: [zsre]\nworld: {people: 8}\n"


@pytest.fixture
def asked(tmp_path, refused):
    """Run with further words; returns the one line."""
    file = tmp_path / "it.yaml"
    file.write_text(YAML)
    places = ("--store", tmp_path / "store", "--out", tmp_path / "out")

    def asked(*words):
        line = refused("run", file, *places, *words)
        assert not list((tmp_path / "store").glob("artifacts/*"))
        return line

    return asked


def test_processes_of_a_launcher(asked, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "a launcher has started several processes (WORLD_SIZE)" in asked()


def test_a_missing_extra(asked, monkeypatch):
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    assert "pip install 'maskpolicy[ray]'" in asked("--executor", "ray")


def test_an_address_where_nobody_answers(asked):
    pytest.importorskip("ray")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        assert "nobody answers" in asked("--executor", f"ray=127.0.0.1:{one.getsockname()[1]}")


def test_an_address_where_somebody_else_answers(asked, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_engine, "_CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        line = asked("--executor", f"ray=127.0.0.1:{other.getsockname()[1]}")
    assert "accepts connections, but is not a Ray cluster" in line


def test_a_killed_process_of_a_group_is_lost_as_elsewhere():
    errors_of_ray = pytest.importorskip("ray.exceptions")
    error = errors_of_ray.RayTaskError("compute", "", calls.Lost(calls.KILLED))
    found = ray_engine._cause_of(error)
    assert isinstance(found, calls.Lost) and str(found) == calls.KILLED
