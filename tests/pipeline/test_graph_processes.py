"""Two processes of the one loop: the gradient of one, and only the first one writes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import small
import torch
from safetensors.torch import load_file

PATIENCE = 120  # seconds until a group that waits for itself fails the test
TRAIN = """
import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import small
from tests.models import test_loop as alone
from safetensors.torch import save_file

from maskpolicy.pipeline.store.artifacts import Store

rank, store, stop, every = (int(word) for word in sys.argv[1:5])
folder = Path(sys.argv[5])
spec = replace(alone.SPEC, steps=12, batch_size=8, eval_every=every, checkpoint_every=1e-9)
store = Store(folder / f"store{store}")
claim = store.lock("0" * 64)  # until the end of the process, which may be abrupt
if rank == 0:
    assert claim.__enter__()
scores = iter([0.5 + rank, 0.9 - rank, 0.2, 0.1])
try:
    model, done = alone.run(
        spec,
        store.checkpoints("0" * 64),
        model=small.bart(),
        validate=(lambda module: next(scores)) if every else None,
        on_step=partial(alone.stop_after, stop),
    )
except alone.Stop:
    os._exit(0)  # as if killed: no thread of the group is waited for
save_file({"w": alone.weights(model)}, folder / f"{rank}.safetensors")
(folder / f"{rank}.json").write_text(json.dumps(done))
"""

FAIL = """
import os
import sys

import small
from tests.models import test_loop as alone

from maskpolicy.core.errors import StageError

rank, where = int(sys.argv[1]), sys.argv[2]


def fails(*_):
    if rank == 1:
        raise StageError("the outer loss of example 'q7' became nan")
    return 0.5


def loss(module, batch):
    fails()
    return alone.token_loss(module, batch)


options = {"loss": loss} if where == "loss" else {"validate": fails}
spec = alone.replace(alone.SPEC, steps=3, batch_size=8, eval_every=2)
try:
    alone.run(spec, model=small.bart(), **options)
