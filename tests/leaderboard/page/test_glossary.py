"""The glossary: what each policy does, its settings, and a passage that it masked."""

from __future__ import annotations

import folders
import pytest

from maskpolicy.leaderboard.page import glossary
from tests.leaderboard.page.test_embedded_analyses import find
from tests.leaderboard.page.test_page import POLICIES, board


@pytest.fixture
def folder(tmp_path):
    return folders.write(tmp_path / "a run", POLICIES)


def test_the_glossary_has_a_sentence_settings_and_a_passage_of_each_policy(folder):
    folders.put_viewer(folder)
    none, random, salient = glossary.entries(board(folder), find(folder))
    assert none.sentence.startswith("No intermediate stage")
    assert (none.settings, none.counts, none.passage) == ((), (), None)
    assert random.sentence.startswith("Mask a share of the tokens")
    assert random.settings == (("ratio", "0.15"),)
    assert random.passage
    assert random.passage.parts[:2] == (("masked", "Ada"), ("", " met "))
    assert salient.passage
    assert salient.passage.parts[1] == ("masked", "Rome")


def test_a_policy_of_an_unknown_plugin_has_no_sentence(tmp_path):
    folder = folders.write(tmp_path / "x", {"none": 0.2, "from-a-plugin": 0.5})
    assert glossary.entries(board(folder), [])[1].sentence == ""
