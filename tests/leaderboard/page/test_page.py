"""The page as text: complete, escaped, small, and the same bytes for the same results."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import folders
import pytest

from maskpolicy.leaderboard import page, report
from maskpolicy.leaderboard.page import _amount, save_page
from maskpolicy.leaderboard.table import table
from tests.leaderboard.page.conftest import POLICIES

BART = {"name": "facebook/bart-base"}


def cells(folder: Path):
    return [cells for _, cells in table(folders.board(folder)).rows]


def rendered(*where: Path, **settings) -> str:
    return page.render(folders.board(*where, **settings))


def data(text: str, name: str):
    """Return one of the page's data blocks."""
    found = re.search(rf'<script type="application/json" id="data-{name}">(.*?)</script>', text)
    return json.loads(found[1])


class Texts(HTMLParser):
    """The text of a page, and its elements."""

    def __init__(self, text: str):
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for key, value in attrs if key in ("src", "href", "action")]

    def handle_data(self, data):
        self.words.append(data)


def test_every_score_stands_in_the_page_and_only_our_own_scripts_may_run(folder):
    text = rendered(folder)
    words = " ".join(" ".join(Texts(text).words).split())
    for row in folders.board(folder).rows:
        for score in row.scores.values():
            assert f"{score.mean:.1f}" in words
    assert "a run" in words
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src &#39;none&#39;" in policy[1]
    assert policy[1].count("sha256-") == len(page.SCRIPTS) + 1
    assert "unsafe" not in policy[1]


def test_metrics_beside_the_score_are_in_the_details_of_a_cell(folder):
    for seed, other in ((0, 0.25), (1, 0.75)):
        folders.change(folder, f"random--zsre--{seed}.json", metrics={"parts": {"contains": other}})
    rows = {row["label"]: row["cells"] for row in data(rendered(folder), "board")["rows"]}
    assert {"answer contained": 50.0} in [cell["parts"] for cell in rows["random"]]
    assert not any(cell["parts"] for cell in rows["none"])


def test_a_cell_has_the_settings_of_its_task_where_they_differ_from_its_row(folder):
    folders.change(
        folder,
        "*--zsre--*.json",
        config={"finetune": {"steps": 77}, "task": {"finetune": {"steps": 77}}},
    )
    folders.change(folder, "none--zsre--*.json", config={"world": {"people": 8}})
    budget = {**folders.BUDGET, "steps": 77}
    none, random, _ = data(rendered(folder), "board")["rows"]
    assert random["config"]["finetune"] == folders.BUDGET
    assert [cell.get("own") for cell in random["cells"]] == [None, {"finetune": budget}]
    assert none["cells"][1]["own"] == {"finetune": budget, "world": {"people": 8}}


def test_a_missing_cell_says_why(folder):
    folders.change(folder, "random--zsre--1.json", metrics=None, error="OutOfMemory: & more")
    cell = cells(folder)[1][1]
    assert cell.incomplete == "seed 1: OutOfMemory: & more"
    assert not cell.best
    text = rendered(folder)
    assert "OutOfMemory: &amp; more" in text
    for path in (folder / "results").glob("random--zsre--*.json"):
        path.unlink()
    assert cells(folder)[1][1].incomplete == "not in these results"


def test_every_row_is_compared_with_the_baseline_that_is_named(tmp_path):
    """Two runs have baselines of their own and differ in a budget."""
    longer = folders.BUDGET | {"steps": 2000}
    one = folders.write(tmp_path / "one", {"none": 0.2, "random": 0.4})
    two = folders.write(tmp_path / "two", {"none": 0.3, "span": 0.5}, finetune=longer)
    several = (one, two)
    found = folders.board(*several, mixed=True)
    text = rendered(*several, mixed=True)
    rows = re.findall(r'<tr data-row="(\d)" class="(\w*)">', text)
    assert [kind for _, kind in rows] == ["baseline", "", "baseline", ""]
    assert text.count("<small>baseline</small>") == 2
    for row, line in table(found).rows:
        assert all((cell.delta == "") is row.is_baseline for cell in line)
    told = Texts(text).words
    for phrase in ("Difference to each run's own none", "compared with each run's own none"):
        assert phrase in " ".join(" ".join(told).split())
    notes = [note for note in found.notes if note.startswith("compared with ")]
    assert notes == ["compared with none (one): random", "compared with none (two): span"]
    document = report.to_json(found)
    against = ["none (one)", "none (one)", "none (two)", "none (two)"]
    assert [row["baseline"] for row in document["rows"]] == against
    for made in (report.to_markdown(found), report.to_latex(found)):
        assert "ifference to each run's own none" in made
        for line in made.splitlines():
            if line.startswith(("| none", "none")):
                assert "+0.0" not in line
    # a run without the baseline is compared with the first
    for path in (several[1] / "results").glob("none--*.json"):
        path.unlink()
    three = folders.write(tmp_path / "three", {"none": 0.1}, finetune={"steps": 7})
    found = folders.board(*several, three, mixed=True)
    assert found.compared_with == "each run's own none, else none (one)"
    assert "compared with none (one): random, span" in found.notes


