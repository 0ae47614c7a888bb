"""Every mistake on a command line is an error of one line that says what to do.

Each line of messages.txt is a case: the words of a command, and a part of the message.
"""

import shlex
import zipfile
from pathlib import Path

import folders
import pytest
import small
from refusals import messages

from maskpolicy.app import packing
from maskpolicy.app.arguments import ExperimentOptions
from maskpolicy.app.file_to_folder import prepare
from maskpolicy.pipeline.store.artifacts import Store
from tests.app.conftest import with_budgets

TEXTS = {
    **dict.fromkeys(("file", "wow-dev-kilt.jsonl"), ""),
    **{name: "\n\n".join(small.TEXTS) for name in ("one.txt", "copy.txt")},
    "other.txt": "It was so.\n\nAnd so on it went.",
    "two.txt": "It was so.",
    "gpt.json": '{"model_type": "gpt2"}',
    "bert.json": '{"model_type": "bert"}',
    "it.yaml": small.EXPERIMENT,
    "bad.zip": "no zip",
    "careless.py": small.policy_file(
        "careless",
        "import numpy as np",
        "return passage.words[np.random.random(len(passage.words)) < 0.5]",
    ),
}
ZIPS = {
    "other": {"a/b.txt": "x"},
    "half": {"mine/results/a.json": "["},
    **{name: {f"{path}.json": "{}"} for name, path in (("up", "../out"), ("root", "/etc/out"))},
    "deep": {"mine/../../out.json": "{}"},
}
CASES = [(shlex.split(words), says) for words, says in messages(__file__)]
SHOW = ["show", "--model", "bart"]
NUMBERS = ["--text", " ".join(map(str, range(60)))]
LONG = [
    (["plan", "quickstart", f"policies=[{'x' * 3000}]"], " .. "),
    ([*SHOW, "random", "--text", " \n"], "has no words"),
    ([*SHOW, "random", "--text", "a\udc80"], "surrogate"),
    ([*SHOW, "careless", "--plugin", "careless.py", *NUMBERS], "masks other tokens when it is"),
    (["analyze", "coverage", "finished", f"x={'y' * 300}"], "coverage.x: unknown key"),
    (["store", "prune", "--cache-size", "9" * 400 + "GB"], "write a number and a unit"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with all that the commands read."""
    place = tmp_path_factory.mktemp("mistakes")
    for name, text in TEXTS.items():
        (place / name).write_text(text)
    for name in ("nothing", "empty", "store"):
        (place / name).mkdir()
    (place / "nothing" / "notes.txt").touch()
    with Store(place / "store").write("a" * 64, {}):
        pass
    small.saved(place / "bart", small.bart(max_position_embeddings=512))
    for name in ("mine", "finished"):
        folders.write(place / name, {"none": 0.2, "random": 0.6}, n=12)
    with_budgets(place / "budgets")
    texts = ExperimentOptions(place / "budgets/it.yaml", ["finetune.epochs=1"], place / "store")
    prepare(texts, is_dry=True)  # counts them
    for name, text in (("exported", '{"stages": {}}'), ("broken", "{"), ("list", "[]")):
        (place / name).mkdir()
        (place / name / "maskpolicy.json").write_text(text)
    packed = packing.pack(place / "mine", place / "it.zip")
    content = bytearray(packed.read_bytes())
    start = 30 + len(zipfile.ZipFile(packed).infolist()[0].filename)  # of the first file's data
    content[start : start + 8] = b"\xff" * 8
    (place / "damaged.zip").write_bytes(content)
    results = {path.name: path.read_text() for path in (place / "mine" / "results").iterdir()}
    two = {f"{a}/results/{name}": text for a in "ab" for name, text in results.items()}
    for name, files in (ZIPS | {"two": two}).items():
        with zipfile.ZipFile(place / f"{name}.zip", "w") as file:
            for path, text in files.items():
                file.writestr(path, text)
    return place


def written(folder):
    """Return all paths below a folder without notes of digests, which depend on files' ages."""
    return sorted(path for path in folder.rglob("*") if "hashes" not in path.parts)


@pytest.mark.parametrize(("words", "says"), [*CASES, *LONG], ids=lambda text: str(text)[:60])
def test_a_mistake_is_one_line_and_exit_code_2(refused, place, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(place)
    monkeypatch.setenv("MASKPOLICY_STORE", str(tmp_path / "store"))
    before = written(place)
    assert says in refused(*words)
    assert written(place) == before
    assert not list(tmp_path.iterdir())