except StageError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(1)  # a thread of the group may still run, and would abort an ordinary exit
"""
YAML = """
model: mini
corpus: world
policies: [none, random]
tasks: [zsre]
world: {people: 8, general_people: 6}
general: {steps: 3, warmup: 1, batch_size: 4, precision: fp32}
intermediate: {steps: 3, warmup: 1, batch_size: 4, precision: fp32}
finetune: {steps: 3, warmup: 1, batch_size: 4, precision: fp32}
"""
FIT = "fit: {steps: 2, batch_size: 4, precision: fp32, eval_every: 0}\n"
# one episode a step: the other process has none, and nothing to fail with
BROKEN = """{name: meta-learned, train_on: [zsre], inner: {lr: 1.0e+30},
  init: {name: supervised, train_on: [zsre], hidden: 8},
  outer: {steps: 2, episodes: 1, warmup: 0, eval_every: 0}}"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def processes(count: int, words: list[str], codes: Sequence[int] = (0, 0)) -> list[str]:
    """Run a command in `count` processes of one group; returns what each printed."""
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join(
        [*(str(Path(__file__).parents[up]) for up in (1, 2)), os.environ.get("PYTHONPATH", "")]
    )
    shared = {**os.environ, **group, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    running = []
    for rank in range(count):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
        running.append(
            subprocess.Popen(
                [sys.executable, *(word.replace("RANK", str(rank)) for word in words)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=shared | (place if count > 1 else {}),
            )
        )
    said = [one.communicate(timeout=PATIENCE)[0] for one in running]
    assert [one.returncode for one in running] == list(codes[:count]), said
    return said


def train(folder: Path, count: int, store: str = "RANK", stop: int = 0, every: int = 0):
    """Train in so many processes; returns the weights and the record of each that finished."""
    script = folder.parent / "train.py"
    script.write_text(TRAIN)
    folder.mkdir(exist_ok=True)
    processes(count, [str(script), "RANK", store, str(stop), str(every), str(folder)])
    return [
        (
            load_file(folder / f"{rank}.safetensors")["w"],
            json.loads((folder / f"{rank}.json").read_text()),
        )
        for rank in range(count)
        if not stop
    ]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Train once in two processes; returns the folder, and weights and record of each."""
    folder = tmp_path_factory.mktemp("two") / "run"
    return folder, train(folder, 2)


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(two, tmp_path):
    weights, done = train(tmp_path / "one", 1)[0]
    start = torch.cat([each.detach().flatten() for each in small.bart().parameters()])
    for found, same in two[1]:
        # where the gradient is next to nothing, AdamW makes whole steps of its rounding
        assert (found - weights).norm() < 0.01 * (weights - start).norm()
        assert same["loss"] == pytest.approx(done["loss"], rel=1e-4)
        assert {**same, "loss": 0} == {**done, "loss": 0}
    assert torch.equal(two[1][0][0], two[1][1][0])


def test_the_first_process_alone_writes(two):
    folder = two[0]
    assert list((folder / "store0" / "checkpoints").glob("*/*"))
    assert not (folder / "store1").exists()


@pytest.mark.slow
def test_two_processes_resume_from_what_the_first_one_wrote(two, tmp_path):
    folder = tmp_path / "stopped"
    assert train(folder, 2, stop=8) == []
    for (weights, done), (expected, whole) in zip(train(folder, 2, "0"), two[1], strict=True):
        assert torch.equal(weights, expected)
        assert done == whole


@pytest.mark.slow
def test_the_first_process_judges_for_all(tmp_path):
    found = train(tmp_path / "judged", 2, every=3)
    assert [done["best_step"] for _, done in found] == [6, 6]
    assert torch.equal(found[0][0], found[1][0])


@pytest.mark.slow
def test_a_run_in_two_processes_is_written_by_the_first(tmp_path):
    (tmp_path / "it.yaml").write_text(YAML)
    for count in (1, 2):
        out = tmp_path / str(count)
        words = ["-m", "maskpolicy", "run", str(tmp_path / "it.yaml")]
        said = processes(count, [*words, "--store", str(out / "store"), "--out", str(out / "out")])
        assert "what each part took" in said[0]
    assert "what each part took" not in said[1]
    boards = [json.loads((tmp_path / n / "out" / "leaderboard.json").read_text()) for n in "12"]
    assert [row["policy"] for row in boards[1]["rows"]] == ["none", "random"]
    one, two = ([row["scores"] for row in board["rows"]] for board in boards)
    assert [scores["zsre"]["n"] for scores in one] == [scores["zsre"]["n"] for scores in two]
    work = [sorted((tmp_path / n / "store").glob("artifacts/*/work.json")) for n in "12"]
    assert [path.read_text() for path in work[0]] == [path.read_text() for path in work[1]]
    assert not list((tmp_path / "2" / "store" / "temporary").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("where", ["loss", "validate"])
def test_what_one_process_fails_with_all_raise_together(where, tmp_path):
    (tmp_path / "fail.py").write_text(FAIL)
    said = processes(2, [str(tmp_path / "fail.py"), "RANK", where], codes=[1, 1])
    for one in said:
        assert one.splitlines()[-1] == "StageError: the outer loss of example 'q7' became nan"


@pytest.mark.slow
def test_an_outer_loss_that_is_no_number_in_one_of_two_processes_fails_the_fit_alone(tmp_path):
    (tmp_path / "it.yaml").write_text(YAML.replace("none, random", f"none, {BROKEN}") + FIT)
    words = ["-m", "maskpolicy", "run", str(tmp_path / "it.yaml")]
    words += ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    said = processes(2, words, codes=[1, 0])
    told = ", run 0: the outer loss of example 'zsre-"
    line = next(line for line in said[0].splitlines() if told in line)
    assert "became nan in outer step 1: lower inner.lr (now 1e+30)" in line
    assert "Traceback" not in said[0] + said[1]
    board = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    scores = {row["policy"]: row["scores"].get("zsre") for row in board["rows"]}
    assert scores["none"]["n"] > 0
    fitted = list((tmp_path / "store" / "artifacts").glob("*/report.json"))
    assert len(fitted) == 1  # what it starts from


@pytest.mark.slow
def test_a_mistake_ends_all_processes(tmp_path):
    (tmp_path / "it.yaml").write_text(YAML)
    (tmp_path / "blank.txt").write_text("\n")
    words = ["-m", "maskpolicy", "run", str(tmp_path / "it.yaml"), "corpus={files: [blank.txt]}"]
    said = processes(2, [*words, "--store", str(tmp_path / "store")], codes=[2, 0])
    assert "blank.txt: the corpus holds no text" in said[0]
    assert "Traceback" not in said[0] + said[1]
