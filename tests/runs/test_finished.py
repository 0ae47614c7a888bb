"""Tables of finished runs: the columns of settings that were swept."""

from __future__ import annotations

import json

import folders

import maskpolicy as mp


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
