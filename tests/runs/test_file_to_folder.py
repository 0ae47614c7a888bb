"""The folder of a run; --verify: damaged artifacts behind whole ones are computed again."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import small

from maskpolicy.config import verbatim
from maskpolicy.errors import StoreError
from maskpolicy.executors.engines import Executor
from maskpolicy.executors.request import Request
from maskpolicy.graph.outcomes import Silent
from maskpolicy.runs.file_to_folder import compute, default_folder, prepare
from maskpolicy.store.artifacts import Store

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("paper/closed-book", "runs/paper/closed-book"),
        ("findings/closed-book", "runs/findings/closed-book"),
        (EXPERIMENTS / "findings" / "closed-book.yaml", "runs/findings/closed-book"),
        ("smoke", "runs/smoke"),
        ("mine/closed-book.yaml", "runs/closed-book"),
    ],
)
def test_experiments_of_one_file_name_have_folders_of_their_own(
    tmp_path, monkeypatch, file, folder
):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/closed-book.yaml").write_text("model: mini\n")
    written = verbatim.read_experiment(Path(file))
    assert default_folder(written) == Path(folder)
    verbatim.save(written, tmp_path / "kept")
    kept = verbatim.read_experiment(tmp_path / "kept" / verbatim.WRITTEN)
    assert default_folder(kept) == tmp_path / "kept"


def test_the_folder_of_another_experiment_is_refused_and_planned(
    call, refused, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
        Path(name, "it.yaml").write_text(f"# {name}{small.EXPERIMENT}")
    verbatim.save(verbatim.read_experiment(Path("a/it.yaml")), Path("runs/it"))
    assert "error: runs/it: holds the results of a/it.yaml: choose another --out" in refused(
        "run", "b/it.yaml"
    )
    assert [path.name for path in Path("runs/it").iterdir()] == [verbatim.WRITTEN]
    assert not Path(".maskpolicy").exists()
    said = call("plan", "b/it.yaml")[1]
    assert "`run` writes runs/it, which holds the results of a/it.yaml: give `run` anoth" in said
    assert json.loads(call("plan", "a/it.yaml", "--json")[1])["folder"] == "runs/it"


def test_a_folder_that_another_command_has_taken_meanwhile_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
        Path(name, "it.yaml").write_text(f"# {name}{small.EXPERIMENT}")
    request = Request(file="b/it.yaml", store="store")
    prepared = prepare(request, None)
    verbatim.save(verbatim.read_experiment(Path("a/it.yaml")), prepared.folder)
    with pytest.raises(StoreError, match=r"runs/it: holds the results of a/it\.yaml: choose"):
        compute(prepared, request, Executor(), 1, nullcontext(Silent()))
    kept = verbatim.read_experiment(prepared.folder / verbatim.WRITTEN)
    assert kept.file == tmp_path / "a" / "it.yaml"


def test_a_run_that_is_refused_leaves_no_folder_behind(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("it.yaml").write_text(small.EXPERIMENT)
    words = ("run", "it.yaml", "corpus={files: [none.txt]}", "model=./none")
    assert "none" in refused(*words)
    assert "GPU" in refused("run", "it.yaml", "resources.finetune.gpus=64", "--out", "a/b")
    assert "unknown" in refused("run", "it.yaml", "--only", "nope", "--out", "a/b")
    assert [path.name for path in tmp_path.iterdir()] == ["it.yaml"]


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
