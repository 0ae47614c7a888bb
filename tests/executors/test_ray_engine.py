"""What cannot be a cluster is one line, before any work and without a wait of minutes."""

from __future__ import annotations

import socket

import pytest

from maskpolicy.executors import ray_engine

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
        (("ray", "--jobs", "2"), "leave --jobs out"),
    ],
)
def test_words_that_name_no_executor(words, told, asked):
    assert told in asked(*words)


def test_a_missing_extra(asked, monkeypatch):
    monkeypatch.setattr(ray_engine, "find_spec", lambda name: None)
    assert "pip install 'maskpolicy[ray]'" in asked("ray")


def test_an_address_that_is_none(asked):
    pytest.importorskip("ray")
    assert "is not an address" in asked("ray=somewhere")


def test_an_address_where_nobody_answers(asked):
    pytest.importorskip("ray")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    assert "nobody answers" in asked(f"ray=127.0.0.1:{port}")


def test_an_address_where_somebody_else_answers(asked, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_engine, "_CONNECT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert "accepts connections, but is no Ray cluster" in asked(f"ray=127.0.0.1:{port}")
