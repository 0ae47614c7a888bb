"""Runs whose folders have one name, such as findings/zsre and paper/zsre, are told apart."""

from __future__ import annotations

from pathlib import Path

import folders
import pytest

import maskpolicy as mp
from maskpolicy.leaderboard.build import build_leaderboard
from maskpolicy.results.cell import read_run
from maskpolicy.results.run_names import named_apart, names_of
from maskpolicy.runs import packing


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (["/runs/a"], ["a"]),
        (["/runs/a", "/runs/b"], ["a", "b"]),
        (["/runs/paper/a", "/runs/findings/a", "/runs/b"], ["paper/a", "findings/a", "b"]),
        (["/x/p/a", "/y/p/a", "/y/q/a"], ["x/p/a", "y/p/a", "q/a"]),
        (["/a", "/x/a"], ["/a", "x/a"]),
        (["/x/a", "/x/a"], ["a", "a"]),  # one run
    ],
)
def test_a_name_is_as_long_as_others_make_it(places, names):
    assert names_of([Path(place) for place in places]) == names


@pytest.fixture
def both(tmp_path) -> list[Path]:
    """Two folders of one name, with rows of one name that differ in their settings."""
    rows = {"none": 0.2, "random": 0.6}
    one = folders.write(tmp_path / "one" / "it", rows, ("zsre",), n=12)
    other = folders.write(
        tmp_path / "other" / "it", rows, ("zsre",), n=12, finetune={**folders.BUDGET, "lr": 0.5}
    )
    return [one, other]


def test_a_run_alone_has_the_name_of_its_folder(both):
    one, other = named_apart([read_run(folder) for folder in both])
    assert (one.name, other.name) == ("one/it", "other/it")
    assert named_apart([other])[0].name == "it"


def test_every_row_of_a_mixed_leaderboard_has_a_name_of_its_own(both):
    found = build_leaderboard([read_run(folder) for folder in both], mixed=True)
    labels = [row.label for row in found.rows]
    assert len({*labels}) == len(labels) == 4
    assert {"random (one/it)", "random (other/it)"} < {*labels}


def test_tables_in_python_name_the_runs_apart(both, tmp_path):
    for folder in both:
        packing.pack(folder, tmp_path / f"{folder.parent.name}.zip")
    for places in (both, [tmp_path / "one.zip", tmp_path / "other.zip"]):
        found = mp.load(*places, store=tmp_path / "store", mixed=True)
        assert {*found.scores().run} == {*found.answers().run} == {"one/it", "other/it"}
