"""Texts that are mixed into a corpus, corpora of rows, and the columns that policies name."""

from __future__ import annotations

import pytest

from maskpolicy.core.errors import ConfigError
from maskpolicy.data import world
from maskpolicy.data.corpus import documents
from maskpolicy.experiment.definition import Experiment
from maskpolicy.experiment.model_and_corpus import with_details
from maskpolicy.experiment.world_settings import GOLD
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.nodes import Stage, topological


def graph(experiment: Experiment) -> stages.Graph:
    return stages.build(experiment, lambda path: path.name)


def corpus(experiment: Experiment, label: str) -> Stage:
    return graph(experiment).pretrained[label, 0].inputs["corpus"]


def test_a_mixed_corpus_reads_the_corpus_and_the_general_one(load):
    plain, mixed = load(), load("corpus={name: world, mix: {general: 0.2}}")
    made = corpus(mixed, "original")
    assert made.kind == "corpus" and made.label == "intermediate mix.general=0.2"
    assert made.inputs["corpus"].key == corpus(plain, "original").key
    assert made.inputs["mix-general"].key == graph(plain).pretrained["none", 0].inputs["corpus"].key
    before, after = (graph(each).pretrained["none", 0] for each in (plain, mixed))
    assert before.key == after.key  # tokenizer and general model are those without the mix


def test_a_share_of_nothing_is_no_mix(load):
    keys = ("corpus={name: world, mix: {general: 0, situations: 0.0}}",)
    assert corpus(load(*keys), "original").key == corpus(load(), "original").key


def test_passages_have_words_or_tokens_in_each_row(load):
    rows = "policies=[original, {name: original, corpus: {words: 30}}, "
    rows += "{name: original, corpus: {mix: {general: 0.1}}}]"
    experiment = load(rows, "baseline=original", "corpus={name: world, tokens: 64}")
    sizes = [experiment.corpus_of(block).passage_size for block in experiment.policies]
    by_tokens = {"words": None, "tokens": 64}
    assert sizes == [by_tokens, {"words": 30, "tokens": None}, by_tokens]
    mixed = corpus(experiment, experiment.policies[2].label).inputs["mix-general"]
    assert mixed.keyed["corpus"]["tokens"] == 64
    labels = [block.label for block in experiment.policies]
    assert labels[1] == "original corpus.words=30"


def test_every_stage_of_a_row_reads_its_own_corpus(load):
    learned = "{name: supervised, train_on: [triviaqa]"
    rows = f"[none, {learned}}}, {learned}, label: own, corpus: {{mix: {{general: 0.5}}}}}}, "
    rows += "{name: pmi, label: counted, corpus: {mix: {general: 0.5}}}]"
    made = graph(load(f"policies={rows}", "baseline=none"))
    for label in ("own", "counted"):
        stage = made.pretrained[label, 0]
        wanted = stage.inputs["corpus"]
        below = [each for each in topological([stage]) if each.kind in ("annotate", "count")]
        assert below and all(each.inputs["corpus"].key == wanted.key for each in below)
        contexts = [each for each in topological([stage]) if each.kind == "contexts"]
        read = [each.inputs["corpus"].key for each in contexts if "corpus" in each.inputs]
        assert set(read) <= {wanted.key}


def test_texts_of_a_mix_are_replaced_one_by_one(load):
    file = "corpus={name: world, mix: {general: 0.2, wiki: {files: [wiki.txt], share: 0.1}}}"
    rows = "policies=[original, {name: original, corpus: {mix: {wiki: {share: 0.3}}}}, "
    rows += "{name: original, corpus: {mix: {wiki: {share: 0}}}}]"
    experiment = load(file, rows, "baseline=original")
    shares = []
    for block in experiment.policies:
        found = corpus(experiment, block.label).keyed.get("mix", [])
        shares.append({each["name"]: each["share"] for each in found})
    assert shares == [
        {"general": 0.2, "wiki": 0.1},
        {"general": 0.2, "wiki": 0.3},
        {"general": 0.2},
    ]
    labels = [block.label for block in experiment.policies]
    assert labels[1:] == [
        "original corpus.mix.wiki.share=0.3",
        "original corpus.mix.wiki.share=0.0",
    ]


def test_a_row_with_another_source_drops_that_of_the_file(load):
    experiment = load("corpus={files: [a.txt], columns: [marks, names], on_error: skip}")
    assert with_details(experiment.corpus) == 'a.txt, columns ["marks","names"], on_error skip'
    rows = "policies=[original, {name: original, corpus: {files: [a.txt]}}]"
    experiment = load(rows, "baseline=original")
    assert experiment.policies[1].label == "original corpus.files=a.txt"
    found = experiment.corpus_of(experiment.policies[1])
    assert found.name is None and found.files[0].endswith("/a.txt")
    assert corpus(experiment, experiment.policies[1].label).files


def test_a_corpus_in_words(load):
    keys = ("corpus={name: world, words: 50, mix: {general: 0.2, wiki: {files: [wiki.txt], ",)
    experiment = load(keys[0] + "share: 0.1}, situations: 0}}")
    assert with_details(experiment.corpus) == (
        "the embedded world, 20% from general, 10% from wiki, words 50"
    )
    rows = "policies=[original, {name: original, corpus: {files: [a.txt]}}]"
    experiment = load(rows, "baseline=original")
    own = experiment.policies[1]
    assert with_details(experiment.corpus_of(own)) == "a.txt"
    assert corpus(experiment, own.label).label == "intermediate files=a.txt"


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


def test_the_hook_is_a_list_of_names(load, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    said = (
        r"policy marks-of-mine: corpus_columns: must be a list, not text 'marks': write \[marks\]"
    )
    with pytest.raises(ConfigError, match=said):
        load("plugins=[mine.py]", "policies=[none, marks-of-mine]")


def test_the_columns_are_those_of_the_worlds_documents(tmp_path):
    for errors in ({}, {"entity_errors": {"wrong": 0.1}}):
        settings = world.make({"people": 4, "general_people": 2, **errors})
        folder = tmp_path / str(len(errors))
        world.write(settings, folder)
        first = next(iter(documents.world(folder / "general.jsonl")))
        assert tuple(first.columns) == settings.columns
    assert set(GOLD) < set(settings.columns)
