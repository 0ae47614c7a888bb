"""Experiments that come with maskpolicy, and those that `run` keeps in its folder."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.core.errors import StoreError
from maskpolicy.experiment import verbatim
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.experiment.verbatim import WRITTEN, WrittenExperiment
from tests.experiment.conftest import plugin

YAML = """
model: mini
corpus: {files: [text/*.txt]}  # ${not} an interpolation
data: tasks
policies: [none, random]
tasks: [zsre]
plugins: [mine.py]
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with an experiment and what it names; the working directory is another one."""
    folder = tmp_path / "home"
    (folder / "text").mkdir(parents=True)
    (folder / "text" / "a.txt").write_text("Some text.")
    (folder / "tasks").mkdir()
    # no other test may register a policy of this name
    (folder / "mine.py").write_text(plugin(f"first-{tmp_path.name}"))
    (folder / "it.yaml").write_text(YAML)
    (tmp_path / "here" / "others").mkdir(parents=True)
    (tmp_path / "here" / "second.py").write_text(plugin(f"second-{tmp_path.name}"))
    monkeypatch.chdir(tmp_path / "here")
    return folder


def test_a_kept_experiment_is_the_same_from_anywhere(home, tmp_path, monkeypatch):
    words = (["data=others", "seeds=[3, 4]"], ["second.py"])
    path = Path("..") / "home" / "it.yaml"
    first = load_experiment(path, *words)
    out = tmp_path / "runs" / "a"
    out.mkdir(parents=True)
    verbatim.save(verbatim.read_experiment(path, *words), out)
    monkeypatch.chdir("/")
    assert load_experiment(out / WRITTEN) == first
    assert first.data == str(tmp_path / "here" / "others")
    assert verbatim.read_experiment(out / WRITTEN).home == out


def test_a_kept_experiment_takes_further_keys_once(home, tmp_path):
    verbatim.save(verbatim.read_experiment(home / "it.yaml", ["seeds=[1]"]), tmp_path)
    for _ in range(2):
        again = verbatim.read_experiment(tmp_path / WRITTEN, ["seeds=[2]"])
        verbatim.save(again, tmp_path)
    assert again.keys == ("seeds=[1]", "seeds=[2]")
    assert load_experiment(tmp_path / WRITTEN).seeds == (2,)
    assert again.name == "it"
    verbatim.save(verbatim.read_experiment(home / "it.yaml", ["intermediate.epochs=2"]), tmp_path)
    again = verbatim.read_experiment(tmp_path / WRITTEN, ["intermediate.steps=5"])
    assert again.keys == ("intermediate.steps=5",)


def test_a_folder_names_the_file_of_its_experiment(home, tmp_path):
    out = tmp_path / "out"
    verbatim.save(verbatim.read_experiment(home / "it.yaml"), out)
    again = verbatim.read_experiment(out / WRITTEN, ["seeds=[2]"])
    assert again.file == home / "it.yaml"
    assert verbatim.other_file(out, again) is None
    (tmp_path / WRITTEN).write_text("model: mini\n")
    with pytest.raises(StoreError, match="was not written by"):
        verbatim.save(again, tmp_path)
    stranger = WrittenExperiment("model: mini\n", "it", ())
    assert verbatim.other_file(out, stranger) == home / "it.yaml"
    verbatim.save(stranger, tmp_path / "of a dict")
    kept = tmp_path / "of a dict" / WRITTEN
    assert verbatim.other_file(kept.parent, stranger) is None
    assert verbatim.other_file(kept.parent, verbatim.read_experiment(kept)) is None
    assert verbatim.other_file(kept.parent, again) == kept  # the only copy of the dict


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(text=texts | st.lists(texts).map("\n".join), keys=st.lists(texts), name=texts)
def test_every_text_is_kept_as_it_is(tmp_path_factory, text, keys, name):
    folder = tmp_path_factory.mktemp("kept")
    given = WrittenExperiment(text, name, (folder,), tuple(keys))
    verbatim.save(given, folder)
    again = verbatim.read_experiment(folder / WRITTEN)
    assert (again.experiment, again.name, again.keys) == (text, name, tuple(keys))
    assert again.folders == (Path(os.path.realpath(folder)),)


FOLDER = Path(__file__).parents[2] / "experiments"


def test_every_experiment_is_listed_with_a_summary(call):
    found = json.loads(call("list", "experiments", "--json")[1])
    files = {str(path) for path in FOLDER.rglob("*.yaml")}
    assert {each["where"] for each in found} == files
    assert all(10 < len(each["summary"]) <= 110 for each in found)
    assert {"quickstart", "paper/mae-lm"} <= {each["name"] for each in found}
    assert "quickstart" in call("list", "experiments")[1]


def test_a_name_stands_for_the_shipped_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()  # a folder is not an experiment
    made = load_experiment("quickstart", ["seeds=[7]"])
    assert made == load_experiment(FOLDER / "quickstart.yaml", ["seeds=[7]"])
    assert made.name == "quickstart"
    assert verbatim.file_of(Path("paper/mae-lm")) == FOLDER / "paper" / "mae-lm.yaml"
    assert verbatim.name_of(FOLDER / "paper" / ".." / "paper" / "mae-lm.yaml") == "paper/mae-lm"
    (tmp_path / "mae-lm.yaml").write_text("model: mini")
    assert verbatim.name_of(tmp_path / "mae-lm.yaml") is None


def test_a_name_that_could_be_a_file_here_too_is_refused(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    Path("smoke.yaml").write_text((FOLDER / "smoke.yaml").read_text())
    line = refused("plan", "smoke")
    assert "write smoke.yaml for the file" in line
    assert str(FOLDER / "smoke.yaml") in line
    monkeypatch.chdir(FOLDER)
    assert verbatim.file_of(Path("smoke")) == FOLDER / "smoke.yaml"
