from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path
from statistics import mean

import fake_hub
import folders
import pytest
from huggingface_hub import ModelCard
from small import EXPERIMENT

from maskpolicy.config import yaml_file
from maskpolicy.version import VERSION

HEAVY = ("torch", "transformers", "spacy", "evaluate", "datasets", "accelerate")
FOLDER = Path(__file__).parents[2] / "experiments"
EXPERIMENTS = sorted([*FOLDER.glob("*.yaml"), *FOLDER.glob("findings/*.yaml")])
PAPER = sorted((FOLDER / "paper").glob("*.yaml"))


@pytest.fixture
def small_world(call, tmp_path):
    assert call("world", "--out", tmp_path / "world", "people=8", "general_people=4")[0] == 0
    return tmp_path / "world"


def loaded(code: str) -> set[str]:
    """Return the heavy modules that a new interpreter has loaded after `code`."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(HEAVY) & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import maskpolicy",
        "from maskpolicy.cli import app\napp(['--help'], standalone_mode=False)",
        "from maskpolicy.cli import app\napp(['run', '--help'], standalone_mode=False)",
        "from maskpolicy.cli import app\napp(['list', 'policies'], standalone_mode=False)",
        "from maskpolicy.cli import app\napp(['list', 'keys'], standalone_mode=False)",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code):
    assert loaded(code) == set()


def test_policies_are_listed_with_none_and_their_fields(call):
    code, out, _ = call("list", "policies", "--json")
    found = {entry["name"]: entry for entry in json.loads(out)}
    assert code == 0
    assert {"none", "original", "random", "salient-span"} <= set(found)
    share = "a number or a schedule >= 0 and <= 1"
    assert found["random"]["fields"]["ratio"] == {"type": share, "default": 0.15}
    assert found["original"]["how"] == {"target": "full"}
    assert "random" in call("list", "policies")[1]


def test_tasks_are_listed_with_group_metric_and_files(call):
    found = {entry["name"]: entry for entry in json.loads(call("list", "tasks", "--json")[1])}
    assert found["triviaqa"]["group"] == "closed-book"
    assert found["triviaqa"]["metric"] == "exact_match"
    assert "zsre" in call("list", "tasks")[1]


def test_keys_are_listed_with_type_default_and_meaning(call):
    code, out, _ = call("list", "keys", "--json")
    found = {(key["block"], key["name"]): key for key in json.loads(out)}
    assert code == 0
    kinds = "a list, of people | writers | birds | salts"
    assert found["world", "kinds"]["type"] == kinds
    assert found["corpus", "words"] == {
        "block": "corpus",
        "name": "words",
        "type": "a whole number >= 1",
        "default": 100,
        "meaning": "words per passage",
    }
    assert "words per passage" in call("list", "keys")[1]
    assert "| `words` |" in call("list", "keys", "--markdown")[1]


def test_markdown_is_for_keys_and_hooks(refused):
    assert "--markdown" in refused("list", "tasks", "--markdown")


def test_hooks_are_listed_with_signature_and_meaning(call):
    code, out, _ = call("list", "hooks", "--json")
    found = {(hook["kind"], hook["name"]): hook for hook in json.loads(out)}
    assert code == 0
    assert (
        found["task", "reading"]["signature"] == "reading(self, row) -> tuple[str, tuple[str, ...]]"
    )
    assert found["policy", "select"]["required"]
    assert found["analysis", "takes_models"]["form"] == "class variable"
    assert "takes_models" in call("list", "hooks")[1]
    assert "| `takes_models`, a class variable |" in call("list", "hooks", "--markdown")[1]


def test_models_are_listed(call):
    assert json.loads(call("list", "models", "--json")[1])[0]["name"] == "mini"


def test_a_plugin_file_is_listed(call, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from maskpolicy.plugins.registry import policy\n"
        "@policy('mine-listed')\n"
        "@dataclass(frozen=True)\n"
        "class Mine:\n"
        "    '''Hide nothing.'''\n"
        "    word: str\n"
        "    def select(self, passage, rng): return passage.pieces[:0]\n"
    )
    keys = json.loads(call("list", "keys", "--json", "--plugin", path)[1])
    assert [key["name"] for key in keys if key.get("of") == "mine-listed"] == ["word"]
    found = json.loads(call("list", "policies", "--json", "--plugin", path)[1])
    mine = next(entry for entry in found if entry["name"] == "mine-listed")
    assert mine["summary"] == "Hide nothing."
    assert mine["fields"] == {"word": {"type": "text"}}
    assert mine["where"].startswith(str(path))


def test_a_broken_plugin_file_is_one_line(refused, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import no_such_module_at_all\n")
    line = refused("list", "policies", "--plugin", path)
    assert str(path) in line
    assert "no_such_module_at_all" in line


@pytest.mark.parametrize("words", [["--help"], ["list", "policies"], ["list", "models"]])
def test_a_broken_package_breaks_no_command_that_does_not_need_it(tmp_path, words):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[maskpolicy.plugins]\nbroken = no_such_module:x\n")
    done = subprocess.run(
        [sys.executable, "-m", "maskpolicy", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_the_world_is_written_and_its_figures_printed(call, small_world):
    for name in ("general.jsonl", "intermediate.jsonl", "tasks"):
        assert (small_world / name).exists()
    code, out, _ = call("world", "--out", small_world, "people=8", "general_people=4", "--json")
    figures = json.loads(out)
    assert code == 0
    assert set(figures["tasks"]) == {
        *("triviaqa", "webquestions", "nq", "aidayago2", "zsre", "wow", "wiqa", "quartz", "ropes"),
        *("cola", "squad", "squad_v2"),
    }
    assert figures["corpora"]["intermediate"]["subjects"] > 8  # people, and the other kinds
    assert 0 < figures["salient-span"]["intermediate"]["asked_share"] < 1
    assert 0 <= figures["tasks"]["triviaqa"]["majority"] < 100
    assert figures["tasks"]["squad_v2"]["rule"] in ("no answer", "first words")


def test_the_worlds_settings_may_be_named_as_in_an_experiment(call, small_world, tmp_path):
    keys = ("world.people=8", "world.general_people=4")
    assert call("world", "--out", tmp_path / "same", *keys)[0] == 0
    other = tmp_path / "same" / "world.json"
    assert other.read_bytes() == (small_world / "world.json").read_bytes()
    code, _, err = call("world", "--out", tmp_path / "same", "world=8")
    assert code == 2
    assert "world: must be a block of keys" in err


def test_examples_are_printed_as_json_lines(call, small_world):
    code, out, _ = call("examples", "zsre", "--data", small_world / "tasks", "--limit", 2)
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [list(row) for row in rows] == [["id", "group", "source", "targets", "context"]] * 2
    assert "[SEP]" in rows[0]["source"]


def test_examples_tell_of_rows_that_are_left_out(call, tmp_path):
    rows = [{"question": "where is it", "answer": ["Ulm"]}, {"question": "unlabelled"}]
    path = tmp_path / "NQ-open.dev.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    code, out, err = call("examples", "nq", "--data", tmp_path)
    assert (code, len(out.splitlines())) == (0, 1)
    assert f"{path}: 1 rows without an answer left out" in err


def test_examples_of_the_world_are_those_that_it_writes(call, tmp_path):
    words = ("examples", "aidayago2", "task.words=3", "--limit", 5, "--data")
    code, out, _ = call(*words, "world")
    assert code == 0
    assert call("world", "--out", tmp_path / "world")[0] == 0
    assert call(*words, tmp_path / "world" / "tasks")[1] == out
    assert call(*words[:2], "words=3", *words[3:], tmp_path / "world" / "tasks")[1] == out
    sources = [json.loads(line)["source"].split() for line in out.splitlines()]
    assert all(len(source) < 14 for source in sources)
    assert call("examples", "zsre", "--data", "world", "task=3")[0] == 2


def test_examples_take_the_split_and_the_tasks_keys(call, small_world):
    words = ("examples", "triviaqa", "--data", small_world / "tasks")
    train = call(*words, "--split", "train", "documents=false")[1]
    test = call(*words, "documents=false")[1]
    assert train and test and not set(train.splitlines()) & set(test.splitlines())
    assert json.loads(test.splitlines()[0])["context"] is None


def test_the_doctor_names_versions_hardware_and_the_store(call, tmp_path):
    code, out, _ = call("doctor", "--store", tmp_path / "store", "--prune", "--older", "30")
    assert code == 0
    for word in ("versions", "torch", "hardware", "precision", "attention", "spaCy", "store"):
        assert word in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rnu"], "Did you mean 'run'?"),
        (["quickstart"], "'quickstart' is an experiment: write `maskpolicy run quickstart`"),
        (["mine.yaml"], "'mine.yaml' is an experiment: write `maskpolicy run mine.yaml`"),
        (["plan", "smoke", "--seeds", "3"], "--seeds; keys are written without dashes, KEY=VALUE"),
        (["run"], "Missing argument 'FILE'. (see maskpolicy run --help)"),
        (["store", "prnue"], "Did you mean 'prune'? (see maskpolicy store --help)"),
        (["run", "no.yaml"], "no.yaml: cannot be read"),
        (["plan", "no.yaml"], "no.yaml: cannot be read"),
        (["run", "--nope"], "No such option"),
        (["list", "polices"], "did you mean 'policies'?"),
        (["examples", "zrse", "--data", "."], "did you mean 'zsre'?"),
        (["examples", "zsre", "--data", "."], "has no"),
        (["examples", "zrse", "--data", "world"], "did you mean 'zsre'?"),
        (["examples", "mnli", "--data", "world"], "the embedded world has no files of task 'mnli'"),
        (
            ["examples", "zsre", "--data", "nowhere"],
            "--data: unknown source 'nowhere': choose from hub",
        ),
        (["examples", "zsre", "--data", ".", "--split", "tets"], "did you mean 'test'?"),
        (["examples", "zsre", "--data", ".", "--split", "validation"], "did you mean 'dev'?"),
        (["examples", "zsre", "--data", ".", "x=1"], "examples.x: unknown key"),
        (["world", "--out", "w", "peple=1"], "did you mean 'people'?"),
        (["world", "--out", "w", "people"], "write key=value"),
        (["leaderboard", "nowhere"], "no results/*.json"),
        (["doctor", "--older", "3"], "--older: needs --prune"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(refused, monkeypatch, tmp_path, words, says):
    monkeypatch.chdir(tmp_path)
    assert says in refused(*words)


def test_a_message_of_any_length_is_cut_in_its_middle(refused):
    line = refused("plan", "quickstart", f"policies=[{'x' * 3000}]")
    assert "policies" in line and " .. " in line


def test_a_traceback_comes_with_debug_only():
    for words, traceback in (([], False), (["--debug"], True)):
        done = subprocess.run(
            [sys.executable, "-m", "maskpolicy", "run", "no.yaml", *words],
            capture_output=True,
            text=True,
        )
        assert ("Traceback" in done.stderr) == traceback
        assert done.returncode == (1 if traceback else 2)


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(refused, tmp_path):
    (tmp_path / "file").write_text("")
    line = refused("run", EXPERIMENTS[0], "--out", tmp_path / "file" / "out")
    assert "choose another --out" in line


def test_a_file_in_place_of_a_folder_is_one_line(refused, tmp_path):
    (tmp_path / "file").write_text("")
    for words in (("run", EXPERIMENTS[0]), ("plan", EXPERIMENTS[0]), ("doctor",)):
        line = refused(*words, "--store", tmp_path / "file")
        assert f"store {tmp_path / 'file'}: is a file: name a folder with --store" in line
    for words in (("world",), ("run", EXPERIMENTS[0])):
        line = refused(*words, "--out", tmp_path / "file")
        assert "is a file, not a folder: choose another --out" in line


FULL = """
import resource, sys
from maskpolicy.cli import app
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
sys.exit(app(sys.argv[2:], standalone_mode=False) or 0)
"""


def full(limit: int, *words: object) -> tuple[int, list[str]]:
    """Run a command on a disk that takes no file beyond so many bytes; returns code and stderr."""
    argv = [sys.executable, "-c", FULL, str(limit), *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True)
    return done.returncode, done.stderr.splitlines()


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_loses_nothing_that_is_committed(call, tmp_path):
    (tmp_path / "it.yaml").write_text(EXPERIMENT)
    store = tmp_path / "store"
    words = ("run", tmp_path / "it.yaml", "--store", store, "--out", tmp_path / "out")
    code, lines = full(400_000, *words)  # the weights have no room, all that is before them has
    assert (code, lines[-1].partition(" (")[0]) == (2, f"error: store {store}: no room to write")
    held = {path: path.read_bytes() for path in store.glob("artifacts/*/*.*")}
    assert held
    assert call(*words)[0] == 0
    assert {path: path.read_bytes() for path in held} == held


def test_a_full_disk_under_the_world_names_its_folder(tmp_path):
    code, lines = full(3000, "world", "--out", tmp_path / "w", "people=8", "general_people=4")
    says = f"error: {tmp_path / 'w'}: cannot be written: File too large; choose another --out"
    assert (code, lines) == (2, [says])


BROKEN = """
from dataclasses import dataclass

