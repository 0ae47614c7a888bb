"""Columns that a policy names are known to the corpus of its row."""

from __future__ import annotations

import pytest

from maskpolicy import world
from maskpolicy.config.parse import load_experiment
from maskpolicy.corpus import documents
from maskpolicy.errors import ConfigError
from maskpolicy.world.settings import GOLD

QUICK = "model: mini\ncorpus: world\npolicies: [none, original]\ntasks: [triviaqa]\n"
WRONG = "{name: column, column: nope}"
MINE = """
from dataclasses import dataclass

from maskpolicy import policy


@policy("marks-of-mine")
@dataclass(frozen=True)
class Mine:
    corpus_columns = "marks"

    def select(self, passage, rng):
        return passage.columns["marks"]
"""


@pytest.fixture
def load(tmp_path):
    def load(*keys: str):
        (tmp_path / "mine.yaml").write_text(QUICK)
        (tmp_path / "a.jsonl").write_text('{"text": "Ada wrote notes.", "marks": [[0, 3]]}\n')
        return load_experiment(tmp_path / "mine.yaml", keys)

    return load


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            (f"policies=[none, {WRONG}]",),
            "policies[1].column: the world has no column 'nope': choose from gold_entities, asked",
        ),
        (
            ("policies=[none, {name: column, column: entities_with_errors}]",),
            "choose from gold_entities, asked (world.entity_errors adds entities_with_errors)",
        ),
        (
            (f"policies=[none, {{name: mixture, members: [random, {WRONG}]}}]",),
            "policies[1].members[1].column: the world has no column 'nope'",
        ),
        (
            (f"general={{policy: {WRONG}}}",),
            "general.policy.column: the world has no column 'nope'",
        ),
        (
            ("policies=[none, {name: column, grid: {column: [asked, nope]}}]",),
            "policies[1].grid.column: the world has no column 'nope': choose from gold_entities, "
            'asked (in the row of column: "nope")',
        ),
        (
            ("corpus={files: [a.jsonl], columns: [marks]}", f"policies=[none, {WRONG}]"),
            "the corpus has no column 'nope' (it has marks): name it in corpus.columns",
        ),
        (
            (
                "corpus={files: [a.jsonl], columns: [marks], mix: {general: 0.1}}",
                "policies=[none, {name: column, column: marks}]",
            ),
            "corpus.mix.general has no column 'marks' (it has gold_entities, asked)",
        ),
        (
            ("corpus={name: world, columns: [asked]}",),
            "corpus.columns: is for rows of files and of the Hub; the world always has its columns",
        ),
    ],
)
def test_a_column_that_the_corpus_lacks_is_refused_where_it_is_named(load, keys, message):
    with pytest.raises(ConfigError) as caught:
        load(*keys)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_columns_that_are_there_can_be_named(load):
    for column, key in (
        ("entities_with_errors", "world.entity_errors={dropped: 0.2}"),
        ("marks", "corpus={files: [a.jsonl], columns: [marks]}"),
    ):
        _, row = load(f"policies=[none, {{name: column, column: {column}}}]", key).policies
        assert row.fields["column"] == column


def test_the_hook_is_a_list_of_names(load, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    said = (
        r"policy marks-of-mine: corpus_columns: must be a list, not text 'marks': write \[marks\]"
    )
    with pytest.raises(ConfigError, match=said):
        load("plugins=[mine.py]", "policies=[none, marks-of-mine]")


def test_a_row_of_the_world_needs_no_columns_of_the_files(load):
    row = "{name: column, column: asked, corpus: world}"
    experiment = load("corpus={files: [a.jsonl], columns: [marks]}", f"policies=[none, {row}]")
    assert experiment.corpus_of(experiment.policies[1]).columns == ()


def test_the_columns_are_those_of_the_worlds_documents(tmp_path):
    for errors in ({}, {"entity_errors": {"wrong": 0.1}}):
        settings = world.make({"people": 4, "general_people": 2, **errors})
        folder = tmp_path / str(len(errors))
        world.write(settings, folder)
        first = next(iter(documents.world(folder / "general.jsonl")))
        assert tuple(first.columns) == settings.columns
    assert set(GOLD) < set(settings.columns)
