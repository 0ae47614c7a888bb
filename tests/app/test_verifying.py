"""maskpolicy verify: digests of real results hold; each change of a packed run is one line."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import folders
import pytest
import small
import yaml
from hostile_zips import HOSTILE
from pages import DOCS

from maskpolicy.app import packing
from maskpolicy.leaderboard.results import run_folder, verification
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.leaderboard.results.run_folder import NAMES
from maskpolicy.pipeline.store.artifacts import Store

TINY = small.experiment(
    tasks=["zsre", "wow"],
    checkpoint_steps=[1],
    tune={"intermediate.lr": [1e-3, 1e-4], "on": "dev"},
    finetune={"steps": 2, "warmup": 1, "batch_size": 4, "max_source": 24},
)
CELL = "random--zsre--0"


@pytest.fixture(scope="module")
def finished(run_tiny) -> Path:
    """The folder of a run with a tuned row and a checkpoint."""
    return run_tiny(TINY) / "out"


@pytest.fixture
def changed(finished, tmp_path, call) -> Callable[..., list[str]]:
    """Return a function that changes the files of a run, and returns what `verify` says of it."""

    def changed(change: Callable[[Path], object], *, pack: bool = True) -> list[str]:
        run = shutil.copytree(finished, tmp_path / "copy")
        change(run)
        place = packing.pack(run, tmp_path / "it.zip") if pack else run
        code, out, err = call("verify", place)
        assert not err
        lines = out.splitlines()
        assert code == (len(lines) > 1)
        assert all(line.startswith(f"{place}: ") for line in lines[:-1])
        return [line.removeprefix(f"{place}: ") for line in lines[:-1]]

    return changed


def edit(path: Path, change: Callable[[dict], object]) -> None:
    """Change the JSON in a file."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def test_all_digests_of_a_real_run_hold(finished, tmp_path, call):
    packed = packing.pack(finished, tmp_path / "it.zip")
    code, out, _ = call("verify", packed, finished)
    assert (code, out) == (0, f"12 results, 0 faults: {packed}, {finished}\n")
    assert "stages.json" in NAMES


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["metrics"].update(score=0.75), "its score is not the one that its"),
        (lambda r: r["config"]["finetune"].update(steps=9), "the steps of its stage finetune"),
        (
            lambda r: r["config"]["finetune"].update(batch_size=9),
            "the batch_size of its stage fine",
        ),
        (lambda r: r["config"]["policy"].update(name="salient-span"), "the policy of its stage"),
        (lambda r: r["config"]["policy"].update(ratio=0.5), "the ratio of its stage intermediate"),
        (lambda r: r["config"]["model"].update(name="base"), "the model of its stage general"),
        (lambda r: r["config"]["task"].update(name="nq"), "the task of its stage test-examples"),
        (lambda r: r.update(seed=7), "is the file of another cell"),
        (lambda r: r["stages"].update({"world": "0" * 64}), "has no record of its stage world"),
        (lambda r: r.update(origin="hub"), "is not as `run` wrote it"),
        (lambda r: r.pop("config"), "not a result that `maskpolicy run` wrote"),
        (lambda r: r["config"].pop("task"), "not a result that `maskpolicy run` wrote"),
        (lambda r: r["audit"].pop("cuts"), "not a result that `maskpolicy run` wrote"),
        (lambda r: r["metrics"].update(score=1e300), "not a result that `maskpolicy run` wrote"),
        (lambda r: r["metrics"].update(score=float("nan")), "metrics.score"),
    ],
)
def test_an_edited_result_is_named(changed, change, said):
    lines = changed(lambda run: edit(run / "results" / f"{CELL}.json", change), pack=False)
    assert any(line.startswith(f"results/{CELL}.json: ") and said in line for line in lines)


def test_a_folder_that_is_half_written_is_a_fault(changed):
    (line,) = changed(lambda run: (run / run_folder.BEING_WRITTEN).touch(), pack=False)
    assert line.startswith("is being written, or its command ended")


def test_edited_answers_are_named_and_scored_again(changed):
    def answer(run: Path) -> None:
        for row in folders.edited(run / "predictions", f"{CELL}.jsonl"):
            row["prediction"] = row["targets"][0]

    edited, scored = changed(answer)
    assert edited.endswith("its predictions are not those that its evaluation wrote")
    assert " of its predictions is 1.0" in scored


