"""maskpolicy run, plan, leaderboard and export with one small run."""

import json
import shutil
import webbrowser
from fnmatch import fnmatch
from pathlib import Path
from statistics import mean

import clusters
import forked
import pytest
from folders import contents, half_written
from huggingface_hub import ModelCard
from small import EXPERIMENT, policy_file

from maskpolicy.app.contents import CONTENTS, MOST
from maskpolicy.core.errors import DataError
from maskpolicy.leaderboard.results.cell import read_run
from maskpolicy.pipeline.store.artifacts import Store

FOLDER = Path(__file__).parents[2] / "experiments"
# the golden keys are those of the others
EXPERIMENTS = sorted([*FOLDER.glob("findings/*.yaml"), FOLDER / "quickstart.yaml"])


@pytest.fixture(scope="module")
def finished(run_tiny):
    """A folder with tiny.yaml, its store, and out/."""
    return run_tiny(EXPERIMENT)


@pytest.fixture
def tiny(call, finished):
    """Call a command with tiny.yaml and its store; returns exit code, stdout and stderr."""

    def tiny(verb, *words):
        return call(verb, finished / "tiny.yaml", "--store", finished / "store", *words)

    return tiny


def test_all_files_are_written_before_printing_fails(finished, tmp_path):
    words = [finished / "tiny.yaml", "--store", finished / "store", "--out", tmp_path / "out"]
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    said = clusters.finish(forked.command("run", *words, before=full), codes=(2,))
    assert said.splitlines()[-1].endswith("No space left on device")
    whole, found = (contents(place / "out", "run.json") for place in (finished, tmp_path))
    assert found.keys() == whole.keys()
    same = [name for name in whole if name not in ("experiment.yaml", "leaderboard.html")]
    assert [found[name] for name in same] == [whole[name] for name in same]


def test_the_same_command_computes_nothing_and_writes_the_same_bytes(done, finished, monkeypatch):
    monkeypatch.setenv("MASKPOLICY_STORE", str(finished / "store"))
    monkeypatch.chdir(finished)
    out, err = done("run", "tiny.yaml", "-v")
    assert "what each part took" in out
    assert "= world: is in the store" in err
    next_command = f"maskpolicy analyze all runs/tiny --store {finished / 'store'}"
    assert out.splitlines()[-1] == f"to explain the scores: {next_command}"
    one, other = (contents(finished / out, "run.json") for out in ("runs/tiny", "out"))
    assert one.pop("experiment.yaml") != other.pop("experiment.yaml")  # each says where it was run
    pages = [each.pop("leaderboard.html").splitlines() for each in (one, other)]
    assert one == other
    differ = [a for a, b in zip(*pages, strict=True) if a != b]
    named = b"<h3>tiny.yaml</h3>"  # like the run's folder
    assert all(b'id="data-record"' in line or line == named for line in differ), differ
    stages = json.loads((finished / "runs" / "tiny" / "run.json").read_text())["stages"]
    assert all(stage["from_store"] for stage in stages)
    took = {stage["kind"]: stage["seconds"] for stage in stages}  # of the run that computed them
    assert took["intermediate"] > 0 and took["finetune"] > 0


def test_a_plan_says_which_differences_would_be_found(call, tiny, finished, tmp_path):
    out = tiny("plan")[1]
    assert "a test needs 3 seeds, each with its own intermediate run (here: seeds 1" in out
    assert "defaults: 0.2 logits between runs" in out
    [line] = [line for line in out.splitlines() if line.split()[:1] == ["zsre"]]
    cell = json.loads((finished / "out" / "results" / "none--zsre--0.json").read_text())
    assert line.split()[1] == str(cell["metrics"]["n"])  # the split is in the store
    assert "points" in line
    empty = call("plan", finished / "tiny.yaml", "--store", tmp_path / "empty")[1]
    assert "300 test examples" in empty and "time and bytes: unknown for" in empty