from maskpolicy.plugins.registry import policy


@policy("breaks")
@dataclass(frozen=True)
class Breaks:
    def select(self, passage, rng):
        raise ValueError("no such luck")
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Run a tiny experiment once; the folder holds tiny.yaml, store, one run's output."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.yaml").write_text(EXPERIMENT)
    (folder / "breaks.py").write_text(BROKEN)
    words = [folder / "tiny.yaml", "--store", folder / "store", "--out", folder / "out"]
    done = subprocess.run(
        [sys.executable, "-m", "maskpolicy", "run", *map(str, words)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "what each part took" in done.stdout
    return folder


def test_all_is_written_before_output_that_fails(finished, tmp_path):
    words = [finished / "tiny.yaml", "--store", finished / "store", "--out", tmp_path / "out"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "maskpolicy", "run", *map(str, words)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("No space left on device")
    whole, found = contents(finished / "out"), contents(tmp_path / "out")
    assert found.keys() == whole.keys()
    same = [name for name in whole if name not in ("experiment.yaml", "leaderboard.html")]
    assert [found[name] for name in same] == [whole[name] for name in same]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }


def test_a_run_writes_leaderboard_results_predictions_and_its_record(finished):
    board = json.loads((finished / "out" / "leaderboard.json").read_text())
    assert [row["policy"] for row in board["rows"]] == ["none", "random"]
    assert set(contents(finished / "out")) == {
        "experiment.json",
        "experiment.yaml",
        "leaderboard.json",
        "leaderboard.md",
        "leaderboard.csv",
        "leaderboard.tex",
        "leaderboard.html",
        "analyses/viewer/viewer.json",
        "analyses/viewer/viewer.md",
        "questions/zsre.jsonl",
        "results/none--zsre--0.json",
        "results/random--zsre--0.json",
        "predictions/none--zsre--0.jsonl",
        "predictions/random--zsre--0.jsonl",
    }
    record = json.loads((finished / "out" / "run.json").read_text())
    assert {"seconds", "parts", "hardware", "versions", "commit", "machine", "stages"} <= set(
        record
    )


def test_a_result_holds_the_work_of_its_intermediate_stage(finished):
    results = finished / "out" / "results"
    work = json.loads((results / "random--zsre--0.json").read_text())["work"]
    assert work["passages"] == 8
    assert work["hidden_tokens"] > 0
    assert json.loads((results / "none--zsre--0.json").read_text())["work"] is None


def test_the_next_command_names_a_store_only_if_it_is_another(
    call, finished, monkeypatch, tmp_path
):
    shutil.copytree(finished / "store", tmp_path / ".maskpolicy" / "store")
    shutil.copy(finished / "tiny.yaml", tmp_path)
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("run", "tiny.yaml")
    assert code == 0
    assert out.splitlines()[-1] == "to explain the scores: maskpolicy analyze all runs/tiny"


def test_the_same_command_computes_nothing_and_writes_the_same_bytes(call, finished, monkeypatch):
    monkeypatch.setenv("MASKPOLICY_STORE", str(finished / "store"))
    monkeypatch.chdir(finished)
    code, out, _ = call("run", "tiny.yaml")
    assert code == 0
    next_command = f"maskpolicy analyze all runs/tiny --store {finished / 'store'}"
    assert out.splitlines()[-1] == f"to explain the scores: {next_command}"
    one, other = contents(finished / "runs" / "tiny"), contents(finished / "out")
    assert one.pop("experiment.yaml") != other.pop("experiment.yaml")  # each says where it was run
    pages = [each.pop("leaderboard.html").splitlines() for each in (one, other)]
    assert one == other
    differ = [a for a, b in zip(*pages, strict=True) if a != b]
    named = b"<h3>tiny.yaml</h3>"  # like the run's folder
    assert all(b'id="data-record"' in line or line == named for line in differ), differ
    record = json.loads((finished / "runs" / "tiny" / "run.json").read_text())
    assert all(stage["from_store"] for stage in record["stages"])


def test_a_plan_says_which_differences_would_be_found(call, finished, tmp_path):
    words = ("plan", finished / "tiny.yaml", "--store", finished / "store")
    out = call(*words)[1]
    assert "a test needs 3 seeds, each with its own intermediate run (here: seeds 1" in out
    assert "defaults: 0.2 logits between runs" in out
    [line] = [line for line in out.splitlines() if line.split()[:1] == ["zsre"]]
    known = json.loads((finished / "out" / "results" / "none--zsre--0.json").read_text())
    assert line.split()[1] == str(known["metrics"]["n"])  # the split is in the store
    assert "points" in line
    empty = call("plan", finished / "tiny.yaml", "--store", tmp_path / "empty")[1]
    assert "300 test examples" in empty


def test_a_plan_finds_nothing_on_a_task_whose_metric_is_not_tested(call, tmp_path):
    out = call("plan", "zoo-encoder", "--store", tmp_path / "store")[1]
    assert "No test on cola: the metric is a correlation" in out
    head = out.index("significant with 80% probability")
    assert "squad" in out[head:] and "cola" not in out[head:]
    alone = call("plan", "zoo-encoder", "tasks=[cola]", "--store", tmp_path / "store")[1]
    only = call("plan", "zoo-encoder", "--only", "none/squad", "--store", tmp_path / "store")[1]
    assert "cola" not in only
    assert "No test on cola" in alone and "80% probability" not in alone


def test_a_plan_of_an_empty_store_groups_what_is_missing(call, tmp_path):
    lines = call("plan", "nine-tasks", "--store", tmp_path / "store")[1].splitlines()
    [line] = [line for line in lines if line.split()[:3] == ["to", "do", "finetune"]]
    assert "finetune none, triviaqa, seed 0, and 71 more" in line
    assert "input model is to do" in line
    assert sum(line.split()[:3] == ["to", "do", "intermediate"] for line in lines) == 3


def test_a_plan_tells_what_is_done_from_what_a_change_makes_outdated(call, finished):
    words = ("plan", finished / "tiny.yaml", "--store", finished / "store")
    before = contents(finished / "store")
    assert "outdated" not in call(*words)[1]
    lines = call(*words, "intermediate.steps=3")[1].splitlines()
    states = {tuple(line.split()[:3]) for line in lines}
    assert ("outdated", "intermediate", "random,") in states
    assert ("outdated", "evaluate", "random,") in states
    assert ("done", "evaluate", "none,") in states
    assert any("steps: 2 -> 3" in line for line in lines)
    assert contents(finished / "store") == before


def test_a_plan_tells_what_its_stages_will_take(call, finished, tmp_path):
    words = ("plan", finished / "tiny.yaml", "--store")
    known = json.loads(call(*words, finished / "store", "intermediate.steps=4", "--json")[1])
    assert known["counts"] == {"done": known["counts"]["done"], "outdated": 3}
    [stage] = [each for each in known["stages"] if each["kind"] == "intermediate"]
    seconds = [
        found["seconds"]
        for path in (finished / "store" / "artifacts").glob("*/MANIFEST.json")
        if (found := json.loads(path.read_text()))["record"]["kind"] == "intermediate"
    ]
    assert stage["seconds"] == pytest.approx(2 * mean(seconds), abs=0.002)  # 4 steps for 2
    assert stage["state"] == "outdated"
    assert known["expected"]["work"] > stage["seconds"]
    assert known["expected"]["written"] > stage["bytes"] > 0
    assert known["expected"]["unknown"] == []
    out = call(*words, finished / "store", "intermediate.steps=4")[1]
    assert "estimated from" in out
    assert "time and bytes: unknown for" in call(*words, tmp_path / "empty")[1]


def test_the_page_is_named_and_opened(call, finished, monkeypatch, capfd):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or len(opened) == 1)
    page = finished / "out" / "leaderboard.html"
    words = ("run", finished / "tiny.yaml", "--store", finished / "store", "--out", page.parent)
    code, out, err = call(*words, "--open", "-q")
    assert (code, err, opened) == (0, "", [page.resolve().as_uri()])
    assert f"page: {page}" in out
    assert "--open: there is no browser here" in call(*words, "--open")[2]


def test_quiet_and_verbose_exclude_each_other(refused, finished):
    assert "name one of them" in refused("run", finished / "tiny.yaml", "-q", "-v")


def test_a_verbose_run_tells_what_the_store_has(call, finished):
    words = ("run", finished / "tiny.yaml", "--store", finished / "store")
    err = call(*words, "--out", finished / "out", "-v")[2]
    assert "= world: is in the store" in err


def test_a_failed_stage_fails_its_cells_and_nothing_else(call, finished, tmp_path):
    code, out, err = call(
        "run",
        finished / "tiny.yaml",
        "policies=[none, breaks]",
        "--plugin",
        finished / "breaks.py",
        "--store",
        finished / "store",
        "--out",
        tmp_path,
    )
    assert code == 2  # the fault of the user's plugin
    why = f"the notes of {tmp_path / 'leaderboard.md'} say why"
    assert err.splitlines()[-1] == f"error: 1 of 2 cells failed: {why}"
    assert (out + err).count("no such luck") == 1
    assert "Traceback" not in err
    board = json.loads((tmp_path / "leaderboard.json").read_text())
    assert board["rows"][1]["scores"] == {"zsre": None}
    assert board["rows"][0]["scores"]["zsre"] is not None
    assert any("breaks, zsre, seed 0" in n and "no such luck" in n for n in board["notes"])


def test_data_that_a_stage_cannot_use_is_exit_code_2_and_its_line(call, finished, tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n\n")
    (tmp_path / "plain.txt").write_text("it was so.\n\nand so on it went.\n")
    words = ("run", finished / "tiny.yaml", "policies=[none, salient-span]")
    words = (*words, "--store", finished / "store", "--out", tmp_path / "out")
    for name, says in (
        ("blank", "blank.txt: the corpus holds no text: name files"),
        ("plain", "policy salient-span: found nothing in 2 passages"),
    ):
        code, out, err = call(*words, f"corpus={{files: [{tmp_path / name}.txt]}}")
        assert code == 2
        assert (out + err).count(says) == 1
        assert err.splitlines()[-1].startswith("error: ")
        assert f"cells failed: the notes of {tmp_path / 'out' / 'leaderboard.md'}" in err
        assert says in (tmp_path / "out" / "leaderboard.md").read_text()
        assert (tmp_path / "out" / "leaderboard.json").is_file()


def test_a_leaderboard_is_made_again_from_results(call, finished, tmp_path):
    code, out, err = call("leaderboard", finished / "out", "--json", "--out", tmp_path)
    assert code == 0
    assert f"written to {tmp_path}" in err
    assert json.loads(out) == json.loads((finished / "out" / "leaderboard.json").read_text())
    for name in ("leaderboard.json", "leaderboard.md", "leaderboard.csv", "leaderboard.tex"):
        assert (tmp_path / name).read_bytes() == (finished / "out" / name).read_bytes()
    assert "hidden tokens" in call("leaderboard", finished / "out", "--work")[1]


def test_a_page_is_made_again_from_results(call, finished, tmp_path):
    made = tmp_path / "new" / "it.html"
    code, out, _ = call("leaderboard", finished / "out", "--html", made)
    assert code == 0
    assert out.endswith(f"written to {made}\n")
    page = (finished / "out" / "leaderboard.html").read_bytes()
    assert (tmp_path / "new" / "it.html").read_bytes() == page


def test_a_fine_tuned_model_that_was_not_kept_names_the_key_that_keeps_it(
    refused, finished, tmp_path
):
    words = ("export", finished / "out", "random", "--task", "zsre", "--out", tmp_path / "bart")
    said = refused(*words, "--store", finished / "store")
    assert (
        "the model of random fine-tuned on zsre was not kept: add keep_models: [finetune] to"
        in said
    )
    assert "name the store of that run" in refused(*words, "--store", tmp_path / "empty")


@pytest.mark.slow
def test_a_model_goes_to_the_hub_with_a_card_that_names_it(finished, tmp_path):
    out = tmp_path / "bart"
    words = ("export", finished / "out", "random", "--out", out, "--store", finished / "store")
    with fake_hub.serving() as hub:
        done = fake_hub.command(hub, tmp_path / "home", *words, "--push", "me/masked-bart")
        assert done.returncode == 0, done.stderr
        files = hub.repositories["models/me/masked-bart"].files
    assert f"pushed to {hub.address}/me/masked-bart" in done.stdout
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {name: files[name] for name in written} == written
    card = ModelCard(files["README.md"].decode())
    assert card.data.model_name == "me/masked-bart"
    assert {each.metric_type for each in card.data.eval_results} == {"kilt_accuracy"}
    assert 'from_pretrained("me/masked-bart")' in card.text


def test_a_name_that_the_hub_cannot_have_is_refused_before_any_work(refused, finished, tmp_path):
    words = ("export", finished / "out", "random", "--out", tmp_path / "bart", "--push", "bart")
    assert "--push bart: write OWNER/NAME" in refused(*words)
    assert not (tmp_path / "bart").exists()


def test_a_page_that_cannot_be_written_names_its_option(refused, finished):
    page = finished / "tiny.yaml" / "it.html"
    assert "choose another --html" in refused("leaderboard", finished / "out", "--html", page)


def test_a_plan_tells_a_warmup_that_is_too_long(call, finished):
    words = ("plan", finished / "tiny.yaml", "finetune.warmup=3", "--store", finished / "store")
    assert "finetune.warmup: 3 is more than the 2 steps" in call(*words)[2]


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_models_without_fine_tuning_are_warned_of(call, tmp_path, verb):
    path = tmp_path / "tiny.yaml"
    path.write_text(EXPERIMENT.replace("policies: [none, random]", "policies: [none]"))
    out = ("--out", tmp_path / "out") if verb == "run" else ()
    steps = ("finetune.steps=0", "finetune.warmup=0")
    _, _, err = call(verb, path, *steps, "--store", tmp_path / "store", *out)
    assert err.count("finetune.steps: is 0: every model is evaluated as pre-trained") == 1
    assert "finetune.steps" not in call("plan", path, "--store", tmp_path / "store")[2]


def test_seconds_and_versions_of_a_stage_outlast_the_run_that_made_it(call, finished, tmp_path):
    words = ("run", finished / "tiny.yaml", "--store", finished / "store", "--out", tmp_path)
    assert call(*words)[0] == 0
    stages = json.loads((tmp_path / "run.json").read_text())["stages"]
    assert all(stage["from_store"] for stage in stages)
    took = {stage["kind"]: stage["seconds"] for stage in stages}
    assert took["intermediate"] > 0
    assert took["finetune"] > 0


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("results/none--zsre--0.json", '{"version": 1, "po', "not JSON"),
        ("results/none--zsre--0.json", '{"version": 2}', "by another version of maskpolicy"),
        ("predictions/none--zsre--0.jsonl", '{"id": "a', "line 1"),
    ],
)
def test_a_folder_that_is_damaged_gives_one_line(refused, finished, tmp_path, name, content, says):
    shutil.copytree(finished / "out", tmp_path / "copy")
    (tmp_path / "copy" / name).write_text(content)
    line = refused("leaderboard", tmp_path / "copy", "--html", tmp_path / "it.html")
    assert says in line
    assert Path(name).name in line
    assert not (tmp_path / "it.html").exists()


