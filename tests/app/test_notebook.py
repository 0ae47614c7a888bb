"""The Python interface: run experiments, load runs and read their results."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import encoders
import folders
import matplotlib.figure
import numpy as np
import pandas as pd
import pytest
import small
import torch
import yaml
from pages import SMALL
from refusals import messages
from transformers import AutoTokenizer

import maskpolicy as mp
from maskpolicy.app import packing
from maskpolicy.plugins import discovery

ANALYSIS = """
from dataclasses import dataclass

from maskpolicy import Findings, analysis


@analysis("counts-cells")
@dataclass(frozen=True)
class Counts:
    '''How many cells there are.'''

    def analyse(self, runs, store):
        return Findings(("n",), ({"n": len(runs[0].results)},), ("n: the number of cells",))
"""
TASKS = [{"name": name, "limit": {"test": 8}} for name in ("zsre", "triviaqa")]
TINY = yaml.safe_load(small.experiment(tasks=TASKS, seeds=[0, 1]))
ONE_STEP = "finetune.steps=1"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def done(place) -> mp.Runs:
    (place / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    folders = {"out": place / "out", "store": place / "store"}
    return mp.run(place / "tiny.yaml", ONE_STEP, **folders, progress=False)


def test_scores_have_a_row_for_each_cell(done):
    frame = done.scores()
    columns = ["run", "policy", "task", "seed", "metric", "score", "n", "error"]
    assert list(frame.columns) == columns
    rows = [(p, t, s) for p in ("none", "random") for t in ("zsre", "triviaqa") for s in (0, 1)]
    assert set(zip(frame.policy, frame.task, frame.seed, strict=True)) == {*rows}
    assert set(frame.run) == {"out"} and frame.error.isna().all()
    assert ((frame.score >= 0) & (frame.score <= 100) & (frame.n > 0)).all()


def test_the_leaderboard_has_a_row_for_each_policy_and_task(done):
    frame = done.leaderboard().set_index(["policy", "task"])
    means = done.scores().groupby(["policy", "task"]).score.mean()
    assert len(frame) == len(means) == 4
    for index, mean in means.items():
        assert frame.loc[index, "mean"] == pytest.approx(mean, abs=1e-4)
    assert set(frame.baseline) == {"none"} and set(frame.seeds) == {2}
    difference = means["random", "zsre"] - means["none", "zsre"]
    assert frame.loc[("random", "zsre")].delta == pytest.approx(difference, abs=1e-4)
    assert frame.loc["none"].delta.isna().all()
    assert frame.majority.notna().all()


def test_figures_and_pages_are_made(done, tmp_path, monkeypatch):
    for figure in (done.plot(), done.plot("lengths", passages=5)):
        assert isinstance(figure, matplotlib.figure.Figure) and figure.axes
    assert done.plot()._repr_png_().startswith(b"\x89PNG")
    table = done._repr_html_()
    assert "(difference to none).</p>" in table
    assert table.startswith("<table") and "<td>random</td>" in table
    page = done.page(tmp_path / "page.html")
    assert page.read_text().lower().startswith("<!doctype html")
    model = done.export("random", tmp_path / "model")
    assert {"config.json", "tokenizer.json", "README.md"} <= {p.name for p in model.iterdir()}
    assert "maskpolicy export" in (model / "README.md").read_text()
    with pytest.raises(mp.ConfigError, match="unknown task 'x'"):
        done.export("random", tmp_path / "other", task="x")
    assert "zsre" in repr(done) and len(repr(done)) < 6000
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "random" in repr(done) and "\x1b" not in repr(done)


def test_an_analysis_without_a_plot_says_what_it_has(done, tmp_path):
    (tmp_path / "mine.py").write_text(ANALYSIS)
    discovery.load_files([tmp_path / "mine.py"])
    said = "plot counts-cells: has a table and no plot: `maskpolicy analyze counts-cells RUN`"
    with pytest.raises(mp.DataError, match=said):
        done.plot("counts-cells")


def test_finished_runs_are_loaded_and_joined_if_they_can_be_compared(done, place):
    store, quiet = place / "store", {"progress": False, "store": place / "store"}
    assert mp.load(place / "out", store=store).scores().equals(done.scores())
    two = mp.run(TINY | {"seeds": [2]}, ONE_STEP, out=place / "two", store=store, jobs=np.int64(1))
    joined = mp.load(place / "out", place / "two", store=store)
    assert sorted(set(joined.scores().seed)) == [0, 1, 2]
    assert joined.masks("random", passages=3).equals(done.masks("random", passages=3))
    for wrong in ({"passages": "5"}, {"passages": -5}, {"seed": -1}):
        with pytest.raises(mp.ConfigError, match=rf"^masks.{next(iter(wrong))}: "):
            joined.masks("random", **wrong)
    assert len(two.scores()) == 4
    again = mp.run(TINY | {"seeds": [1]}, out=place / "two", **quiet)  # a dict has no file
    assert set(again.scores().seed) == {1}
    with pytest.raises(mp.StoreError, match=r"the results of .*tiny.yaml: choose another out"):
        mp.run(TINY, out=place / "out", store=store)
    with pytest.raises(mp.ConfigError, match=r"finetune.steps"):
        mp.load(place / "out", place / "two", store=store)
    assert len(mp.load(place / "out", place / "two", store=store, mixed=True).scores()) == 12


def test_dicts_without_a_name_have_folders_of_their_own(done, place, monkeypatch):
    monkeypatch.chdir(place)
    quiet = {"store": "store", "progress": False}
    keys = {**TINY, "seeds": np.arange(1), "world": TINY["world"] | {"people": np.int64(8)}}
    turned, other = dict(reversed(keys.items())), {**keys, "seeds": [1]}
    runs = [mp.run(each, ONE_STEP, **quiet) for each in (keys, turned, other)]
    names = [each.runs[0].folder.name for each in runs]
    assert names[0] == names[1] != names[2]
    assert all(re.fullmatch("experiment-[0-9a-f]{8}", name) for name in names)
    assert set(runs[0].scores().seed) == {0} and set(runs[2].scores().seed) == {1}


@pytest.mark.parametrize(("call", "says"), messages(__file__, "python.txt"))
def test_a_wrong_argument_is_named(done, call, says):
    names = {"mp": mp, "runs": done, "mask": partial(mp.mask, tokenizer=small.tokenizer())}
    with pytest.raises(mp.ConfigError, match=re.escape(says)):
        eval(call, {**names, "TINY": TINY})


def test_a_stage_that_fails_is_an_error_that_says_where_to_look(place):
    broken = TINY | {"intermediate": {"steps": 2, "lr": 1e30, "warmup": 0, "precision": "fp32"}}
    with pytest.raises(mp.MaskpolicyError, match=r"leaderboard.md say why"):
        mp.run(broken, out=place / "broken", store=place / "store", progress=False)
    frame = mp.load(place / "broken", store=place / "store").scores()
    assert set(frame[frame.error.notna()].policy) == {"random"}
    with pytest.raises(mp.DataError, match="no such folder"):
        mp.load(place / "nothing")


def test_a_text_is_masked_by_a_tokenizer_of_transformers(tmp_path):
    text = "Ada Lovelace was born in London. She wrote of engines."
    given = {"tokenizer": small.tokenizer(), "store": tmp_path}
    masked = mp.mask(text, "salient-span", spans=np.int64(2), **given)
    assert mp.mask(text, {"name": "salient-span", "spans": 2}, **given) == masked
    assert [text[a:b] for a, b, _ in masked.spans] == [part for *_, part in masked.spans]
    assert "<mask>" in masked.source and masked.target


def test_a_text_is_masked_by_the_file_as_it_is_now(tmp_path):
    path = tmp_path / "edited.py"
    for count in (1, 3):
        path.write_text(small.POLICY.format(name="by-a-file").replace("int = 1", f"int = {count}"))
        if count == 1:
            discovery.load_files([path])
        given = {"tokenizer": small.tokenizer(), "store": tmp_path}
        assert len(mp.mask("Ada wrote of engines.", "by-a-file", **given).spans) == count


def test_an_encoders_tokenizer_masks_as_its_name_does(tmp_path):
    folder = encoders.saved("bert", tmp_path / "bert")
    text = "Ada Lovelace was born in 1903."
    loaded = AutoTokenizer.from_pretrained(folder)
    one, two = (mp.mask(text, "salient-span", tokenizer=each) for each in (str(folder), loaded))
    assert one == two and one.source.count("[MASK]") > 1


@pytest.mark.usefixtures("done")
def test_calls_without_a_store_use_that_of_the_environment(place, tmp_path, monkeypatch):
    monkeypatch.setenv("MASKPOLICY_STORE", str(place / "store"))
    again = mp.run(place / "tiny.yaml", ONE_STEP, out=tmp_path / "out", progress=False)
    assert again.store.root == mp.load(tmp_path / "out").store.root == place / "store"
    assert not (tmp_path / ".maskpolicy").exists()
    monkeypatch.setenv("MASKPOLICY_STORE", "s3:/bucket")
    for call in (
        lambda: mp.mask("Ada was born.", "random", tokenizer=small.tokenizer()),
        lambda: mp.pretrain("mini", "random", "a.txt", tmp_path / "model"),
    ):
        with pytest.raises(mp.StoreError, match="write s3://bucket"):
            call()


def test_own_text_is_trained_on_and_exported(place, tmp_path, monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    (tmp_path / "a.txt").write_text("Ada Lovelace was born in London.\n\nShe wrote of engines.\n")
    (tmp_path / "b.txt").write_text("Mary Shelley lived in Rome.\n\nShe wrote of a creature.\n")
    keys = [key for key in SMALL if not key.startswith("finetune.")]
    policy = {"name": "random", "ratio": 0.3}
    words = ("mini", policy, tmp_path / "a.txt", tmp_path / "model")
    more = {"validation": tmp_path / "b.txt", "store": place / "store", "progress": False}
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    out = mp.pretrain(*words, *keys, **more)
    assert torch.get_num_threads() == before + 1
    torch.set_num_threads(before)
    record = json.loads((out / "maskpolicy.json").read_text())
    assert record["validation_loss"]["step"] in (1, 2)
    assert out == (tmp_path / "model").resolve()
    names = {path.name for path in out.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names
    assert "maskpolicy pretrain --model mini" in (card := (out / "README.md").read_text())
    assert "policy.ratio=0.3" in card and "TQDM_DISABLE" not in os.environ
    again = [mp.pretrain(out, *words[1:3], tmp_path / "next", "intermediate.steps=1", **more)]
    assert (again[0] / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("done")
def test_a_script_without_a_guard_runs_once(place, tmp_path):
    keys = {**TINY, "tasks": TASKS[:1], "seeds": [7]}
    run = f"found = mp.run({keys!r}, {ONE_STEP!r}, progress=False, store={str(place / 'store')!r})"
    run += "\nprint(len(found.scores()))\n"
    (tmp_path / "it.py").write_text(f"import maskpolicy as mp\n{run}")
    words = [sys.executable, "it.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert [*tmp_path.glob("runs/experiment-*/leaderboard.html")]


def written(folder, **more):
    return folders.write(folder, {"none": 0.1, "few": 0.5, "many": 0.8}, ("zsre",), **more)


def test_a_setting_named_like_a_column_has_a_column_of_its_own(tmp_path):
    folder = written(tmp_path / "run")
    for row, number in (("few", 2), ("many", 3)):
        policy = {"name": "mine", "n": number, "seed": 7 * number}
        folders.change(folder, f"{row}--*", config={"policy": policy})
    runs = mp.load(folder, store=tmp_path / "store")
    scores, board = runs.scores(), runs.leaderboard()
    assert set(scores.seed) == {0, 1, 2} and set(scores.n) == {60}
    assert set(board.n) == {60} and list(board.columns).count("n") == 1
    for frame in (scores, board):
        rows = frame.set_index("policy")["policy.n"]
        assert ({*rows[["few"]]}, {*rows[["many"]]}) == ({2}, {3})
    assert {"policy.seed", "seed"} <= {*scores.columns}
    assert {"seed", "seeds"} <= {*board.columns}


def test_a_swept_setting_that_a_row_has_from_the_file_has_the_value_of_its_cells(tmp_path):
    folder = written(tmp_path / "run")
    folders.change(folder, "*", config={"finetune": {"lr": 0.25}})
    own = {"finetune": {"lr": 0.5}}
    folders.change(folder, "few--*", config={**own, "trainings": own})
    for result in folders.edited(folder / "results", "many--*--1.json"):
        result["stages"] = {"evaluate many": "0" * 64}  # without fine-tuning
    runs = mp.load(folder, store=tmp_path / "store")
    for frame in (runs.scores(), runs.leaderboard()):
        rates = frame.set_index("policy")["finetune.lr"]
        assert ({*rates[["few"]]}, {*rates[["none", "many"]].dropna()}) == ({0.5}, {0.25})
    assert runs.scores()["finetune.lr"].isna().sum() == 1


def test_scores_need_no_store(tmp_path, monkeypatch):
    folder = written(tmp_path / "home" / "run")
    for name in ("store", "elsewhere"):
        (tmp_path / name).mkdir()
    (folder / "run.json").write_text(json.dumps({"store": "../../store"}))
    monkeypatch.chdir(folder)
    runs = mp.load(".")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(runs.answers("few"))
    assert set(runs.scores().policy) == {"none", "few", "many"}
    with pytest.raises(mp.ConfigError, match="outside of the run and the working directory"):
        runs.masks("few")
    with pytest.raises(mp.ConfigError, match=r"folder .*: holds a run, whose own board would be"):
        mp.load(folder, baseline="few").save(folder)
    with pytest.raises(mp.ConfigError, match=r"path .*: holds a run, whose own board would be"):
        mp.load(other := written(tmp_path / "next")).page(folder / "leaderboard.html")
    assert mp.load(other).page(other / "leaderboard.html").exists()
    packed = packing.pack(written(tmp_path / "other"), tmp_path / "other.zip")
    assert set(mp.load(packed, folder).scores().policy) == {"none", "few", "many"}


def test_the_mean_of_a_group_is_no_row_of_the_leaderboard(tmp_path):
    tasks = ("zsre", "wow")
    runs = mp.load(folders.write(tmp_path / "run", {"none": 0.1, "few": 0.5}, tasks))
    assert runs.board.groups
    assert {*runs.leaderboard().task} == {*tasks}


def test_a_name_is_no_markup_in_the_table_of_text():
    names = ("a [b]x", "a [/x]", "a :smile:")
    lines = [(name, "t [i]", n, n % 2) for name in names for n in range(4)]
    board = mp.board(pd.DataFrame(lines, columns=["system", "task", "example", "score"]))
    assert all(name in repr(board) for name in (*names, "t [i]"))
