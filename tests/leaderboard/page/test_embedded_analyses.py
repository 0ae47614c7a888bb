"""Analyses in the page: in order of importance, in little room, and without links."""

import json
import re
from pathlib import Path

import folders
import pytest

from maskpolicy.leaderboard.page import embedded_analyses
from maskpolicy.leaderboard.results.cell import fingerprint
from maskpolicy.plugins import discovery, registry
from maskpolicy.plugins.registry import Registered
from tests.leaderboard.page.test_page import rendered


def test_an_analysis_of_other_results_says_so(folder):
    place = folder / "analyses" / "coverage"
    place.mkdir(parents=True)
    for of, stale in ((fingerprint(folder), False), ("0123456789abcdef", True)):
        found = {"analysis": "coverage", "rows": [{"policy": "random"}], "results": of}
        (place / "coverage.json").write_text(json.dumps(found))
        assert ("have changed since this analysis" in rendered(folder)) is stale
    before = fingerprint(folder)
    settings = json.loads((folder / "experiment.json").read_text())
    (folder / "experiment.json").write_text(json.dumps(settings | {"baseline": "random"}))
    assert fingerprint(folder) != before


def test_plots_that_are_too_large_are_named_instead(folder):
    place = folder / "analyses" / "rank"
    place.mkdir(parents=True)
    (place / "all.svg").write_text("<svg/>" + " " * 2_000_000)
    text = rendered(folder)
    assert "There was no room here for analyses/rank/all.svg" in text
    assert len(text) < 1_000_000
    (place / "all.png").write_bytes(b"a smaller picture")
    assert 'src="data:image/png;base64,' in rendered(folder)


@pytest.mark.slow
def test_sixteen_analyses_are_below_three_megabytes_and_the_important_ones_are_there(folder):
    names = [each.name for each in built_in()]
    for name in set(names) - {"viewer"}:
        folders.put_analysis(folder, name, 100_000)
    folders.put_viewer(folder)
    text = rendered(folder)
    assert len(text.encode()) < 3_000_000
    assert '<mark class="masked">Ada</mark>' in text
    kinds = re.findall(r'src="data:image/(\S+?)[,;]', text)
    assert len(kinds) == len(names) - 1
    assert kinds[0] == "svg+xml"  # the most important ones are sharp
    assert kinds[-1] == "png"
    assert "There was no room here" not in text


def test_an_analysis_stands_where_its_facts_say_under_its_heading_and_shared_notes_once(folder):
    folders.put_analysis(folder, "my-own", heading="What I saw", of_masks=True, place=15)
    for name in ("efficiency", "coverage", "viewer"):
        folders.put_analysis(folder, name, notes=["lost in the store", f"only {name}"])
    assert [each.name for each in find(folder)] == ["viewer", "my-own", "coverage", "efficiency"]
    assert find(folder)[1].title == "What I saw"
    text = rendered(folder)
    assert text.count("lost in the store") == text.count("only coverage") == 1


def test_symbolic_links_among_analyses_are_not_embedded(folder, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    for name in ("secret.svg", "secret.json", "other.svg"):
        (secret / name).write_text('{"rows": [{"a": "secret"}]}')
    place = folders.put_analysis(folder, "coverage", notes=["of mine"])
    (place / "coverage.svg").symlink_to(secret / "other.svg")
    (folder / "analyses" / "secret").symlink_to(secret)
    other = folders.put_analysis(folder, "rank")
    (other / "rank.json").unlink()
    (other / "rank.json").symlink_to(secret / "secret.json")
    text = rendered(folder)
    assert "of mine" in text
    assert "secret" not in text.partition("data-record")[0]
    (folder / "analyses").rename(tmp_path / "elsewhere")
    (folder / "analyses").symlink_to(tmp_path / "elsewhere")
    assert "of mine" not in rendered(folder)


def find(folder: Path):
    return embedded_analyses.find_analyses([folder])


def test_where_marks_overlap_the_masked_span_counts(folder):
    marks = [[0, 3, 1.0], [2, 9, 0.2], [30, 99, 1.0], [-5, 1, 0.5]]
    plot = {"kind": "marked", "label": "random", "text": "abcdefghijkl", "marks": marks}
    folders.put_analysis(folder, "viewer", plots=[plot])
    (passage,) = find(folder)[0].passages
    assert passage.parts == (("masked", "abc"), ("candidate", "defghi"), ("", "jkl"))


def built_in() -> list[Registered]:
    discovery.load_builtin("analysis")
    analyses = [each for each in registry.entries() if each.kind == "analysis"]
    return [each for each in analyses if registry.is_builtin(each.plugin)]


def test_every_built_in_analysis_has_a_heading_and_a_place_of_its_own():
    assert all(each.facts["heading"] for each in built_in())
    places = [(each.facts["of_masks"], each.facts["place"]) for each in built_in()]
    assert len(set(places)) == len(places)
