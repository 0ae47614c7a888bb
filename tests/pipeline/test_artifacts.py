"""The store returns committed bytes, or nothing; copies do not change their source."""

import json
import logging
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from stores import KEY, OTHER, RECORDS, THIRD, commit, flip, names, save, text_of

from maskpolicy.core import hardware
from maskpolicy.core.errors import ConfigError, DataError, StageError, StoreError
from maskpolicy.core.keys import digest
from maskpolicy.pipeline.executors.engines import threads_kept
from maskpolicy.pipeline.store import manifest
from maskpolicy.pipeline.store.artifacts import Store
from maskpolicy.pipeline.store.opening import open_store
from maskpolicy.pipeline.store.upkeep import copy


def test_the_manifest_says_what_was_computed_and_how(store):
    record = {"kind": "x", "params": {"lr": 0.1}, "facts": {}}
    with store.write(KEY, record) as out:
        (out / "file").write_text("hello")
        record["facts"]["device"] = "cpu"
    manifest = store.get(KEY).manifest
    assert manifest == json.loads((store.path(KEY) / "MANIFEST.json").read_text())
    assert manifest["record"] == {"kind": "x", "params": {"lr": 0.1}, "facts": {"device": "cpu"}}
    sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert manifest["files"] == [{"path": "file", "size": 5, "sha256": sha256}]
    assert {"maskpolicy", "python", "torch"} <= set(manifest["versions"])
    assert manifest["seconds"] >= 0


def test_an_exception_commits_nothing_and_keeps_the_checkpoints(store):
    with pytest.raises(ValueError, match="no"), store.write(KEY, {}) as out:
        (out / "half").write_text("half")
        save(store)
        raise ValueError("no")
    assert store.get(KEY) is None
    assert names(store, "temporary") == []
    assert store.checkpoints(KEY).steps() == [1]
    commit(store)
    assert names(store, "checkpoints") == []


