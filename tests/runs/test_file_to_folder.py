"""run --verify: what a run rests on is read again, and what is damaged is computed again."""

from __future__ import annotations

import pytest
import small

from maskpolicy.store.artifacts import Store


def flip(path):
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


@pytest.mark.slow
def test_a_damaged_artifact_behind_whole_ones_is_named_and_computed_again(call, tmp_path):
    (tmp_path / "it.yaml").write_text(small.EXPERIMENT)
    store = Store(tmp_path / "store")
    words = ("run", tmp_path / "it.yaml", "--store", store.root, "--out", tmp_path / "out")
    assert call(*words)[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out" / "results").iterdir()}
    behind = [
        store.path(known["key"])
        for known in store.records(dropped=False)
        if known["record"]["kind"] in ("general", "corpus", "intermediate")
    ]
    damaged = [next(path for path in sorted(one.rglob("*.safetensors"))) for one in behind]
    for path in damaged:
        flip(path)
    code, _, err = call("doctor", "--verify", "--store", store.root)
    assert code == 1
    code, _, err = call(*words, "--verify")
    assert code == 0
    assert err.count("is damaged and will be computed again") == len(damaged) >= 3
    assert {path: path.read_bytes() for path in before} == before
    assert call("doctor", "--verify", "--store", store.root)[0] == 0
    assert len(list(store.root.glob("quarantine/*"))) == len(damaged)
