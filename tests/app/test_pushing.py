"""--push and --private of several commands."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "words",
    [
        ("pack", "run"),
        ("export", "run", "random", "--out", "model"),
        ("pretrain", "--model", "mini", "--policy", "random", "--corpus", "a.txt", "--out", "m"),
    ],
)
def test_what_the_hub_cannot_do_is_refused_before_any_work(refused, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert "--push it: write OWNER/NAME" in refused(*words, "--push", "it")
    assert "--private: is for --push OWNER/NAME: give both" in refused(*words, "--private")
    assert not list(tmp_path.iterdir())