def test_a_record_that_does_not_match_its_key_is_named(changed):
    def change(stages: dict) -> None:
        for record in stages.values():
            if record["kind"] == "world":
                record["params"]["people"] = 9

    lines = changed(lambda run: edit(run / "stages.json", change))
    assert len(lines) == 6
    assert {line.partition(": ")[2] for line in lines} == {
        "the key of its stage world is not the digest of its record"
    }


def test_missing_answers_are_named(changed):
    lines = changed(lambda run: (run / "predictions" / f"{CELL}.jsonl").unlink())
    assert lines == [f"results/{CELL}.json: its predictions are missing"]


@pytest.mark.parametrize(
    ("names", "line"),
    [
        ((f"results/{CELL}.json",), f"results/{CELL}.json: is missing"),
        (("results/none--zsre--0.json",), "results/none--zsre--0.json: is missing"),
        (
            (f"results/{CELL}.json", "experiment.json"),
            "stages.json: no result depends on some of its stages: results are missing",
        ),
    ],
)
def test_a_missing_result_is_named(changed, names, line, tmp_path, refused):
    lines = changed(lambda run: [(run / name).unlink() for name in names], pack=False)
    assert lines == [line]
    assert line in refused("site", tmp_path / "copy", "--out", tmp_path / "public")


def test_results_of_removed_rows_and_of_other_stores_are_no_faults(finished, tmp_path, call):
    run = shutil.copytree(finished, tmp_path / "copy")
    before = (run / "stages.json").read_bytes()
    verification.save(read_run(run), Store(tmp_path / "new"))
    assert (run / "stages.json").read_bytes() == before
    edit(run / "experiment.json", lambda settings: settings["tasks"].pop())
    verification.save(read_run(run), Store(tmp_path / "new"))
    edit(run / "run.json", lambda record: record["stages"].clear())  # as after --only
    keys = json.loads((run / "stages.json").read_text())
    assert len(before) > len((run / "stages.json").read_bytes())
    assert run_folder.stage_keys(run) == list(keys)
    assert call("verify", run)[:2] == (0, f"3 results, 0 faults: {run}\n")


@pytest.mark.parametrize("text", ["[]", '{"a": 1}', '{"a": {"files": [7]}}', '{"a', "{}"])
def test_malformed_records_are_lines(changed, text):
    lines = changed(lambda run: (run / "stages.json").write_text(text))
    assert all("stages.json" in line or "evaluation" in line for line in lines)
    assert len(lines) > 6 or len(lines) == 1


def test_files_that_were_changed_after_they_were_packed_are_named(finished, tmp_path, call):
    packed = packing.pack(finished, tmp_path / "it.zip")
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(tmp_path / "new.zip", "w") as new:
        for name in old.namelist():
            more = b" " if name.endswith("leaderboard.md") else b""
            if not name.endswith(".csv"):
                new.writestr(name, old.read(name) + more)
        new.writestr("out/analyses/\x1b[31m.svg", "<svg/>")
    code, out, _ = call("verify", tmp_path / "new.zip", packed)
    assert code == 1
    *lines, last = out.splitlines()
    assert last.startswith("12 results, 3 faults: ")
    assert [line.partition(".zip: ")[2].split(": ")[0] for line in lines] == [
        *("analyses/\ufffd[31m.svg", "leaderboard.csv", "leaderboard.md")
    ]


@pytest.mark.parametrize("write", HOSTILE)
def test_a_hostile_zip_is_lines_and_no_traceback(write, tmp_path, call):
    path = tmp_path / "it.zip"
    write(path)
    code, out, err = call("verify", path)
    assert code == 1
    assert not err
    assert len(out) < 900
    assert all(str(path) in line for line in out.splitlines())
    assert list(tmp_path.iterdir()) == [path]


def test_the_workflow_gives_the_commands_of_its_page(finished, call):
    text = (DOCS / "site.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["publish"]["needs"] == "site"
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    given = [line for line in steps if line.startswith("maskpolicy ")]
    packing.pack(finished, Path("results/it.zip"))
    for line in given:
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', line)[1:]]
        assert call(*words)[0] == 0, words
    assert len(given) == 2
    assert "site.yml" in (DOCS / "site.md").read_text()
    assert Path("public/it/leaderboard.html").is_file()
