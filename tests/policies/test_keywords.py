"""The policy keywords: the words nearest to their passage, found in a model's embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import small
from maskpolicy.policies.keywords import FILE, Keywords

from maskpolicy.app import own_text
from maskpolicy.core.errors import ConfigError
from maskpolicy.core.ragged import load
from maskpolicy.core.types import Passage
from maskpolicy.data.corpus.passages import Document, tokenize
from maskpolicy.experiment.parse import load_experiment
from maskpolicy.models.loading import input_embeddings
from maskpolicy.pipeline import stages
from maskpolicy.pipeline.graph.execution import execute
from maskpolicy.pipeline.store.artifacts import Store

YAML = """
model: {model}
corpus: {{name: world, words: 40}}
data: world
policies: [none, {{name: keywords, keywords: 2}}, {{name: keywords, keywords: 2, ratio: 0.5}}]
tasks: [zsre]
world: {{people: 12, general_people: 6}}
fit: {{steps: 0}}
intermediate: {{steps: 2, batch_size: 4, precision: fp32}}
finetune: {{steps: 1, precision: fp32}}
"""


def found(folder, vectors, text: str, **fields) -> list[int]:
    """Return the words that are keywords where token i has vectors[i]."""
    np.save(folder / FILE, np.asarray(vectors, np.float32))
    column = Keywords(**fields).annotate([small.words(text)], folder)["keywords"][0]
    return column[:, 0].tolist()


def test_keywords_are_the_words_nearest_to_the_mean_of_the_passage(tmp_path):
    vectors = [[1, 0], [0, 1], [2, 2], [3, 2.5]]  # the mean is (1.5, 1.375)
    text = "loom crane wool cloth"
    assert found(tmp_path, vectors, text, keywords=1) == [2]  # cosines .74, .68, .9991, .9988
    assert found(tmp_path, vectors, text, keywords=3) == [0, 2, 3]
    assert found(tmp_path, vectors, text, keywords=9) == [0, 1, 2, 3]


def test_a_word_has_the_mean_of_its_occurrences_and_all_of_them_are_found(tmp_path):
    vectors = [[4, 0], [0, 1], [0, 4], [1, 0]]
    assert found(tmp_path, vectors, "Loom crane loom wool", keywords=1) == [0, 2]


def test_stop_words_numbers_and_letters_are_no_keywords(tmp_path):
    assert found(tmp_path, np.ones((5, 2)), "the 1854 x loom .") == [3]
    assert found(tmp_path, np.ones((3, 2)), "It was .") == []
    assert found(tmp_path, np.zeros((2, 2)), "loom wool", keywords=1) == [0]


def test_three_of_four_occurrences_are_masked():
    words = small.words("a b c d e f g h").words
    passage = Passage("p", "", words[:, 0], words, words, words[:0], {"keywords": words})
    assert len(Keywords().select(passage, np.random.default_rng(0))) == 6


def test_without_a_fit_it_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="needs the embeddings of a model: name a finished run"):
        Keywords().annotate([small.words("loom")])


def test_it_needs_no_task_to_be_pretrained_with():
    experiment = own_text.experiment("mini", ["world"], {"name": "keywords"}, {})
    assert not experiment.tasks
    block = {"name": "supervised", "train_on": ["triviaqa"]}
    with pytest.raises(ConfigError, match="learns from the examples of tasks"):
        own_text.experiment("mini", ["world"], block, {})


def test_an_experiment_keeps_the_models_embeddings_and_hides_keywords(tmp_path):
    small.bart().save_pretrained(tmp_path / "bart")
    small.tokenizer().save_pretrained(tmp_path / "bart")
    path = tmp_path / "it.yaml"
    path.write_text(YAML.format(model=tmp_path / "bart"))
    graph, store = stages.build(load_experiment(path)), Store(tmp_path / "store")
    _, one, other = graph.pretrained.values()
    assert one.inputs["annotate"].key == other.inputs["annotate"].key  # ratio is read by select
    outcomes = execute([one], store)
    assert [outcome.error for outcome in outcomes.values() if outcome.error] == []
    fit = store.path(one.inputs["annotate"].inputs["fit"].key)
    embeddings = input_embeddings(str(tmp_path / "bart")).detach().numpy()
    assert np.array_equal(np.load(fit / FILE), embeddings)
    column = load(store.path(one.inputs["annotate"].key) / "passages.safetensors")["keywords"]
    passages = list(tokenize([Document("d", "The loom of wool")], small.tokenizer()))
    assert Keywords().annotate(passages, fit)["keywords"][0].shape == (2, 2)
    assert column.lengths.min() > 0
