"""A downloaded run: no command that reads it runs code in its folder, or code that it names."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import folders
import pytest
import small

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.files import write_file
from maskpolicy.core.metrics import Total
from maskpolicy.data.corpus import passages
from maskpolicy.data.corpus.passages import PASSAGES_FILE, passage_rows, write_passages
from maskpolicy.leaderboard.results.cell import Result, result_bytes
from maskpolicy.models import text_to_text
from maskpolicy.models.loading import load_tokenizer
from maskpolicy.pipeline.store.artifacts import Store
from tests.analyses.test_analyses import WORK

PLUGIN = small.POLICY.format(name="theirs")
MODULES = ("policies", "tasks", "numpy", "torch", "spacy", "matplotlib", "theirs", "evil_mask")
KEYS = {name: str(number) * 64 for number, name in enumerate(("tokenizer", "model", "corpus"))}


@dataclass(frozen=True)
class Bomb:
    """Leaves a mark when it is unpickled."""

    mark: Path

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.fixture(scope="module")
def marked(tmp_path_factory) -> Path:
    """The file that all code of the stranger would create."""
    return tmp_path_factory.mktemp("marked") / "it ran"


@pytest.fixture
def mark(marked) -> Path:
    """The same file, which does not exist when a test begins."""
    marked.unlink(missing_ok=True)
    return marked


@pytest.fixture
def stranger(uploaded, mark, tmp_path, capfd) -> Path:
    """A downloaded run."""
    capfd.readouterr()  # what Transformers said while it was made
    return shutil.copytree(uploaded, tmp_path / "downloaded" / "run")


@pytest.fixture(scope="module")
def uploaded(tmp_path_factory, marked) -> Path:
    """A run with code wherever code could lie, and a store of its own inside its folder."""
    run, mark = tmp_path_factory.mktemp("uploaded"), marked
    code = f"from pathlib import Path\nPath({str(mark)!r}).touch()\n"
    (run / "theirs.py").write_text(code + PLUGIN)
    for name in MODULES[:-2]:
        (run / name).mkdir()
        (run / name / "__init__.py").write_text(code)
    (run / "evil_mask.py").write_text(code)
    info = run / "evil_mask-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil_mask\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[maskpolicy.plugins]\nevil = evil_mask\n")
    (run / "pipeline").mkdir()
    (run / "pipeline" / "meta.json").write_text('{"lang": "en", "name": "evil", "version": "1"}')
    _fill(Store(run / "store"), mark, code)
    _results(run)
    return run


def _fill(store: Store, mark: Path, code: str) -> None:
    """Commit a tokenizer and a model with code, a corpus, and an intermediate stage of each row."""
    with store.write(KEYS["tokenizer"], {}) as out:
        small.tokenizer().save_pretrained(out)
    with store.write("8" * 64, {}) as out:
        small.tokenizer().save_pretrained(out)
        _with_code(out / "tokenizer_config.json", {"AutoTokenizer": ["theirs.Code", None]})
        (out / "theirs.py").write_text(code)
    with store.write(KEYS["model"], BASE) as out:
        small.bart().save_pretrained(out)
    with store.write("9" * 64, BASE) as out:
        small.bart().save_pretrained(out)
        _with_code(out / "config.json", {"AutoConfig": "theirs.Code"})
        (out / "theirs.py").write_text(code)
    with store.write(KEYS["corpus"], {"kind": "corpus", "params": {"corpus": SOURCE}}) as out:
        rows = passage_rows([passages.Document("a", small.TEXTS[0])], small.tokenizer(), 100)
        write_passages(out / PASSAGES_FILE, rows)
    for number, (policy, fields) in enumerate(ROWS):
        params = {"policy": policy, "fields": fields, "code": {}, "how": {}, "spec": {}}
        inputs = {"corpus": KEYS["corpus"], "model": "9" * 64, "tokenizer": KEYS["tokenizer"]}
        record = {"kind": "intermediate", "params": params, "inputs": inputs, "facts": {}}
        with store.write("abc"[number] * 64, record) as out:
            small.bart().save_pretrained(out)
            _with_code(out / "config.json", {"AutoModelForSeq2SeqLM": "theirs.Code"})
            (out / "theirs.py").write_text(code)
            (out / "custom_generate").mkdir()
            (out / "custom_generate" / "generate.py").write_text(code)


BASE = {"kind": "pretrained", "params": {"name": "", "revision": None}}
SOURCE = {"name": "world", "part": "intermediate", "words": 100, "limit": 0}
ROWS: tuple[tuple[str, dict], ...] = (
    ("theirs", {}),
    ("salient-span", {"pipeline": "pipeline"}),
    ("random", {"ratio": 0.2}),
)


def _with_code(path: Path, auto: dict) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": auto}))


def _results(run: Path) -> None:
    for number, (policy, fields) in enumerate(ROWS):
        stages = {
            "tokenizer mini": "8" * 64 if policy == "random" else KEYS["tokenizer"],
            f"intermediate {policy}, run 0": "abc"[number] * 64,
        }
        config = {
            "task": {"name": "zsre"},
            "policy": {"name": policy, **fields, "target": "spans"},
            "model": {"name": "mini", "kind": "seq2seq", "revision": None},
            "intermediate_seed": 0,
        }
        metrics = Total("exact_match", 0.5, 2, 1)
        made = Result(policy, "zsre", 0, "group", config, stages, metrics, WORK)
        answers = folders.answers("zsre", [False, True])
        folders.put(run, json.loads(result_bytes(made)), answers)
    about = {
        "baseline": "random",
        "plugins": [str(run / "theirs.py"), "theirs.py"],
        "policies": [{"label": policy} for policy, _ in ROWS],
        "tasks": [{"label": "zsre"}],
    }
    write_file(run / "experiment.json", json.dumps(about).encode())
    write_file(run / "run.json", json.dumps({"store": "store", "experiment": "it"}).encode())


COMMANDS = (
    ("leaderboard", ".", "--html", "board.html", "--out", "joined"),
    *(("export", ".", policy, "--out", "exported") for policy, _ in ROWS),
    *(("show", policy, "--run", ".", "--text", "Anna was born in Rome.") for policy, _ in ROWS),
    ("analyze", "all", "."),
    ("board", "."),
    ("analyze", "rank", "store/artifacts/" + "9" * 64),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_reading_command_runs_a_strangers_code(call, stranger, mark, monkeypatch, words):
    monkeypatch.chdir(stranger)
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    monkeypatch.setattr("spacy.load", lambda *_, **__: mark.touch())
    before = sorted(stranger.parent.parent.iterdir())
    code, _, err = call(*words)
    assert not mark.exists()
    assert "Traceback" not in err
    assert code in (0, 2)
    assert sorted(stranger.parent.parent.iterdir()) == before


@pytest.mark.parametrize("words", [("doctor",), ("analyze", "viewer", ".")])
def test_a_working_directory_of_strange_modules_is_not_imported_from(stranger, mark, words):
    rest = {k: v for k, v in os.environ.items() if k not in ("MASKPOLICY_STORE", "PYTHONSAFEPATH")}
    done = subprocess.run(
        [sys.executable, "-m", "maskpolicy", *words],
        capture_output=True,
        text=True,
        cwd=stranger,
        env={**rest, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode in (0, 2), done.stderr
    assert not mark.exists()


def test_a_plugin_that_only_a_run_names_is_asked_for_in_one_line(refused, done, stranger, mark):
    words = ("show", "theirs", "--run", stranger, "--text", "Anna was born in Rome.")
    words = (*words, "--store", stranger / "store")
    line = refused(*words)
    assert "policy 'theirs' is a plugin" in line
    assert "--plugin FILE" in line
    assert "the run used " in line
    assert not mark.exists()
    (stranger / "theirs.py").write_text(PLUGIN)
    out, _ = done(*words, "--plugin", stranger / "theirs.py")
    assert "Anna" in out


def test_a_pipeline_that_only_a_run_names_is_not_followed(refused, done, stranger, monkeypatch):
    monkeypatch.chdir(stranger)
    words = ("show", "salient-span", "--run", ".", "--text", "Anna.", "--store", "store")
    line = refused(*words)
    assert "pipeline: the run names 'pipeline'" in line
    assert "policy.pipeline=pipeline" in line
    named = []

    def load(name):
        import spacy

        named.append(name)
        return spacy.blank("en")

    monkeypatch.setattr("spacy.load", load)
    done(*words, "policy.pipeline=pipeline")
    assert named == ["pipeline"]


def test_a_store_outside_of_run_and_working_directory_needs_a_word(
    refused, done, stranger, tmp_path, monkeypatch
):
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    private = tmp_path / "private"
    (stranger / "store").rename(private)
    write_file(stranger / "run.json", json.dumps({"store": str(private)}).encode())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    line = refused("analyze", "coverage", stranger)
    assert f"names the store {private}, outside of the run and the working directory" in line
    assert f"add --store {private}" in line
    done("analyze", "coverage", stranger, "--store", private, "--json")
    monkeypatch.chdir(tmp_path)
    done("analyze", "coverage", stranger, "--json")


def test_a_link_does_not_lead_to_a_store_outside(refused, stranger, tmp_path, monkeypatch):
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    (stranger / "store").rename(tmp_path / "private")
    (stranger / "store").symlink_to(tmp_path / "private")
    monkeypatch.chdir(stranger)
    assert "outside of the run" in refused("analyze", "coverage", ".")


def test_a_key_that_is_a_path_moves_no_folder_of_the_user(refused, stranger, tmp_path):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "letter").write_text("dear")
    store = Store(tmp_path / "store")
    for cell in folders.edited(stranger / "results"):
        cell["stages"] = dict.fromkeys(cell["stages"], "../../documents")
    words = ("export", stranger, "random", "--out", tmp_path / "out", "--store", store.root)
    assert "is not a key of the store" in refused(*words)
    assert (tmp_path / "documents" / "letter").read_text() == "dear"


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("config.json", "auto_map", {"AutoConfig": "code.Config"}),
        ("config.json", "attn_implementation", "somebody/kernel"),
        ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["code.Slow", "code.Fast"]}),
    ],
)
def test_a_model_with_code_of_its_own_is_refused_and_says_where(tmp_path, mark, file, key, value):
    folder = small.saved(tmp_path / "model")
    (folder / "code.py").write_text(f"open({str(mark)!r}, 'w')\n")
    config = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**config, key: value}))
    for load in (text_to_text.load, load_tokenizer):
        with pytest.raises(ConfigError, match=rf"has custom code \({key} in its {file}\)"):
            load(str(folder))
    assert not mark.exists()


def test_a_generate_of_its_own_is_refused(tmp_path, mark):
    folder = small.saved(tmp_path / "model")
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(f"open({str(mark)!r}, 'w')\n")
    with pytest.raises(ConfigError, match=r"custom code \(custom_generate/generate.py\)"):
        text_to_text.load(str(folder))
    assert not mark.exists()


def test_pickled_weights_run_nothing(tmp_path, mark):
    folder = small.saved(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Bomb(mark)}, protocol=2))
    with pytest.raises(ConfigError, match="its weights are a pickle with more than tensors"):
        text_to_text.load(str(folder))
    assert not mark.exists()
