"""Folders to write to, and paths in texts that are shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskpolicy.errors import StoreError
from maskpolicy.files import check_folder, claim_folder, relative_paths


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/work/runs/a/x.json: line 3", "x.json: line 3"),
        ("in /home/me/work/data/nq.jsonl, twice", "in ../../data/nq.jsonl, twice"),
        ("data=/home/me/else", "data=../../../else"),
        ("'/mnt/disk/wiki.txt' and /opt/b/c", "'…/wiki.txt' and …/c"),
        ("/home/other/secret/x", "…/x"),
        ("file:///mnt/disk/x", "…/x"),
        ("see https://example.org/a/b and s3://bucket/a/b", None),
        ("../../data/nq.jsonl or a/b/c and/or/not, …/x, ~/a/b", None),
        ("</script></b>", None),
        ("1/2/3 of /s", None),
    ],
)
def test_no_path_in_a_text_is_absolute(text, shown):
    assert relative_paths(text, Path("/home/me/work/runs/a")) == (text if shown is None else shown)


def test_a_folder_is_checked_before_it_is_created(tmp_path):
    check_folder(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    claim_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    for place, why in (("file", "is a file, not a folder"), ("file/a/b", "file is a file; choose")):
        with pytest.raises(StoreError, match=why):
            check_folder(tmp_path / place)


def test_texts_are_found_at_any_depth(tmp_path):
    value = {"a": [1, None, {"b": f"{tmp_path}/x"}], "c": (f"{tmp_path}/y", True)}
    assert relative_paths(value, tmp_path) == {"a": [1, None, {"b": "x"}], "c": ["y", True]}
