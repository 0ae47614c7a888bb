"""Fuzzers, seeded: a short form of `make soak`, and what they themselves notice."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import folders
import pytest
from faults import fuzzing
from faults.kills import EXPERIMENT, Wrong

from maskpolicy import world
from maskpolicy.world.settings import SUBJECT_KINDS

SHIPPED = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))
TASKS = ("triviaqa", "zsre", "wow", "nq", "webquestions", "cola", "squad")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a folder with the official files of small tasks."""
    folder = tmp_path_factory.mktemp("world")
    made = world.make({"people": 8, "general_people": 6, "kinds": list(SUBJECT_KINDS)})
    world.write(made, folder)
    return folder


def test_mutations_are_the_same_for_the_same_seed():
    text = EXPERIMENT.encode()
    assert fuzzing.mutated(text, random.Random(3)) == fuzzing.mutated(text, random.Random(3))
    found = {fuzzing.mutated(text, random.Random(seed)) for seed in range(50)}
    assert len(found) > 40


def test_mutated_experiment_files_load_or_are_one_line(tmp_path):
    originals = [*SHIPPED, tmp_path / "it.yaml"]
    originals[-1].write_text(EXPERIMENT)
    found = Counter(
        fuzzing.experiment(tmp_path / "mutated.yaml", originals, random.Random(seed))
        for seed in range(60)
    )
    assert min(found[True], found[False]) > 5


def test_mutated_command_lines_work_or_are_one_line(tmp_path):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "it.yaml").write_text(EXPERIMENT)
    with fuzzing.below(deep):
        found = Counter(
            fuzzing.give(words).code
            for seed in range(100)
            if (words := fuzzing.command_line(random.Random(seed)))[0] not in ("gallery", "show")
        )
    assert min(found[0], found[2]) > 1


def test_mutated_files_of_tasks_are_read_or_are_one_line(data):
    found = Counter(fuzzing.rows(data / "tasks", TASKS, random.Random(n)) for n in range(60))
    assert min(found[True], found[False]) > 5


def test_a_file_is_as_it_was_after_a_trial(data):
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    for seed in range(5):
        fuzzing.rows(data / "tasks", TASKS, random.Random(seed))
    assert {path: path.read_bytes() for path in before} == before


def test_mutated_corpora_are_read_or_are_one_line(tmp_path, data):
    (tmp_path / "mutated").mkdir()
    lines = (data / "intermediate.jsonl").read_text().splitlines()[:9]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    (tmp_path / "list.json").write_text(json.dumps([json.loads(line) for line in lines]))
    (tmp_path / "text.txt").write_text("\n\n".join(json.loads(line)["text"] for line in lines))
    originals = sorted(tmp_path.glob("*.*"))
    found = Counter(
        fuzzing.documents(tmp_path / "mutated", originals, random.Random(seed))
        for seed in range(80)
    )
    assert min(found[True], found[False]) > 5


def test_mutated_files_of_a_run_are_read_or_are_one_line(tmp_path):
    run = folders.write(tmp_path / "run", {"none": 0.2, "random": 0.6}, seeds=1, n=6)
    names = [path.relative_to(run).as_posix() for path in sorted(run.glob("*/*.json*"))]
    names += ["run.json", "experiment.json"]
    found = Counter(fuzzing.results(run, names, random.Random(seed)) for seed in range(40))
    assert min(found[True], found[False]) > 5


def test_an_error_that_is_no_line_of_ours_is_noticed():
    with pytest.raises(Wrong, match="ZeroDivisionError"):
        fuzzing.refuses(lambda: 1 / 0)


def test_an_error_of_a_command_that_is_no_line_of_ours_is_noticed(monkeypatch):
    def broken(*words, **named):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("maskpolicy.plugins.registry.names", broken)
    with pytest.raises(Wrong, match="a bug in maskpolicy"):
        fuzzing.give(["list", "policies"])