REFUSED = {
    r"a stage must not write MANIFEST\.json": lambda out: (out / "MANIFEST.json").write_text("{}"),
    "link: a stage may write only plain files": lambda out: (out / "link").symlink_to("/dev/null"),
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_a_stage_may_not_write_is_one_line(store, line):
    with pytest.raises(StageError, match=line), store.write(KEY, {}) as out:
        REFUSED[line](out)
    assert not store.has(KEY)


def test_a_record_that_is_not_json_is_an_error_before_the_work(store):
    record = {"local": Path("x")}
    with pytest.raises(ConfigError, match=r"record\.local"), store.write(KEY, record):
        raise AssertionError("the work was begun")


@pytest.mark.parametrize("key", ["../elsewhere", "A" * 64, "a" * 63])
def test_a_key_is_a_digest(store, key):
    for use in (store.path, store.is_busy, store.recall, lambda name: store.lock(name).__enter__()):
        with pytest.raises(StoreError, match="not a key"):
            use(key)


def link(path):
    (path / "deep" / "file.txt").rename(path.parent / "elsewhere")
    (path / "deep" / "file.txt").symlink_to(path.parent / "elsewhere")


def be_another(path):
    commit(Store(path.parent.parent), OTHER)
    (path.parent / OTHER / "MANIFEST.json").replace(path / "MANIFEST.json")


DAMAGES = {
    "a flipped bit": lambda path: flip(path / "deep" / "file.txt"),
    "one file more": lambda path: (path / "extra.txt").write_text("extra"),
    "a link": link,
    "another manifest": be_another,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_artifact_is_quarantined_and_a_miss(store, damage, caplog):
    DAMAGES[damage](commit(store))
    fresh = Store(store.root)
    assert (fresh.peek(KEY) is None) == (damage != "a flipped bit")
    assert fresh.verify(KEY) is not None
    assert fresh.path(KEY).exists()
    assert fresh.get(KEY) is None
    assert "an artifact is damaged and will be computed again" in caplog.text
    assert not fresh.path(KEY).exists()
    assert len(names(fresh, "quarantine")) == 1
    commit(fresh)
    assert text_of(fresh) == "content"


def test_hidden_files_of_desktops_and_file_systems_do_no_harm(store):
    (commit(store) / "deep" / ".DS_Store").write_text("")
    assert Store(store.root).get(KEY) is not None


def test_one_file_of_an_artifact_is_as_committed_or_left_out(store, caplog):
    path = commit(store) / "deep" / "file.txt"
    assert store.file(KEY, "deep/file.txt") == path
    assert store.file(KEY, "missing.txt") is store.file(OTHER, "deep/file.txt") is None
    assert not caplog.records
    flip(path)
    with caplog.at_level(logging.WARNING):
        assert store.file(KEY, "deep/file.txt") is None
    assert "file.txt is damaged, and left out: `maskpolicy store verify`" in caplog.text


def test_an_error_of_the_stage_is_not_reported_as_one_of_the_disk(store, tmp_path):
    with pytest.raises(FileNotFoundError), store.write(KEY, {}):
        (tmp_path / "nowhere").read_text()
    with pytest.raises(DataError, match="row 3"), store.write(KEY, {}):
        raise DataError("row 3: No space left on device is not an answer")


def test_a_full_disk_hidden_in_another_error_is_found(store):
    with pytest.raises(StoreError, match="no room to write"), store.write(KEY, {}) as out:
        (out / "tensors").symlink_to("/dev/full")
        try:
            (out / "tensors").write_text("x")
        except OSError as error:
            raise RuntimeError("could not serialise") from error


KEYS = [KEY, OTHER, THIRD]


@pytest.fixture
def source(tmp_path):
    store = Store(tmp_path / "from")
    for key in KEYS:
        with store.write(key, RECORDS[key]) as out:
            (out / "file").write_text(f"of {key}")
    return store


@pytest.fixture
def target(tmp_path):
    return Store(tmp_path / "to")


def test_a_copy_that_lacks_a_file_is_replaced(source, target):
    copy(source, target)
    (target.path(KEYS[0]) / "file").unlink()
    assert copy(source, Store(target.root)).new == KEYS[:1]
    assert all(Store(target.root).verify(key) is None for key in KEYS)


@pytest.mark.parametrize("keys", [None, KEYS])
@pytest.mark.parametrize("places", ["folders", "buckets"])
def test_a_copy_recalls_what_was_dropped(tmp_path, url, places, keys):
    for name in ("from", "to"):
        (tmp_path / "bucket" / name).mkdir()
    place = url if places == "buckets" else str(tmp_path)
    source, target = (open_store(f"{place}/{name}", tmp_path / "copies") for name in ("from", "to"))
    for key in KEYS:
        commit(source, key)
    source.drop(KEYS[0])
    copied = copy(source, target, keys)
    assert (copied.new, copied.missing, copied.damaged) == (KEYS[1:], [], [])
    assert open_store(target.place).recall(KEYS[0]) == source.recall(KEYS[0])
    target.drop(KEYS[1])
    copy(source, target)
    assert target.committed() == {*KEYS[1:]}


def of_stranger(store, key, **facts):
    """Change facts of a manifest, or leave them out (None), so that its own digest is right."""
    path = store.path(key) / manifest.NAME
    changed = manifest.parse(path) | facts
    del changed["sha256"]
    changed = {name: value for name, value in changed.items() if value is not None}
    manifest.write_json(path, changed | {"sha256": digest(changed)})


OUTSIDE = ["../../../owned", "/etc/hostname", "a\\b", "..", ".", "", "a/../b", "a\0", manifest.NAME]
ENTRY = {"path": "file", "size": 3, "sha256": "0" * 64}


@pytest.mark.parametrize(
    "facts",
    [
        *({name: None} for name in ("files", "record", "machine", "seconds")),
        *({name: 7} for name in ("files", "record", "machine")),
        {"seconds": "long"},
        {"files": [[]]},
        *({"files": [ENTRY | {"path": path}]} for path in OUTSIDE),
        *({"files": [ENTRY | {name: [1]}]} for name in ENTRY),
        {"files": [ENTRY | {"size": -1}]},
        {"files": [ENTRY | {"sha256": "../" * 20}]},
    ],
    ids=str,
)
def test_the_manifest_of_a_stranger_is_checked(source, target, tmp_path, facts):
    (tmp_path / "owned").write_text("outside")
    of_stranger(source, KEYS[0], **facts)
    copied = copy(source, target)
    assert (copied.damaged, copied.new) == (KEYS[:1], KEYS[1:])
    assert source.get(KEYS[0]) is None


@pytest.mark.parametrize(
    "change",
    [{"kind": "other"}, {"version": 2}, {"params": {"lr": 1}}, {"inputs": {"a": KEYS[1]}}, None],
)
def test_an_artifact_under_the_key_of_another_record_is_damaged(source, target, change):
    record = {} if change is None else RECORDS[KEYS[0]] | change
    of_stranger(source, KEYS[0], record=record)
    assert "belongs elsewhere: its key is not that of its record" in source.verify(KEYS[0])
    copied = copy(source, target)
    assert (copied.damaged, copied.new) == (KEYS[:1], KEYS[1:])
    assert (source.get(KEYS[0]) is None) == bool(record)  # it is computed again


def test_findings_are_compared_with_what_their_key_is_made_of(source, target):
    record = {"kind": manifest.FINDINGS, "version": 1, "params": {}, "inputs": {}}
    of_stranger(source, KEYS[0], record=record, machine={})  # as earlier versions stored them
    of_stranger(source, KEYS[1], record=record | {manifest.KEYED: RECORDS[KEYS[1]]})
    assert [source.verify(key) for key in KEYS] == [None] * 3
    for more in ({manifest.KEYED: RECORDS[KEYS[1]]}, {manifest.KEYED: None}, {}):
        of_stranger(source, KEYS[2], record=record | more)
        assert "belongs elsewhere" in source.verify(KEYS[2])
    assert copy(source, target).damaged == KEYS[2:]


def test_a_link_is_no_file_of_an_artifact(source, target):
    path = source.path(KEYS[0]) / "file"
    path.unlink()
    path.symlink_to("/dev/zero")
    entry = ENTRY | {"size": path.lstat().st_size}
    of_stranger(source, KEYS[0], files=[entry])
    assert copy(source, target).damaged == KEYS[:1]


def test_a_manifest_names_threads_instructions_and_the_gpu(monkeypatch):
    settings = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"}
    for name, value in {**settings, "OMP_NUM_THREADS": "5"}.items():
        monkeypatch.setenv(name, value)
    with threads_kept(), monkeypatch.context() as without_torch:
        torch.set_num_threads(3)  # as `--threads 3` does
        machine = manifest.surroundings()["machine"]
        without_torch.delitem(sys.modules, "torch")
        assert (machine["threads"], manifest.surroundings()["machine"]["threads"]) == ("3", "5")
    assert machine["settings"].items() >= settings.items()
    for gpu in (None, "H100"):  # which an annotation used before another one did
        monkeypatch.setattr(hardware, "gpu_in_use", lambda gpu=gpu: gpu)
        assert manifest.surroundings("annotate")["machine"].get("gpu") == gpu


def test_others_may_read_what_a_library_wrote_for_its_user_alone(store):
    before = os.umask(0o002)
    try:
        with store.write(KEY, {}) as out:
            save_file({"weights": np.zeros(2)}, out / "model.safetensors")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in store.path(KEY).iterdir()} == {0o664}
