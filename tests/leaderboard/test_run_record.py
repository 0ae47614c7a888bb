from __future__ import annotations

import shutil

import pytest

from maskpolicy.core.errors import DataError
from maskpolicy.leaderboard.results import run_record
from maskpolicy.pipeline.store.artifacts import Store


def run(folder, store):
    """Write run.json of a run without stages."""
    folder.mkdir(parents=True)
    run_record.save(folder, "it", {"seconds": 1.5, "jobs": 2}, [], Store(store))
    return folder


def test_a_run_names_its_store(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    assert run_record.store_of(run(tmp_path / "runs" / "it", store)) == str(store)


def test_run_and_store_may_move_together(tmp_path):
    (tmp_path / "here" / "store").mkdir(parents=True)
    run(tmp_path / "here" / "it", tmp_path / "here" / "store")
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert run_record.store_of(tmp_path / "there" / "it") == str(tmp_path / "there" / "store")


def test_a_store_that_is_gone_is_none(tmp_path):
    assert run_record.store_of(run(tmp_path / "it", tmp_path / "never made")) is None
    assert run_record.store_of(tmp_path) is None


def test_how_a_run_went_reads_back(tmp_path):
    record = run_record.read(run(tmp_path / "it", tmp_path / "store"))
    assert record is not None
    assert (record["experiment"], record["seconds"], record["jobs"]) == ("it", 1.5, 2)
    assert "torch" in record["versions"]
    assert run_record.read(tmp_path) is None


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_no_run_wrote_is_named(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    for reads in (run_record.read, run_record.store_of):
        with pytest.raises(DataError, match=r"run.json: not .*: .*remove it"):
            reads(tmp_path)


def test_a_run_names_the_url_of_its_store(tmp_path):
    (tmp_path / "run.json").write_text('{"store": "s3://bucket/prefix"}')
    assert run_record.store_of(tmp_path) == "s3://bucket/prefix"
