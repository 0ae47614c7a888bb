"""Budgets in words and epochs become steps."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from refusals import refused

from maskpolicy.app.arguments import ExperimentOptions
from maskpolicy.app.file_to_folder import prepare

# 24 passages of 10 words in the file's corpus, and 6 in that of a row
YAML = """
model: mini
corpus: {files: [it.txt], words: 10}
policies:
  - none
  - random
  - {name: original, label: short, corpus: {files: [short.txt]}, intermediate: {epochs: 4}}
  - {name: original, label: words, intermediate: {words: 121, batch_size: 3}}
tasks:
  - {name: table, label: all, data: tables}
  - {name: table, label: few, data: tables, limit: {train: 9}, finetune: {batch_size: 2}}
  - {name: table, label: own, data: tables, finetune: {epochs: 1.5}}
  - {name: table, label: steps, data: tables, finetune: {steps: 7}}
finetune: {batch_size: 4}
intermediate: {epochs: 2.5, batch_size: 8}
"""
ONE = "policies=[none, random]"  # whose batches are of one size
LINE = "one two three four five six seven eight nine ten\n\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("it.txt").write_text(24 * LINE)
    Path("short.txt").write_text(6 * LINE)
    Path("it.yaml").write_text(YAML)
    Path("tables").mkdir()
    for split, count in (("train", 13), ("dev", 2), ("test", 2)):
        rows = [{"question": f"What is {n} in {split}?", "answer": str(n)} for n in range(count)]
        Path("tables", f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def load(*keys: str):
    """Return the experiment of the file with overrides, as every command reads it."""
    return prepare(ExperimentOptions(Path("it.yaml"), list(keys), Path("store")), is_dry=True)


def test_words_and_epochs_become_steps():
    experiment = load().experiment
    steps = [experiment.budget("intermediate", row).steps for row in experiment.policies]
    # 2.5 x 24 / 8 passages; 4 x 6 / 8; 121 of 240 words are 12.1 passages, in steps of 3
    assert steps[1:] == [8, 3, 5]
    assert experiment.intermediate.warmup == 0  # of 8 steps, as where `steps: 8` is written


def test_keys_are_those_of_the_same_steps():
    asked, written = load(), load("intermediate.steps=8")
    assert {stage.key for stage in asked.order} == {stage.key for stage in written.order}


def test_a_row_with_another_batch_reads_the_same_text():
    made = load("policies.1={name: random, intermediate: {batch_size: 4}}").experiment
    steps = [made.budget("intermediate", row).steps for row in made.policies]
    assert steps[1:] == [15, 3, 5]  # 2.5 x 24 / 4


def test_rows_of_a_sweep_have_the_steps_of_their_own_batch_corpus_and_words():
    def steps(*keys: str) -> list[int]:
        made = load("policies=[none, random, {name: original, intermediate: {lr: 0.1}}]", *keys)
        experiment = made.experiment
        return [experiment.budget("intermediate", row).steps for row in experiment.policies[1:]]

    assert steps("grid={intermediate.batch_size: [4, 6]}") == [15, 10, 15, 10]  # 2.5 x 24 passages
    assert steps("grid={intermediate.words: [80, 0.4k]}") == [1, 5, 1, 5]  # 80 words to a step
    made = load(
        "policies=[none, {name: random, label: it}]", "grid={intermediate.words: [80, 640]}"
    )
    rows = [row.label for row in made.experiment.policies[1:]]
    assert rows == ["it intermediate.steps=1", "it intermediate.steps=8"]
    assert steps("grid={corpus.limit: [6, 12]}", "policies.2.intermediate.epochs=4") == [8, 8, 3, 6]


def test_epochs_of_fine_tuning_become_steps_of_each_task():
    made = load("finetune.epochs=2").experiment
    row = made.policies[0]
    steps = [made.budget("finetune", row, task).steps for task in made.tasks]
    # of 13 rows 2 become dev: 2 x 11 / 4, 2 x 9 / 2, 1.5 x 11 / 4, and as stated
    assert steps == [6, 9, 5, 7]


def test_checkpoints_are_counted_in_words():
    found = load("checkpoint_words=[81, 0.17k]", ONE).experiment
    assert found.checkpoint_steps == (2, 3)  # 80 words to a step
    assert load("checkpoint_words=[]", "checkpoint_steps=[2]").experiment.checkpoint_steps == (2,)


def test_a_warning_says_how_often_a_corpus_is_read(caplog):
    with caplog.at_level(logging.WARNING):
        assert load("intermediate.words=0.001M").experiment.intermediate.steps == 13
    assert "it.yaml: intermediate.words: the corpus has 240 words, and is read 4.2 times" in (
        caplog.messages
    )


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (["intermediate.words=10", "intermediate.epochs=1"], "intermediate.epochs: words is given"),
        (["intermediate.words=ten"], "intermediate.words: must be a number, or one such as 500k"),
        (["intermediate.epochs=0"], "intermediate.epochs: must be > 0"),
        (["intermediate.epochs=null"], "a number of words or epochs"),
        (["checkpoint_words=10k", ONE], "checkpoint_words: must be a list of numbers of words"),
        (["checkpoint_words=[10k]", ONE], "checkpoint_words[0]: 125 steps must be fewer than"),
        (
            ["checkpoint_words=[8]", "checkpoint_steps=[5]", ONE],
            "checkpoint_words: checkpoint_steps is",
        ),
        (["intermediate.epochs='2'", ONE], ".epochs: must be a number, not text '2': write 2"),
        (["checkpoint_words=[0]", ONE], "checkpoint_words[0]: must be >= 1"),
        (["policies.3.intermediate.steps=2"], "policies[3].intermediate.words: steps is given too"),
        (["finetune.epochs=3", "finetune.steps=2"], "finetune.epochs: steps is given too"),
        (["tasks.2.finetune.epochs=0"], "tasks[2].finetune.epochs: must be > 0"),
        (["tasks.2.finetune.lrr=0"], "tasks[2].finetune.lrr: unknown key 'lrr'"),
        (["policies.1={name: random, finetune: {epochs: 1}}"], "finetune.epochs: `epochs` can"),
        (["tune={intermediate: {batch_size: [2, 4]}}"], "set intermediate.steps instead of words"),
        (
            ["policies.2.tune={intermediate.batch_size: [4, 8]}"],
            "policies[2]: intermediate.batch_size is tuned, and intermediate.steps depends on it",
        ),
        (["tune={intermediate.words: [50, 90]}", ONE], "intermediate.words is tuned, and"),
        (
            ["policies.1={name: random, finetune: {batch_size: 2}}", "finetune.epochs=1"],
            "policies[1].finetune.batch_size: epochs become the steps of each task with the",
        ),
        (["grid={finetune.batch_size: [2, 4]}"], "grid.finetune.batch_size: epochs become"),
        (["checkpoint_words=[80]"], "policies[2].corpus: checkpoint_words are counted"),
        (
            ["checkpoint_words=[80]", "policies.2=random"],
            "policies[3].intermediate.batch_size: checkpoint_words are counted",
        ),
        (
            ["policies.2={name: selective-masking, train_on: [cola]}", "finetune.epochs=1"],
            "train_on=cola fine-tunes a classifier on cola, which is not a column",
        ),
    ],
)
def test_a_budget_that_cannot_be_read_is_one_line(keys, says):
    assert says in refused(load, *keys)
