"""maskpolicy work, which no longer computes."""

from __future__ import annotations


def test_it_is_one_line_that_names_what_computes_now(refused, tmp_path):
    (tmp_path / "it.yaml").write_text("model: mini\n")
    for words in ((), (tmp_path / "it.yaml", "--store", tmp_path / "store", "--plan", "0.1:00")):
        assert "--executor" in refused("work", *words)
    assert not (tmp_path / "store").exists()
