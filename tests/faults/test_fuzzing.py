"""Seeded fuzzers: a short form of `make soak`, and the errors that they notice."""

import random
from collections import Counter
from pathlib import Path

import folders
import pytest
from faults import fuzzing
from faults.kills import EXPERIMENT, Wrong

from maskpolicy.data import world
from maskpolicy.experiment.world_settings import SUBJECT_KINDS

SHIPPED = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
SLOW = ("gallery", "show")
TASKS = ("triviaqa", "zsre", "wow", "nq", "webquestions", "cola", "squad", "blimp", "ner")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder with the official files of small tasks."""
    folder = tmp_path_factory.mktemp("world")
    made = world.make({"people": 8, "general_people": 6, "kinds": list(SUBJECT_KINDS)})
    world.write(made, folder)
    fuzzing.write_tasks(folder / "tasks")
    return folder


def test_mutations_are_the_same_for_the_same_seed():
    text = EXPERIMENT.encode()
    assert fuzzing.mutated(text, random.Random(3)) == fuzzing.mutated(text, random.Random(3))
    assert len({fuzzing.mutated(text, random.Random(seed)) for seed in range(50)}) > 40


def experiments(tmp_path, data):
    (tmp_path / "it.yaml").write_text(EXPERIMENT)
    originals = [*SHIPPED, tmp_path / "it.yaml"]
    return lambda rng: fuzzing.experiment(tmp_path / "mutated.yaml", originals, rng)


def files_of_tasks(tmp_path, data):
    return lambda rng: fuzzing.rows(data / "tasks", TASKS, rng)


def corpora(tmp_path, data):
    lines = (data / "intermediate.jsonl").read_text().splitlines()[:9]
    fuzzing.write_corpora(tmp_path / "corpora", lines)
    originals = sorted((tmp_path / "corpora").iterdir())
    return lambda rng: fuzzing.documents(originals, rng)


def files_of_a_run(tmp_path, data):
    run = folders.write(tmp_path / "run", {"none": 0.2, "random": 0.6}, seeds=1, n=6)
    names = [path.relative_to(run).as_posix() for path in sorted(run.glob("*/*.json*"))]
    return lambda rng: fuzzing.results(run, [*names, "run.json", "experiment.json"], rng)


def shapes(tmp_path, data):
    return lambda rng: fuzzing.shape(tmp_path / "it.yaml", rng)


def texts(tmp_path, data):
    return lambda rng: fuzzing.text("A b. C d! Ünd Wörter, 3.5 km.\n" * 20, rng)


def scores(tmp_path, data):
    fuzzing.write_scores(data / "scores")
    originals = sorted((data / "scores").iterdir())
    return lambda rng: fuzzing.scores(originals, tmp_path / "board", rng)


@pytest.mark.parametrize(
    "kind", [experiments, files_of_tasks, corpora, files_of_a_run, shapes, texts, scores]
)
def test_mutated_files_are_read_or_are_one_line(tmp_path, data, kind):
    trial = kind(tmp_path, data)
    places = (tmp_path, data)
    before = {p: p.read_bytes() for at in places for p in at.rglob("*") if p.is_file()}
    refused = Counter(trial(random.Random(seed)) for seed in range(60))
    assert min(refused[True], refused[False]) > 5
    assert {path: path.read_bytes() for path in before} == before


def test_mutated_command_lines_work_or_are_one_line(tmp_path):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "it.yaml").write_text(EXPERIMENT)
    lines = [fuzzing.command_line(random.Random(seed)) for seed in range(100)]
    with fuzzing.below(deep):
        codes = Counter(fuzzing.give(words) for words in lines if words[0] not in SLOW)
    assert min(codes[0], codes[2]) > 1


def test_an_error_that_is_no_line_of_ours_is_noticed(monkeypatch):
    def broken(*words, **named):
        raise ZeroDivisionError("division by zero")

    with pytest.raises(Wrong, match="ZeroDivisionError"):
        fuzzing.refuses(broken)
    monkeypatch.setattr("maskpolicy.plugins.registry.names", broken)
    with pytest.raises(Wrong, match="a bug in maskpolicy"):
        fuzzing.give(["list", "policies"])
