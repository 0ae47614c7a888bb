"""Experiments run, and their results read, from Python."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
import small
import yaml

import maskpolicy as mp
from maskpolicy.plugins import discovery

COUNTS = """
from dataclasses import dataclass

from maskpolicy import Findings, analysis


@analysis("counts-cells")
@dataclass(frozen=True)
class Counts:
    '''How many cells there are.'''

    def analyse(self, runs, store):
        return Findings(("n",), ({"n": len(runs[0].results)},), ("n: the number of cells",))
"""
TINY = {
    "model": "mini",
    "corpus": "world",
    "data": "world",
    "world": {"people": 8, "general_people": 4},
    "general": {"steps": 2, "warmup": 1, "batch_size": 2, "precision": "fp32"},
    "intermediate": {"steps": 2, "warmup": 1, "batch_size": 2, "precision": "fp32"},
    "finetune": {"steps": 2, "warmup": 1, "batch_size": 2, "precision": "fp32"},
    "policies": ["none", "random"],
    "tasks": ["zsre", "triviaqa"],
    "seeds": [0, 1],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def done(place) -> mp.Runs:
    (place / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    return mp.run(
        place / "tiny.yaml",
        "finetune.steps=1",
        out=place / "out",
        store=place / "store",
        progress=False,
    )


def test_scores_have_a_row_for_each_cell(done):
    frame = done.scores()
    assert list(frame.columns) == [
        *("run", "policy", "task", "seed", "metric", "score", "n", "error"),
    ]
    cells = set(zip(frame.policy, frame.task, frame.seed, strict=True))
    assert cells == {
        (p, t, s) for p in ("none", "random") for t in ("zsre", "triviaqa") for s in (0, 1)
    }
    assert set(frame.run) == {"out"} and frame.error.isna().all()
    assert ((frame.score >= 0) & (frame.score <= 100) & (frame.n > 0)).all()


def test_the_leaderboard_has_a_row_for_each_policy_and_task(done):
    frame = done.leaderboard().set_index(["policy", "task"])
    assert len(frame) == 4
    means = done.scores().groupby(["policy", "task"]).score.mean()
    for index, mean in means.items():
        assert frame.loc[index, "mean"] == pytest.approx(mean, abs=1e-4)
    assert set(frame.baseline) == {"none"} and set(frame.seeds) == {2}
    difference = frame.loc[("random", "zsre")]
    assert difference.delta == pytest.approx(
        means["random", "zsre"] - means["none", "zsre"], abs=1e-4
    )
    assert frame.majority.notna().all()


def test_answers_have_questions_and_the_scores_of_their_cell(done):
    frame = done.answers(policy="random", task="zsre")
    assert set(frame.policy) == {"random"} and set(frame.task) == {"zsre"}
    assert frame.question.str.len().min() > 0 and frame.answers.map(len).min() > 0
    scores = done.scores().set_index(["policy", "task", "seed"]).score
    for seed, answers in frame.groupby("seed"):
        assert 100 * answers.score.mean() == pytest.approx(scores["random", "zsre", seed])
    assert len(done.answers()) == sum(done.scores().n)


def test_masks_are_those_of_the_training(done):
    frame = done.masks("random", passages=5)
    assert len(frame) == 5
    for text, spans, masked in frame.itertuples(index=False):
        assert [text[a:b] for a, b in spans] == masked
    with pytest.raises(mp.ConfigError, match="masks of none"):
        done.masks("none")
    with pytest.raises(mp.ConfigError, match="unknown policy 'randon': did you mean 'random'"):
        done.masks("randon")


def test_plots_are_figures(done):
    assert isinstance(done.plot(), matplotlib.figure.Figure)
    figure = done.plot("lengths", passages=5)
    assert isinstance(figure, matplotlib.figure.Figure) and figure.axes
    with pytest.raises(mp.ConfigError, match="unknown analysis 'coverege'"):
        done.plot("coverege")


def test_an_analysis_without_a_plot_is_named(done, tmp_path):
    (tmp_path / "counts.py").write_text(COUNTS)
    discovery.load_files([tmp_path / "counts.py"])
    said = "plot counts-cells: has a table and no plot: `maskpolicy analyze counts-cells RUN`"
    with pytest.raises(mp.DataError, match=said):
        done.plot("counts-cells")


def test_a_notebook_shows_the_leaderboard(done, tmp_path):
    table = done._repr_html_()
    assert table.startswith("<table>") and "<td>random</td>" in table
    page = done.page(tmp_path / "page.html")
    assert page.read_text().lower().startswith("<!doctype html")


def test_in_a_notebook_the_leaderboard_is_a_text_too(done, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "random" in repr(done) and "\x1b" not in repr(done)


def test_a_figure_is_a_picture_in_a_notebook_that_has_not_imported_pyplot(done):
    assert done.plot()._repr_png_().startswith(b"\x89PNG")


def test_a_finished_run_is_loaded_with_its_store_and_joined(done, place):
    loaded = mp.load(place / "out", store=place / "store")
    assert loaded.scores().equals(done.scores())
    two = mp.run(  # a dict has no file: the folder is its own
        TINY | {"seeds": [2]}, "finetune.steps=1", out=place / "two", store=place / "store"
    )
    joined = mp.load(place / "out", place / "two", store=place / "store")
    assert sorted(set(joined.scores().seed)) == [0, 1, 2]
    assert joined.masks("random", passages=3).equals(done.masks("random", passages=3))
    assert len(two.scores()) == 4
    again = mp.run(TINY | {"seeds": [1]}, out=place / "two", store=place / "store")
    assert set(again.scores().seed) == {1}
    with pytest.raises(
        mp.StoreError, match=r"holds the results of .*tiny.yaml: choose another out"
    ):
        mp.run(TINY, out=place / "out", store=place / "store")


def test_runs_that_cannot_be_compared_are_refused_unless_mixed(done, place):
    other = place / "other"
    mp.run(TINY | {"seeds": [0]}, out=other, store=place / "store", progress=False)
    with pytest.raises(mp.ConfigError, match=r"finetune.steps"):
        mp.load(place / "out", other, store=place / "store")
    assert len(mp.load(place / "out", other, store=place / "store", mixed=True).scores()) == 12


def test_two_dicts_without_a_name_have_folders_of_their_own(done, place, monkeypatch):
    monkeypatch.chdir(place)
    given = {**TINY, "seeds": [0]}
    first = mp.run(given, "finetune.steps=1", store="store", progress=False)
    again = mp.run(dict(reversed(given.items())), "finetune.steps=1", store="store", progress=False)
    other = mp.run({**given, "seeds": [1]}, "finetune.steps=1", store="store", progress=False)
    folders = [found.runs[0].folder.name for found in (first, again, other)]
    assert folders[0] == folders[1] != folders[2]
    assert all(re.fullmatch("experiment-[0-9a-f]{8}", name) for name in folders)
    assert set(first.scores().seed) == {0} and set(other.scores().seed) == {1}


def test_the_kept_experiment_of_a_dict_names_no_temporary_folder(done, place, monkeypatch):
    monkeypatch.chdir(place)
    given = {**TINY, "name": "kept", "seeds": [0]}
    mp.run(given, "finetune.steps=1", store="store", progress=False)
    kept = yaml.safe_load(Path("runs", "kept", "experiment.yaml").read_text())
    assert (kept["name"], kept["folders"]) == ("kept", ["../.."])
    assert "file" not in kept


def test_mistakes_are_errors_and_end_no_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mp.ConfigError, match="cannot be read"):
        mp.run("missing.yaml")
    with pytest.raises(mp.ConfigError, match="unknown key 'polices'"):
        mp.run(TINY | {"polices": []})
    with pytest.raises(mp.ConfigError, match="is not a name for a folder"):
        mp.run(TINY | {"name": "../up"})
    with pytest.raises(mp.DataError, match="no results"):
        mp.load(tmp_path)
    with pytest.raises(mp.ConfigError, match="name one or more folders"):
        mp.load()


@pytest.mark.parametrize(
    ("words", "more", "says"),
    [
        ((TINY, 3), {}, "overrides: must be texts"),
        ((TINY,), {"jobs": "two"}, "jobs: must be a whole number, not text 'two'"),
        ((TINY,), {"jobs": 0}, "jobs: must be >= 1, not 0"),
        ((TINY,), {"jobs": True}, "jobs: must be a whole number"),
        ((TINY,), {"threads": 0}, "threads: must be >= 1, not 0"),
        ((TINY,), {"threads": -1}, "threads: must be >= 1, not -1"),
        ((None,), {}, "experiment: must be a file, a name or a dict of keys, not NoneType"),
        (([TINY],), {}, "not list"),
        ((TINY | {"seeds": {1, 2}},), {}, "experiment: holds a set"),
        ((TINY,), {"plugins": "mine.py"}, "mine.py: no such file"),
        ((TINY,), {"only": "randm"}, "unknown row 'randm'"),
        ((TINY | {"name": "mine", "polices": []},), {}, "mine: polices: unknown key"),
        ((TINY | {"name": 3},), {}, "name: 3 is not a name for a folder below runs/"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, monkeypatch, words, more, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mp.ConfigError) as error:
        mp.run(*words, **more)
    assert says in str(error.value)


@pytest.mark.slow
def test_values_may_be_numpys(done, place):
    keys = TINY | {"seeds": np.arange(2), "finetune": TINY["finetune"] | {"lr": np.float64(1e-4)}}
    again = mp.run(keys, out=place / "numpy", store=place / "store", progress=False)
    assert len(again.scores()) == 8


def test_wrong_texts_and_folders_are_named(tmp_path):
    with pytest.raises(mp.ConfigError, match="one after the other"):
        mp.load([tmp_path])
    with pytest.raises(mp.ConfigError, match="text: must be one text, not list"):
        mp.mask(["a", "b"], "random", tokenizer=small.tokenizer())
    with pytest.raises(mp.ConfigError, match="workers: must be >= 1, not 0"):
        mp.pretrain("mini", "random", "text.txt", tmp_path / "out", workers=0)
    for nothing in ("", " \n"):
        with pytest.raises(mp.ConfigError, match=r"^text: has no words: give some text$"):
            mp.mask(nothing, "random", tokenizer=small.tokenizer(), store=tmp_path)
    with pytest.raises(mp.ConfigError, match="seed: must be a whole number from 0, not -1"):
        mp.mask("a b", "random", tokenizer=small.tokenizer(), seed=-1)


def test_printed_runs_are_their_leaderboard(done):
    text = repr(done)
    assert "random" in text and "zsre" in text and len(text) < 6000


def test_a_stage_that_fails_is_an_error_that_says_where_to_look(place):
    broken = TINY | {"intermediate": {"steps": 2, "lr": 1e30, "warmup": 0, "precision": "fp32"}}
    with pytest.raises(mp.MaskpolicyError, match=r"leaderboard.md say why"):
        mp.run(broken, out=place / "broken", store=place / "store", progress=False)
    frame = mp.load(place / "broken", store=place / "store").scores()
    assert set(frame[frame.error.notna()].policy) == {"random"}


def test_a_text_is_masked_by_a_tokenizer_of_transformers(tmp_path):
    text = "Ada Lovelace was born in London. She wrote of engines."
    found = mp.mask(text, "salient-span", tokenizer=small.tokenizer(), spans=2, store=tmp_path)
    block = {"name": "salient-span", "spans": 2}
    assert mp.mask(text, block, tokenizer=small.tokenizer(), store=tmp_path) == found
    assert [text[a:b] for a, b, _ in found.spans] == [part for *_, part in found.spans]
    assert "<mask>" in found.source and found.target
    again = mp.mask(text, "salient-span", tokenizer=small.tokenizer(), spans=2, store=tmp_path)
    assert again == found
    with pytest.raises(mp.ConfigError, match="spams"):
        mp.mask(text, "salient-span", tokenizer=small.tokenizer(), spams=2, store=tmp_path)


def test_own_text_is_trained_on_and_exported(place, tmp_path):
    (tmp_path / "a.txt").write_text("Ada Lovelace was born in London.\n\nShe wrote of engines.\n")
    keys = [f"general.{k}" for k in ("steps=2", "warmup=1", "batch_size=2", "precision=fp32")]
    keys += [f"intermediate.{k}" for k in ("steps=2", "warmup=1", "batch_size=2", "precision=fp32")]
    out = tmp_path / "model"
    found = mp.pretrain(
        "mini", "random", tmp_path / "a.txt", out, *keys, store=place / "store", progress=False
    )
    assert found == out.resolve()
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= {
        path.name for path in out.iterdir()
    }
    assert "maskpolicy pretrain --model mini" in (out / "README.md").read_text()
    with pytest.raises(mp.ConfigError, match="no such file"):
        mp.pretrain("mini", "random", tmp_path / "b.txt", tmp_path / "c", store=place / "store")


@pytest.mark.slow
def test_a_script_without_a_guard_runs_once(tmp_path):
    (tmp_path / "it.py").write_text(
        "import maskpolicy as mp\n"
        f"found = mp.run({TINY!r}, progress=False)\n"
        "print(len(found.scores()))\n"
    )
    done = subprocess.run(
        [sys.executable, "it.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
    assert [*tmp_path.glob("runs/experiment-*/leaderboard.html")]


ADVICE = """
import sys, types
sys.modules["ipywidgets"] = None
sys.modules["ipykernel.zmqshell"] = types.ModuleType("ipykernel.zmqshell")
sys.modules["IPython"] = shell = types.ModuleType("IPython")
shell.get_ipython = object
import maskpolicy as mp
try:
    mp.run("no-such-file.yaml")
except mp.ConfigError:
    import tqdm.auto
"""


def test_a_notebook_without_widgets_gets_no_advice_of_other_libraries():
    """Tqdm gives it once, when it is first imported."""
    done = subprocess.run(
        [sys.executable, "-c", ADVICE], capture_output=True, text=True, check=True, timeout=300
    )
    assert "IProgress" not in done.stderr