def test_a_plan_of_an_empty_store_groups_what_is_missing(call, tmp_path):
    words = ("plan", "nine-tasks", "--store", tmp_path / "store")
    lines = call(*words, "-v")[1].splitlines()
    [line] = [line for line in lines if line.split()[:3] == ["to", "do", "finetune"]]
    assert "finetune none, triviaqa, seed 0, and 71 more" in line
    assert "input model is to do" in line
    assert sum(line.split()[:3] == ["to", "do", "intermediate"] for line in lines) == 3
    [line] = [line for line in call(*words)[1].splitlines() if " to do: " in line]
    assert "72 finetune" in line and "3 intermediate" in line


def test_a_plan_estimates_time_and_bytes(tiny, finished):
    plan = json.loads(tiny("plan", "intermediate.steps=4", "--json")[1])
    assert plan["counts"] == {"done": plan["counts"]["done"], "outdated": 3}
    [stage] = [each for each in plan["stages"] if each["kind"] == "intermediate"]
    manifests = (finished / "store" / "artifacts").glob("*/MANIFEST.json")
    records = [json.loads(path.read_text()) for path in manifests]
    seconds = [r["seconds"] for r in records if r["record"]["kind"] == "intermediate"]
    assert stage["seconds"] == pytest.approx(2 * mean(seconds), abs=0.002)  # 4 steps for 2
    assert stage["state"] == "outdated"
    assert plan["expected"]["work"] > stage["seconds"]
    assert plan["expected"]["written"] > stage["bytes"] > 0
    assert plan["expected"]["unknown"] == []
    assert "estimated from" in tiny("plan", "intermediate.steps=4")[1]


def test_the_page_is_named_and_opened(tiny, finished, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or len(opened) == 1)
    page = finished / "out" / "leaderboard.html"
    code, out, err = tiny("run", "--out", page.parent, "--open", "-q")
    assert (code, err, opened) == (0, "", [page.resolve().as_uri()])
    assert f"page: {page}" in out
    assert "--open: there is no browser here" in tiny("run", "--out", page.parent, "--open")[2]


def test_a_failed_stage_fails_its_cells_and_nothing_else(tiny, tmp_path):
    (tmp_path / "breaks.py").write_text(policy_file("breaks", 'raise ValueError("no such luck")'))
    out_folder = tmp_path / "out"
    keys = ("policies=[none, breaks]", "--plugin", tmp_path / "breaks.py", "--out", out_folder)
    code, out, err = tiny("run", *keys)
    assert code == 2  # the fault of the user's plugin
    why = f"the notes of {out_folder / 'leaderboard.md'} say why"
    assert err.splitlines()[-1] == f"error: 1 of 2 cells failed: {why}"
    assert (out + err).count("no such luck") == 1
    assert "Traceback" not in err
    board = json.loads((out_folder / "leaderboard.json").read_text())
    assert board["rows"][1]["scores"] == {"zsre": None}
    assert board["rows"][0]["scores"]["zsre"] is not None
    assert any("breaks, zsre, seed 0" in n and "no such luck" in n for n in board["notes"])


def test_a_leaderboard_is_made_again_from_results(done, finished, tmp_path):
    run, page = finished / "out", tmp_path / "new" / "it.html"
    out, err = done("leaderboard", run, "--json", "--out", tmp_path, "--html", page)
    assert f"written to {tmp_path}\nwritten to {page}\n" in err
    assert json.loads(out) == json.loads((run / "leaderboard.json").read_text())
    for name in ("leaderboard.json", "leaderboard.md", "leaderboard.csv", "leaderboard.tex"):
        assert (tmp_path / name).read_bytes() == (run / name).read_bytes()
    assert page.read_bytes() == (run / "leaderboard.html").read_bytes()
    shown = done("leaderboard", run, "--work")[0]
    assert "hidden tokens" in shown and "source tokens" in shown


def test_what_cannot_be_exported_is_one_line(refused, finished, tmp_path):
    words = ("export", finished / "out", "random", "--out", tmp_path / "bart", "--task", "zsre")
    assert (
        "the model of random fine-tuned on zsre was not kept: add keep_models: [finetune] to"
        in (refused(*words, "--store", finished / "store"))
    )
    assert "name the store of that run" in refused(*words, "--store", tmp_path / "empty")
    assert not (tmp_path / "bart").exists()


