"""The glossary: what each policy does, its settings, and a passage that it masked."""

import folders

from maskpolicy.leaderboard.board import MASKED
from maskpolicy.leaderboard.page import embedded_analyses, page_data
from maskpolicy.leaderboard.report import to_markdown
from tests.leaderboard.page.test_embedded_analyses import find


def test_the_glossary_has_a_sentence_settings_counts_and_a_passage_of_each_policy(folder):
    folders.put_viewer(folder)
    none, random, salient = page_data.entries(folders.board(folder), find(folder))
    assert none.sentence.startswith("No intermediate stage")
    assert (none.settings, none.counts, none.passage) == ((), (), None)
    assert random.sentence.startswith("Mask a share of the tokens")
    assert random.settings == (("ratio", "0.15"),)
    assert random.passage.parts[:2] == (("masked", "Ada"), ("", " met "))
    assert salient.passage.parts[1] == ("masked", "Rome")
    work = {"passages": 200, "passages_without_span": 3, "spans": 500}
    work |= {"hidden_tokens": 750, "target_tokens": 2000, "source_tokens": 3200}
    folders.change(folder, "random--*.json", work={**work, "passage_tokens": 5000})
    none, random, salient = page_data.entries(folders.board(folder), [])
    assert next(iter(MASKED)) == "spans per passage"
    assert random.counts == ("2.50", "1.50", "3.75", "15.0%", "10.00", "1.5%")
    assert none.counts == ()
    # an earlier version counted neither spans nor the corpus's tokens
    assert salient.counts[:2] == ("–", "–") and salient.counts[3] == "–"
    lines = to_markdown(folders.board(folder)).split("What each policy masked")[1].splitlines()[4:]
    assert lines[0].split() == ["|", "random", *" | ".join(["", *random.counts, "5,200 |"]).split()]
    assert [line.split()[1] for line in lines] == ["random", "salient-span"]
    cut = {**work, "passage_tokens": 6000, "cut_tokens": 1000}  # what is cut is not read
    folders.change(folder, "random--*.json", work=cut)
    assert page_data.entries(folders.board(folder), [])[1].counts[3] == "15.0%"


def test_each_run_has_its_own_passages(tmp_path):
    for name in ("one", "two"):
        folders.write(tmp_path / name, {"none": 0.2, f"random {name}": 0.5})
        folders.put_viewer(tmp_path / name, f"Ada {name}.", f"random {name}")
    places = [tmp_path / "one", tmp_path / "two"]
    analyses = embedded_analyses.find_analyses(places)
    found = page_data.entries(folders.board(*places), analyses)
    texts = {each.label: each.passage.parts[1][1] for each in found if each.passage}
    assert texts == {"random one": " one.", "random two": " two."}


def test_settings_are_those_that_are_unusual(folder):
    members = [{"name": "mass", "join": "mask", "ratio": 0.5}, {"name": "span"}]
    policy = {"corruption": "span", "target": "full", "pattern": None, "spans": 0.123456}
    folders.change(folder, "random--*.json", config={"policy": {**policy, "members": members}})
    settings = dict(page_data.entries(folders.board(folder), [])[1].settings)
    assert settings == {
        "ratio": "0.15",
        "target": "full",
        "spans": "0.1235",
        "members": "name mass ratio 0.5, name span",
    }
