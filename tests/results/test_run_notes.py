"""Notes name what a board lacks."""

from __future__ import annotations

from pathlib import Path

from maskpolicy.metrics import Total
from maskpolicy.results import run_notes
from maskpolicy.results.cell import Result, Run

SCORE = Total("exact_match", 0.5, 10)


def test_rows_without_counts_are_named_once():
    trained = {"intermediate": {"steps": 3}}
    results = (
        Result("none", "zsre", 0, "g", {}, {}, SCORE),
        Result("random", "zsre", 0, "g", trained, {}, SCORE),
        Result("random", "zsre", 1, "g", trained, {}, SCORE),
        Result("span", "zsre", 0, "g", trained, {}, SCORE, work={"masked": 3}),
        Result("regex", "zsre", 0, "g", trained, {}, error="it failed"),
    )
    note = "no counts of masked tokens for random: work.json is missing or damaged in the store"
    assert run_notes.every_note([Run(Path("runs/a"), results, "none")]) == [note]


def test_trainings_in_which_memory_ran_out_are_named():
    how = {"finetune none zsre seed 0": {"micro_tokens": 512, "step": 7}}
    results = (
        Result("none", "zsre", 0, "g", {}, {}, SCORE, shrunk=how),
        Result("none", "zsre", 1, "g", {}, {}, SCORE),
    )
    (note,) = run_notes.every_note([Run(Path("runs/a"), results, "none")])
    assert note.startswith("memory ran out, and trainings went on with smaller micro_tokens")
    assert note.endswith("finetune none zsre seed 0 with 512 from step 7")


def test_a_metric_that_finds_no_short_answer_is_named():
    task = {"name": "wow", "data": "world", "metrics": ["f1", "contains"]}
    both = Total("f1", 0.5, 10, parts={"contains": 0.0})

    def notes(world, score=both, block=task):
        config = {"task": block, "world": world}
        results = [Result("none", "wow", seed, "g", config, {}, score) for seed in (0, 1)]
        return run_notes.every_note([Run(Path("runs/a"), tuple(results), "none")])

    (note,) = notes({"people": 60})
    assert note.startswith("wow: contains looks for a short answer")
    assert note.endswith("gives 0: set world.wow_values: true")
    assert notes({"people": 60}, Total("contains", 0.0, 10)) == [note]
    assert not notes({"wow_values": True})
    assert not notes({}, SCORE) and not notes({}, block=task | {"name": "zsre"})
    assert not notes({}, block=task | {"data": "hub"})