def test_a_model_goes_to_the_hub_with_a_card_that_names_it(done, hub, finished, tmp_path):
    out = tmp_path / "bart"
    words = ("export", finished / "out", "random", "--out", out, "--store", finished / "store")
    printed, _ = done(*words, "--push", "me/masked-bart")
    assert "pushed to https://hub/me/masked-bart" in printed
    files = hub.files["models/me/masked-bart"]
    assert files == contents(out)
    card = ModelCard(files["README.md"].decode())
    assert card.data.model_name == "me/masked-bart"
    assert {each.metric_type for each in card.data.eval_results} == {"kilt_accuracy"}
    assert 'from_pretrained("me/masked-bart")' in card.text


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_is_planned(done, tmp_path, path):
    out, _ = done("plan", path, "--store", tmp_path / "store")
    assert "to do" in out
    assert not (tmp_path / "store").exists()


def test_the_page_of_a_run_shows_what_each_policy_masked(finished):
    found = json.loads((finished / "out" / "analyses" / "viewer" / "viewer.json").read_text())
    assert len({row["passage"] for row in found["rows"]}) == MOST
    assert {row["policy"] for row in found["rows"]} == {"random"}
    page = (finished / "out" / "leaderboard.html").read_text()
    assert page.count('<p class="passage">') == 1 + MOST
    assert "analyze viewer" not in page


def test_a_run_writes_what_the_table_and_the_docs_say_and_nothing_else(finished):
    out = finished / "out"
    there = [path.relative_to(out).as_posix() for path in out.rglob("*.*")]
    patterns = {f"{name}*" if name[-1] == "/" else name: write for name, write in CONTENTS.items()}
    assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in there), there
    wanted = [pattern for pattern, write in patterns.items() if write is not None]
    assert all(any(fnmatch(name, pattern) for name in there) for pattern in wanted), there
    page = (FOLDER.parent / "docs" / "commands.md").read_text(encoding="utf-8")
    about = page.partition("## The folder")[2].partition("\n##")[0]
    names = (name for name in CONTENTS if not name.startswith("leaderboard."))
    assert all(f"`{name}`" in about for name in names)


def test_a_half_written_folder_is_an_error_until_it_is_written_again(tiny, tmp_path, monkeypatch):
    def interrupted(board, path):
        raise KeyboardInterrupt

    words = ("run", "--out", tmp_path / "out")
    assert tiny(*words)[0] == 0
    folders = ("", "results", "questions", "analyses")
    parts = [half_written(tmp_path / "out" / folder / "a.json", 1) for folder in folders]
    assert tiny(*words)[0] == 0
    assert not any(part.exists() for part in parts)
    with monkeypatch.context() as patched:
        patched.setattr("maskpolicy.app.contents.save_page", interrupted)
        assert tiny(*words)[0] == 130
    with pytest.raises(DataError, match="is being written, or its command ended while it wrote"):
        read_run(tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "analyses" / "viewer")
    (tmp_path / "out" / "analyses" / "viewer").write_text("a file of the user's")
    code, _, err = tiny(*words)
    assert (code, "the page does not show what each policy masked: " in err) == (0, True)
    assert len(read_run(tmp_path / "out").results) == 2


@pytest.mark.slow
def test_a_damaged_artifact_behind_whole_ones_is_named_and_computed_again(call, done, finished):
    store, out = Store(finished / "store"), finished / "out"
    before = contents(out / "results")
    kinds = ("general", "corpus", "intermediate")
    records = [each for each in store.records(dropped=False) if each["record"]["kind"] in kinds]
    for each in records:
        path = min(store.path(each["key"]).rglob("*.safetensors"))
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    doctor = ("doctor", "--verify", "--store", store.root)
    assert call(*doctor)[0] == 1
    words = ("run", finished / "tiny.yaml", "--store", store.root, "--out", out, "--verify")
    _, err = done(*words)
    assert err.count("is damaged and will be computed again") == len(records) >= 3
    assert contents(out / "results") == before
    done(*doctor)
