"""A key in the wrong place is refused with the place where it belongs."""

from __future__ import annotations

import pytest

from maskpolicy.config.parse import make_experiment
from maskpolicy.config.yaml_file import assignments
from maskpolicy.errors import ConfigError

GIVEN = {
    "model": "mini",
    "corpus": "world",
    "policies": ["none", "random"],
    "tasks": ["zsre"],
    "seeds": [0],
}


def refused(*overrides: str) -> str:
    given = GIVEN | assignments(overrides)
    with pytest.raises(ConfigError) as caught:
        make_experiment(given, "it", "it.yaml: ", ())
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("epochs=3", "epochs: is a key of a training: set it there, e.g. intermediate.steps"),
        ("epoch=3", "e.g. intermediate.steps"),
        ("intermediate_steps=3", "write intermediate.steps"),
        ("ratio=0.3", "is a field of random: set it in its block, {name: random, ratio: ..}"),
        ("mlm_probability=0.3", "is a field of random: set it in its block, {name: random, ratio"),
        ("spans=3", "is a field of column"),
        ("policy.ratio=0.3", "policies.1.ratio=0.3"),
        ("task.on_error=skip", "tasks.0.on_error=skip"),
        ("on_error=skip", "tasks.0.on_error=skip"),
        ("jobs=3", "is an option of the command: write --jobs 3"),
        ("output_dir=x", "is an option of the command: write --out x"),
        ("device=cuda", "device: is left to the machine, which uses its GPU if it has one"),
        ("gpus=2", "several GPUs for a training are resources.intermediate.gpus"),
        ("metric=f1", "belongs to a task"),
        ("metrics=[f1]", "in its block in `tasks`, e.g. tasks.0.metrics=.."),
        ("mix={general: 0.2}", "mix: is a key of a corpus: write corpus.mix"),
        ("situations=0.3", "is a setting of the embedded world: write world.situations"),
        ("policies=[{name: random, seeds: [1]}]", "policies[0].seeds: every row has all seeds"),
        ("policies=[{name: random, lr: 1}]", "policies[0].lr: is a key of a training: write inter"),
        ("policies=[{name: random, model: mini}]", "model: is one setting for all rows: set it"),
        ("policies=[{name: random, mix: {general: 0.1}}]", "write corpus: {mix: ..}"),
        ("policies=[{name: random, where: here}]", "policies[0].where: unknown key 'where'"),
        ("tasks=[{name: zsre, seeds: [1]}]", "tasks[0].seeds: every task has all seeds"),
        ("tasks=[{name: zsre, epochs: 1}]", "which all tasks share: write finetune.steps"),
        ("tasks=[{name: zsre, finetune: {steps: 1}}]", "finetune: is one setting for all tasks"),
        ("seed=3", "did you mean 'seeds'?"),
        ("nothing_like_it=3", "unknown key 'nothing_like_it': choose from"),
    ],
)
def test_a_key_at_the_top_that_belongs_elsewhere(override, says):
    assert says in refused(override)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("grid={ratio: [0.1]}", "{name: random, grid: {ratio: [..]}}"),
        ("grid={lr: [0.1]}", "grid.lr: is a key of a training: write intermediate.lr"),
        ("grid={learning_rate: [0.1]}", "write intermediate.lr or finetune.lr"),
        ("grid={seeds: [0, 1]}", "grid.seeds: every row has all seeds: list them in `seeds`"),
        ("grid={name: [a, b]}", "write a block for each policy"),
        ("grid={intermediate_seeds: [2]}", "set it at the top of the file"),
        ("grid={corpus: [world]}", "grid.corpus: is a block: name its keys, e.g. corpus.words, or"),
        ("tune={fit: [{steps: 3}]}", "tune.fit: is a block: name its keys, e.g. fit.steps"),
        (
            "policies=[none, {name: random, grid: {corpus: [world]}}]",
            "policies[1].grid.corpus: is a block: name its keys, e.g. corpus.words, or write a row",
        ),
        ("tune={lr: [0.1]}", "tune.lr: is a key of a training"),
        ("policies=[none, {name: random, grid: {lr: [0.1]}}]", "policies[1].grid.lr: is a key of"),
        ("policies=[none, {name: random, grid: {name: [span]}}]", "a block for each policy"),
        ("policies=[none, {name: random, zip: {seeds: [0]}}]", "list them in `seeds`"),
        ("policies=[none, {name: random, grid: {ratoi: [0.1]}}]", "did you mean 'ratio'?"),
    ],
)
def test_a_key_that_a_sweep_cannot_vary(override, says):
    assert says in refused(override)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model=gpt2", "gpt2 is a decoder alone, which has no masks"),
        ("model=bert-base-uncased", "write model: {kind: encoder, name: google-bert/bert-base-"),
        ("model={kind: encoder, name: roberta-base}", "{kind: encoder, name: FacebookAI/roberta"),
        ("model=bart-base", "write model: facebook/bart-base"),
        ("model=./nowhere", "there is no folder './nowhere'"),
        ("model=/no/such/folder", "there is no folder '/no/such/folder'"),
        ("model=xyz", "unknown model 'xyz'"),
    ],
)
def test_a_model_that_is_not_named_as_it_must_be(override, says):
    assert says in refused(override)