def test_reported_numbers_stand_apart_and_beside_no_other_model_and_no_invented_data(tmp_path):
    folder = folders.write(tmp_path / "x", POLICIES, ("ropes", "zsre"), data="hub", model=BART)
    text = rendered(folder)
    ranked, _, apart = text.partition('<tbody id="reported"')
    assert "53.71" in apart
    assert "53.71" not in ranked
    assert "Meta-learned" not in json.dumps(data(text, "board"))
    for number, settings in enumerate(({"model": BART}, {"data": "hub"}, {"data": "/a/folder"})):
        folder = folders.write(tmp_path / f"{number}", POLICIES, ("ropes", "triviaqa"), **settings)
        text = rendered(folder)
        assert not any(each in text for each in ('id="reported"', "53.71", "21.82"))


def test_without_run_json_questions_or_predictions_the_page_is_made_all_the_same(folder):
    (folder / "run.json").unlink()
    for name in ("questions", "predictions"):
        for path in (folder / name).iterdir():
            path.unlink()
    text = rendered(folder)
    assert data(text, "examples") == [None, None]
    assert data(text, "record") == [{"name": "a run", "stages": {}}]
    assert "the folder of results has no predictions" in text


def test_only_the_record_differs_between_two_runs_of_one_command(folder):
    one = rendered(folder).splitlines()
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"seconds": 9.0, "finished": "later"}))
    other = rendered(folder).splitlines()
    differ = [a for a, b in zip(one, other, strict=True) if a != b]
    assert len(differ) == 1
    assert 'id="data-record"' in differ[0]
    assert "secret-host" not in differ[0]


@pytest.mark.slow
def test_ten_policies_nine_tasks_and_five_seeds_are_below_three_megabytes(tmp_path):
    policies = {f"policy number {index}": 0.1 + index / 20 for index in range(10)}
    long = "a rather long answer, as a dialogue has it; " * 6
    tasks = tuple(folders.GROUPS)
    folder = folders.write(tmp_path / "x", policies, tasks, seeds=5, n=120, text=long)
    text = rendered(folder)
    assert len(text.encode()) < 3_000_000
    assert len(data(text, "examples")[0]["shown"]) > 20


def test_a_page_holds_no_absolute_paths(folder, tmp_path):
    where = tmp_path / "data" / "triviaqa.jsonl"
    corpus = {"name": "files", "files": ["/mnt/disk/wiki/all.txt"]}
    config = {"task": {"data": str(where.parent)}, "corpus": corpus}
    error = f"DataError: {where}: line 3: no answer"
    folders.change(folder, "random--zsre--*.json", metrics=None, error=error, config=config)
    folders.put_analysis(folder, "coverage", notes=[f"{tmp_path}/store lacks it"])
    experiment = f"model: mini\ndata: {where.parent}\n"
    (folder / "experiment.yaml").write_text(
        json.dumps({"name": "mine", "experiment": experiment, "keys": [f"data={where.parent}"]})
    )
    found = folders.board(folder)
    text = rendered(folder)
    for said in (text, report.to_markdown(found), json.dumps(report.to_json(found))):
        assert str(tmp_path) not in said
        assert "/mnt/disk" not in said
    for said in ("../data/triviaqa.jsonl: line 3", "…/all.txt", "../store lacks it"):
        assert said in text
    assert "data: ../data" in text
    assert "<code>data=../data</code>" in text


def test_lone_surrogates_do_not_stop_the_page(folder, tmp_path):
    path = folder / "predictions" / "none--zsre--0.jsonl"
    path.write_text(path.read_text().replace("an answer", r"\ud800"))
    save_page(folders.board(folder), tmp_path / "it.html")
    assert (tmp_path / "it.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("link", [True, False])
def test_an_experiment_of_another_origin_is_not_shown(folder, tmp_path, link):
    secret = tmp_path / "secret.yaml"
    secret.write_text('{"name": "x", "experiment": "a secret"}' if link else "a secret: {")
    if link:
        (folder / "experiment.yaml").symlink_to(secret)
    else:
        secret.rename(folder / "experiment.yaml")
    assert "a secret" not in rendered(folder)


def test_a_cost_that_is_rounded_up_has_the_next_unit():
    amounts = {999: "999", 999_499: "999 k", 999_500: "1 M", 10**9 - 1: "1 G", 1_234_567: "1.23 M"}
    assert {count: _amount(count) for count in amounts} == amounts
