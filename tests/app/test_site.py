"""`site`: places of all kinds, names, digests and faults; tests of pages cover the browser."""

import json
import re
import shutil
from pathlib import Path

import folders
import pandas as pd
import pytest
from hostile_zips import HOSTILE

from maskpolicy.app import packing
from maskpolicy.leaderboard.given_scores import build_board
from maskpolicy.leaderboard.page import save_forms

ROWS = [  # with an example that one system lacks, and a tie
    (system, task, seed, n, float((n * place + seed) % 4 < place + 1))
    for place, system in enumerate(("a", "b", "<b>"))
    for task in ("qa", "nli")
    for seed in range(3)
    for n in range(40)
][:-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A board of given scores."""
    return saved(ROWS, tmp_path_factory.mktemp("built") / "mine")


def saved(rows, folder: Path = Path("mine")) -> Path:
    """Write the board of (system, task, seed, example, score) to a folder, and return it."""
    frame = pd.DataFrame(rows, columns=["system", "task", "seed", "example", "score"])
    save_forms(build_board(frame, title="mine"), folder)
    return folder


@pytest.fixture
def board(built):
    """Return a function that copies the board to a folder."""
    return lambda folder: shutil.copytree(built, Path(folder))


def test_runs_zips_folders_of_zips_boards_and_the_hub_are_read(call, done, hub, board):
    run = folders.write(Path("runs/a/it"), {"none": 0.2, "random": 0.6}, n=12)
    packed = packing.pack(run, Path("zips/it.zip"))
    packing.pack(run, Path("zips/index.html.zip"))
    call("pack", run, "--out", "hub.zip", "--push", "me/results")
    places = (run, packed, "zips", board("boards/mine"), "hf://datasets/me/results")
    code, out, _ = call("site", *places, "--out", "public", "--title", "Ours", "--unverified")
    assert (code, out) == (0, "6 leaderboards, written to public/index.html\n")
    text = Path("public/index.html").read_text()
    names = ["a__it", "it", "index.html-2", "it-2", "mine", "hub"]
    assert re.findall(r'href="([\w./-]+)/leaderboard.html"', text) == names
    assert "<h1>Ours</h1>" in text
    done("site", run, "--out", "public", "--unverified")
    assert 'href="it/' not in Path("public/index.html").read_text()


def test_the_highest_score_is_that_of_the_row_that_is_named(done):
    """On the seeds that both have, b is better; a seed of a alone makes its mean higher."""
    right = {"a": (4, 4, 4, 10), "b": (5, 5, 5)}
    rows = [
        (system, "qa", seed, n, float(n < count))
        for system, counts in right.items()
        for seed, count in enumerate(counts)
        for n in range(10)
    ]
    done("site", saved(rows), "--out", "public", "--unverified")
    assert "qa 50.0 (b)" in Path("public/index.html").read_text()


def test_site_writes_the_page_of_a_board_as_board_does(call, done, board):
    mine = board("mine")
    done("site", mine, "--out", "public")
    link = '<a href="../index.html">All results</a> · '
    verified = (0, "36 results, 0 faults: mine, public/mine\n")
    assert call("verify", mine, "public/mine")[:2] == verified
    for file in mine.glob("[!M]*"):  # the digests in the manifest differ with the files
        texts = file.read_text(), Path("public/mine", file.name).read_text().replace(link, "")
        lines = (re.sub(r"(\.\d{3})\d+", r"\1", text).splitlines() for text in texts)
        first, second = ([line for line in each if "data-board" not in line] for each in lines)
        assert first == second, file.name  # but for numbers that the file rounds


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.pop("given"),
        lambda b: b.update(baseline="z"),
        lambda b: b["rows"][0].update(policy=["a"]),
        lambda b: b["rows"][0]["scores"]["qa"].update(seeds={"0": float("inf")}),
        lambda b: b["rows"][0]["scores"]["qa"].update(seeds={"0": 1e300}),
        lambda b: b["rows"][0]["scores"]["qa"].update(seeds={}),
        lambda b: b["rows"][0]["scores"]["qa"].update(metric="\x1b[31m"),
        lambda b: b["rows"].append(b["rows"][0]),
        lambda b: b["pairs"][0].update(row="z"),
        lambda b: b["measured"].update(tasks=[]),
        lambda b: b.update(notes=7),
    ],
)
def test_an_edited_board_is_an_error(refused, board, change):
    file = board("mine") / "leaderboard.json"
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))
    line = refused("site", "mine", "--out", "public")
    assert "mine/leaderboard.json: not written by `maskpolicy board`" in line


def test_a_run_without_its_results_is_no_board(refused, board):
    (board("mine") / "experiment.json").write_text("{}")
    assert "mine: no results/*.json: name a folder" in refused("site", "mine", "--out", "public")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda mine: (mine / "pairs.csv").unlink(), "mine: pairs.csv: was changed or removed"),
        (lambda mine: (mine / "leaderboard.csv").write_text("a"), "mine: leaderboard.csv: was"),
        (lambda mine: (mine / "MANIFEST.json").write_text("{}"), "MANIFEST.json was changed"),
        (lambda mine: (mine / "MANIFEST.json").unlink(), "mine: MANIFEST.json is missing"),
    ],
)
def test_faults_of_digests_end_in_one_line_before_anything_is_written(
    call, done, refused, board, change, said
):
    places = board("whole"), board("mine")
    change(places[1])
    code, out, _ = call("verify", *places)
    assert code == 1 and said in out
    line = refused("site", *places, "--out", "public").rstrip()
    assert said in line and line.endswith("--unverified writes the site without a check")
    assert not Path("public").exists()
    done("site", *places, "--out", "public", "--unverified")


def test_a_broken_file_of_a_zip_is_found_before_anything_is_written(refused, board):
    run = folders.write(Path("it"), {"none": 0.2, "random": 0.6}, n=12)
    (run / "run.json").write_text("{")
    zips = packing.pack(run, Path("it.zip"))
    line = refused("site", board("mine"), zips, "--out", "public", "--unverified").rstrip()
    assert "it.zip/it/run.json: not JSON" in line and line.endswith("has to be packed again")
    assert not Path("public").exists()


def test_a_board_overwrites_no_other_folder(refused):
    run = folders.write(Path("it"), {"none": 0.2, "random": 0.6}, n=12)
    Path("scores.csv").write_text("system,task,example,score\na,t,1,0\nb,t,1,1\n")
    before = folders.contents(run)
    (run / "leaderboard.json").write_text("{}")
    assert "holds the results of a run" in refused("board", "scores.csv", "--out", run)
    (run / "leaderboard.json").unlink()
    assert "holds other files" in refused("board", "scores.csv", "--out", run)
    assert folders.contents(run) == before
    Path("mine").mkdir()
    Path("mine/index.html").write_text("<p>my home page")
    said = refused("site", saved(ROWS, Path("other")), "--out", "mine")
    assert "mine/index.html: is another page, which would be replaced" in said
    Path("mine/index.html").unlink()
    for _ in range(2):
        saved(ROWS)


@pytest.mark.parametrize("write", HOSTILE)
def test_a_hostile_zip_is_one_line(refused, write):
    write(Path("it.zip"))
    assert "it.zip" in refused("site", "it.zip", "--out", "public", "--unverified")
    assert not Path("public").exists()
