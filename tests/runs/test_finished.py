"""Finished runs: the columns of settings that were swept, and analyses of several figures."""

from __future__ import annotations

import json

import folders
import pytest

import maskpolicy as mp
from maskpolicy.errors import ConfigError
from maskpolicy.plugins import discovery

FIGURES = """
from dataclasses import dataclass

from maskpolicy import Findings, analysis
from maskpolicy.findings import Figure
from maskpolicy.plots import Bars, Lines, Marked, Series


@analysis("two-figures")
@dataclass(frozen=True)
class TwoFigures:
    '''Two figures, and a text.'''

    def analyse(self, runs, store):
        lines = Lines("of a", "x", "y", [Series("a", [1, 2], [0, 1]), Series("b", [2, 1], [0, 1])])
        bars = Bars("of b", "y", ["c"], [Series("a", [1])])
        figures = (
            Figure("First", "how", (lines, lines)),
            Figure("Texts", "how", (Marked("a", "Ada wrote", [(0, 3, 1.0)]),)),
            Figure("Second", "how", (bars,)),
        )
        return Findings(("n",), ({"n": 1},), figures=figures)
"""


def test_a_setting_of_the_name_of_a_column_has_one_of_its_own(tmp_path):
    folder = folders.write(tmp_path / "run", {"none": 0.1, "few": 0.5, "many": 0.8}, ("zsre",))
    for path in (folder / "results").iterdir():
        cell = json.loads(path.read_text())
        number = {"few": 2, "many": 3}.get(cell["policy"])
        if number:
            cell["config"]["policy"] |= {"name": "mine", "n": number, "seed": 7 * number}
        path.write_text(json.dumps(cell))
    found = mp.load(folder, store=tmp_path / "store")
    scores, board = found.scores(), found.leaderboard()
    assert set(scores.seed) == {0, 1, 2} and set(scores.n) == {60}
    assert set(board.n) == {60} and list(board.columns).count("n") == 1
    for frame in (scores, board):
        rows = frame.set_index("policy")["policy.n"]
        assert ({*rows[["few"]]}, {*rows[["many"]]}) == ({2}, {3})
    assert {"policy.seed", "seed"} <= {*scores.columns}
    assert {"seed", "seeds"} <= {*board.columns}


def test_what_was_not_tested_is_unknown_in_columns_of_numbers(tmp_path):
    folder = folders.write(tmp_path / "run", {"none": 0.1, "few": 0.5}, ("zsre",), seeds=2)
    board = mp.load(folder).leaderboard()
    assert board.p.isna().all() and board.rank_low.isna().all()
    assert not len(board[board.significant])
    assert board.low.dtype == board.p_holm.dtype == "float64"


def test_scores_need_no_store(tmp_path, monkeypatch):
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    folder = folders.write(tmp_path / "home" / "run", {"none": 0.1, "few": 0.5}, ("zsre",))
    (tmp_path / "store").mkdir()
    (folder / "run.json").write_text(json.dumps({"store": "../../store"}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = mp.load(folder)
    assert set(found.scores().policy) == {"none", "few"}
    with pytest.raises(ConfigError, match="outside of the run and the working directory"):
        found.masks("few")


def test_all_figures_of_an_analysis_are_drawn(tmp_path):
    (tmp_path / "figures.py").write_text(FIGURES)
    discovery.load_files([tmp_path / "figures.py"])
    folder = folders.write(tmp_path / "run", {"none": 0.1, "few": 0.5}, ("zsre",))
    figure = mp.load(folder, store=tmp_path / "store").plot("two-figures")
    assert [part.get_suptitle() for part in figure.subfigs] == ["First", "Second"]
    titles = [[axis.get_title() for axis in part.axes] for part in figure.subfigs]
    assert titles == [["of a", "of a"], ["of b"]]
    assert figure._repr_png_().startswith(b"\x89PNG")