def test_an_empty_folder_gives_one_line(refused, tmp_path):
    line = refused("leaderboard", tmp_path, "--html", tmp_path / "it.html")
    assert f"{tmp_path}: no results/*.json" in line


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    return folders.official(tmp_path_factory.mktemp("official"))


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_the_papers_experiments_are_planned_without_a_network(call, tmp_path, official, path):
    text = official / "kilt_knowledgesource.json"
    keys = (f"data={official}", f"corpus.files=[{text}]", "seeds=[0]", "intermediate_seeds=1")
    if path.stem == "multiple-choice":
        keys = (*keys, f"policies.2.corpus.mix.other.files=[{text}]")
    code, out, err = call("plan", path, *keys, "--store", tmp_path / "store")
    assert code == 0, err
    for block in yaml_file.values(yaml_file.read_text(path), "")["policies"][-2:]:
        label = block if isinstance(block, str) else block["label"]
        assert f"{label}, run 0" in out


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_is_planned(call, tmp_path, path):
    code, out, _ = call("plan", path, "--store", tmp_path / "store")
    assert code == 0
    assert "to do" in out
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_task_whose_subjects_the_world_lacks_is_refused_before_any_work(call, tmp_path, verb):
    path = tmp_path / "birds.yaml"
    text = "{model: mini, corpus: world, data: world, policies: [none], tasks: [triviaqa, nq, wiqa]"
    path.write_text(text + ", world: {kinds: [people, writers]}}")
    out = ("--out", tmp_path / "out") if verb == "run" else ()
    code, _, err = call(verb, path, "--store", tmp_path / "store", *out)
    assert (code, err.strip()) == (
        2,
        f"error: {path}: tasks[1]: nq asks about birds, wiqa asks about salts, which this world "
        "lacks: set world.kinds: [people, writers, birds, salts]",
    )
    assert not (tmp_path / "store").exists()
    path.write_text(path.read_text().replace("writers", "writers, salts, birds"))
    assert call("plan", path, "--store", tmp_path / "store")[0] == 0


def test_a_task_that_no_world_has_is_refused(call, tmp_path):
    path = tmp_path / "mnli.yaml"
    path.write_text(
        "{model: {kind: encoder, name: mini}, corpus: world, policies: [none], tasks: [mnli]}"
    )
    code, _, err = call("plan", path, "--store", tmp_path / "store")
    assert code == 2
    assert "mnli: the embedded world has no files of task 'mnli'" in err


def test_the_version_is_printed(call):
    assert call("--version") == (0, f"maskpolicy {VERSION}\n", "")


def test_analyses_are_listed(call):
    code, out, _ = call("list", "analyses", "--json")
    assert code == 0
    assert {"coverage", "rank", "worlds"} <= {each["name"] for each in json.loads(out)}
