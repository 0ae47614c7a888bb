"""Budgets in words and epochs become steps."""

import json
import logging
from pathlib import Path

import pytest

from maskpolicy.app.arguments import ExperimentOptions
from maskpolicy.app.file_to_folder import prepare
from maskpolicy.core.errors import ConfigError
from tests.app.conftest import with_budgets

ONE = "policies=[none, random]"  # whose batches are of one size


@pytest.fixture(autouse=True)
def budgets(here, store):
    """An experiment, and the store of all tests, which counts its texts once."""
    with_budgets(here)
    Path("store").symlink_to(store)


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


def test_no_warning_is_about_steps_that_nothing_is_trained_for(caplog):
    tasks = "tasks=[{name: table, data: tables}]"
    load(
        ONE,
        tasks,
        "finetune={epochs: 60, batch_size: 4, warmup: 130}",  # of 165 steps, of 1,200
        "intermediate={epochs: 400, batch_size: 8, warmup: 1100}",
    )
    assert caplog.messages == []


def test_an_epoch_of_a_span_task_reads_every_window_of_its_contexts():
    asked = {"id": "q", "question": "Which?", "answers": [{"text": "ten", "answer_start": 0}]}
    read = [{"context": "ten words " * 30, "qas": [asked]}]
    articles = [{"title": title, "paragraphs": read} for title in "abc"]
    for split in ("train", "dev"):
        Path(f"tables/{split}-v1.1.json").write_text(json.dumps({"data": articles}))
    model = "model={name: bert, width: 32, layers: 1, vocabulary: 400}"
    for room, steps in ((512, 4), (64, 8)):  # of 3 examples 1 becomes dev; the others have 60 words
        tuned = f"finetune={{epochs: 2, batch_size: 1, max_source: {room}}}"
        task = "tasks=[{name: squad, data: tables}]"
        found = load(model, ONE, task, tuned, "intermediate={steps: 1}")
        made = found.experiment
        assert made.budget("finetune", made.policies[0], made.tasks[0]).steps == steps
    row = "policies=[none, {name: random, finetune: {max_source: 64}}]"
    with pytest.raises(ConfigError, match=r"policies\[1\]\.finetune\.max_source: epochs become"):
        load(model, row, task, tuned, "intermediate={steps: 1}")
    own = "tasks=[{name: squad, data: tables, finetune: {steps: 3}}]"
    assert load(model, row, own, tuned, "intermediate={steps: 1}").experiment.tasks
    # counted once: every further command reads the number
    assert sum(each["record"]["kind"] == "windows" for each in found.store.records()) == 2
