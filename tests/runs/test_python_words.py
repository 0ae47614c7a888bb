"""Errors from Python name keyword arguments."""

from __future__ import annotations

import pytest

import maskpolicy as mp
from maskpolicy.errors import ConfigError, StageError
from maskpolicy.runs.python_words import in_python, translated


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        ("--jobs 64: name at most 2", "jobs=64: name at most 2"),
        ("found by --plugin FILE", "found by plugins=FILE"),
        ("--store s3://a/b: cannot be read", "store=s3://a/b: cannot be read"),
        ("name it with --store, or run again", "name it with store, or run again"),
        ("rank them with --mixed", "rank them with mixed"),
        ("--text: has no words: give some text", "text: has no words: give some text"),
        ("--storeroom stays", "--storeroom stays"),
    ],
)
def test_options_become_keyword_arguments(message, meant):
    assert translated(message) == meant


def test_an_error_keeps_its_kind_and_its_cause():
    @in_python
    def fails():
        raise StageError("add --jobs 1")

    with pytest.raises(StageError, match=r"^add jobs=1$") as caught:
        fails()
    assert isinstance(caught.value.__cause__, StageError)


@pytest.mark.parametrize(
    ("function", "words", "more", "says"),
    [
        ("run", ({},), {"name": 3}, "run: unknown argument 'name': choose from cache, "),
        ("run", ({},), {"plugin": "a.py"}, "did you mean 'plugins'"),
        ("run", (), {}, "run: missing a required argument: 'experiment': its arguments are"),
        ("load", ("a",), {"out": "b"}, "load: unknown argument 'out': choose from baseline"),
        ("mask", ("a",), {"ratio": 1}, "mask: missing a required argument: 'policy'"),
    ],
)
def test_arguments_that_a_function_does_not_take_are_errors_of_ours(function, words, more, says):
    with pytest.raises(ConfigError) as caught:
        getattr(mp, function)(*words, **more)
    assert says in str(caught.value)


def test_too_many_jobs_are_refused_in_words_of_python():
    with pytest.raises(ConfigError, match=r"^jobs=9999: name at most"):
        mp.run("quickstart", jobs=9999)
