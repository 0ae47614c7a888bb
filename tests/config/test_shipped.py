"""The experiments that come with maskpolicy are found by name, and none hides a user's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskpolicy.config import shipped
from maskpolicy.config.parse import load_experiment
from maskpolicy.errors import ConfigError

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
    (tmp_path / "quickstart").mkdir()  # a folder is no experiment
    made = load_experiment("quickstart", ["seeds=[7]"])
    assert made == load_experiment(FOLDER / "quickstart.yaml", ["seeds=[7]"])
    assert made.name == "quickstart"
    assert shipped.file_of(Path("paper/mae-lm")) == FOLDER / "paper" / "mae-lm.yaml"


def test_a_file_is_known_by_its_name(tmp_path):
    assert shipped.name_of(FOLDER / "paper" / ".." / "paper" / "mae-lm.yaml") == "paper/mae-lm"
    (tmp_path / "mae-lm.yaml").write_text("model: mini")
    assert shipped.name_of(tmp_path / "mae-lm.yaml") is None


def test_a_file_that_exists_is_that_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("quickstart").write_text("model: mini")
    assert shipped.file_of(Path("quickstart")) == Path("quickstart")
    assert shipped.file_of(Path("quickstart.yaml")) == Path("quickstart.yaml")


def test_a_name_that_could_be_a_file_here_too_is_refused(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    Path("smoke.yaml").write_text((FOLDER / "smoke.yaml").read_text())
    line = refused("plan", "smoke")
    assert "write smoke.yaml for the file" in line
    assert str(FOLDER / "smoke.yaml") in line
    monkeypatch.chdir(FOLDER)
    assert shipped.file_of(Path("smoke")) == FOLDER / "smoke.yaml"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("quickstrat", "did you mean 'quickstart'?"),
        ("closed-book", "did you mean 'findings/closed-book' or 'paper/closed-book'?"),
        ("closed-bok", "did you mean 'findings/closed-book' or 'paper/closed-book'?"),
        ("zsre-naer", "did you mean 'findings/zsre-near'?"),
        ("paper/mae-ml", "did you mean 'paper/mae-lm'?"),
        ("runs/none", "choose from findings/closed-book"),
    ],
)
def test_an_unknown_name_is_refused_with_the_choices(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=name) as caught:
        shipped.file_of(Path(name))
    assert said in str(caught.value)


def test_plan_takes_a_name_from_any_folder(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("plan", "quickstart")
    assert code == 0
    assert "salient-span" in out
    assert not list(tmp_path.iterdir())
