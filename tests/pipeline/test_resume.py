"""kill -9 in the middle of the whole pipeline, and the same command: the same bytes."""

import signal
from pathlib import Path

import clusters
import forked
import pytest
import small
from folders import contents

from maskpolicy.experiment.parse import load_experiment
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import topological
from maskpolicy.pipeline.store.artifacts import Store

pytestmark = pytest.mark.slow
YAML = """
model: mini
corpus: world
policies:
  - none
  - {name: supervised, label: supervised, train_on: [zsre], hidden: 8}
  - name: meta-learned
    label: meta-learned
    train_on: [zsre]
    init: {name: supervised, train_on: [zsre], hidden: 8}
    episode: {candidates: 2}
    outer: {steps: 12, episodes: 2, warmup: 2, eval_every: 4, dev: 2}
  - salient-span
  - {name: self-evolution, label: asked, every: 12, smoothing: 0.1}
tasks: [{name: zsre, label: zsre, limit: {dev: 10, test: 20}}]
keep_models: [finetune]
world: {people: 20, general_people: 6}
general: {steps: 5, warmup: 5, batch_size: 4, dropout: 0.1}
fit: {steps: 20, warmup: 5, batch_size: 4, eval_every: 5, checkpoint_every: 0.01}
intermediate: {steps: 20, warmup: 5, batch_size: 4, dropout: 0.1, checkpoint_every: 0.01}
finetune: {steps: 10, warmup: 5, batch_size: 4, eval_every: 5}
"""


def pretrain(folder: Path) -> tuple[object, ...]:
    keys = {"steps": 120, "batch_size": 4, "warmup": 5, "checkpoint_every": 0.01}
    words = ("pretrain", "--model", folder / "bart", "--corpus", folder / "it.txt")
    settings = (f"intermediate.{key}={value}" for key, value in keys.items())
    return (*words, "--policy", "salient-span", *settings)


def given(folder: Path, name: str, *words: object) -> list[str]:
    """Return a command on a store and an output folder of that name; by default it is `run`."""
    words = words or ("run", folder / "it.yaml")
    return [*map(str, words), "--store", f"{folder / name}/store", "--out", f"{folder / name}/out"]


def killed(folder: Path, pattern: str, *words: object) -> None:
    """Run the command, and kill it as soon as a file in its folder matches the pattern."""
    running = forked.command(*given(folder, "killed", *words))
    clusters.until(lambda: list((folder / "killed").glob(pattern)), running)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert running.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two commands' files, and what both make untouched in another interpreter."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "it.yaml").write_text(YAML)
    small.saved(folder / "bart", small.bart(dropout=0.1))
    (folder / "it.txt").write_text("\n\n".join(small.TEXTS))
    words = given(folder, "pretrained", *pretrain(folder))
    before = (
        f"from maskpolicy.app.commands import app\nassert not app({words}, standalone_mode=False)"
    )
    clusters.finish(clusters.command(*given(folder, "whole"), before=before))
    return folder


@pytest.fixture(scope="module")
def runs(folder):
    """Run one experiment that is killed in three stages; returns the folder and the graph."""
    built = stages.build(load_experiment(folder / "it.yaml"))
    intermediate = built.pretrained["salient-span", 0]
    fits = [
        built.pretrained[label, 0].inputs["annotate"].inputs["fit"]
        for label in ("supervised", "meta-learned")
    ]
    store = Store(folder / "killed" / "store")
    for stage in (*fits, intermediate):
        killed(folder, f"store/checkpoints/{stage.key}/[0-9]*/MANIFEST.json")
        assert store.get(stage.key) is None
        assert store.checkpoints(stage.key).latest() is not None
    clusters.finish(forked.command(*given(folder, "killed")))
    return folder, built


def test_results_predictions_and_the_leaderboard_have_the_same_bytes(runs):
    """The page differs in the line that repeats run.json, which has times."""
    folder, _ = runs
    varying = ("run.json", "leaderboard.html")
    whole = contents(folder / "whole" / "out", *varying)
    assert contents(folder / "killed" / "out", *varying) == whole
    forms = {f"leaderboard.{ending}" for ending in ("json", "md", "csv", "tex")}
    assert forms <= whole.keys()
    assert {"results/none--zsre--0.json", "predictions/salient-span--zsre--0.jsonl"} <= whole.keys()
    one, other = (
        (folder / name / "out" / "leaderboard.html").read_text().splitlines()
        for name in ("whole", "killed")
    )
    (line,) = [a for a, b in zip(one, other, strict=True) if a != b]
    assert 'id="data-record"' in line


def test_every_artifact_has_the_same_files_and_nothing_is_left_over(runs):
    folder, built = runs
    models = 0
    for stage in topological(built.stages):
        one, other = (
            contents(Store(folder / name / "store").path(stage.key), "MANIFEST.json")
            for name in ("whole", "killed")
        )
        assert one == other, stage.name
        assert one or stage.transient
        models += "model.safetensors" in one
    assert models >= 8
    for name in ("checkpoints", "temporary", "quarantine"):
        assert list((folder / "killed" / "store" / name).glob("*/*")) == []


def test_pretrain_killed_in_two_places_writes_the_same_folder(folder, tmp_path):
    words = pretrain(folder)
    for pattern in ("store/temporary/*", "store/checkpoints/*/[0-9]*/MANIFEST.json"):
        killed(tmp_path, pattern, *words)
        assert not (tmp_path / "killed" / "out").exists()
    clusters.finish(forked.command(*given(tmp_path, "killed", *words)))
    assert contents(tmp_path / "killed" / "out") == contents(folder / "pretrained" / "out")
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == ["out", "store"]
