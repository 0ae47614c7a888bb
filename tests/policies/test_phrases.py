"""The policy phrases: what a parser and entities find, and how much of it is masked."""

from __future__ import annotations

import numpy as np
import pytest
from maskpolicy.policies.phrases import Phrases
from small import words as passage

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.types import Passage, as_spans
from maskpolicy.masking import selection

TEXT = "The old weaver sold two red looms in Turin ."
HEADS = [2, 2, 3, 3, 6, 6, 3, 3, 7, 3]
DEPS = ["det", "amod", "nsubj", "ROOT", "nummod", "amod", "dobj", "prep", "pobj", "punct"]
POS = ["DET", "ADJ", "NOUN", "VERB", "NUM", "ADJ", "NOUN", "ADP", "PROPN", "PUNCT"]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """A pipeline whose parser has learnt one sentence, with rules for entities."""
    import spacy
    from spacy.training import Example

    nlp = spacy.blank("en")
    nlp.add_pipe("parser", config={"min_action_freq": 1})
    example = Example.from_dict(nlp.make_doc(TEXT), {"heads": HEADS, "deps": DEPS})
    optimizer = nlp.initialize(lambda: [example])
    for _ in range(30):
        nlp.update([example], sgd=optimizer)
    rules = nlp.add_pipe("attribute_ruler")
    for word, pos in zip(TEXT.split(), POS, strict=True):
        rules.add(patterns=[[{"TEXT": word}]], attrs={"POS": pos})
    entities = [{"label": "ORG", "pattern": "red looms in Turin"}]
    nlp.add_pipe("entity_ruler").add_patterns(entities)
    folder = tmp_path_factory.mktemp("pipeline")
    nlp.to_disk(folder)
    return str(folder)


def test_noun_chunks_and_entities_that_share_a_word_are_one_phrase(pipeline):
    found = Phrases(pipeline).annotate([passage(TEXT), passage("")])["phrases"]
    assert found[0].tolist() == [[0, 3], [4, 9]]  # "two red looms" and "red looms in Turin"
    assert found[1].tolist() == []


def marked(sizes: list[int], gap: int = 1) -> Passage:
    """Return a passage with phrases of these lengths, so many words apart."""
    at, spans = 0, []
    for size in sizes:
        spans.append((at, at + size))
        at += size + gap
    return passage(" ".join(["word"] * at), phrases=as_spans(spans))


def test_phrases_are_masked_whole_and_within_the_budget():
    text, policy = marked([1, 2, 3, 4] * 5), Phrases("any", ratio=0.2)
    phrases, sizes = text.columns["phrases"].tolist(), []
    for seed in range(200):
        spans = selection.select(policy, [text], seed, [0])[0]
        assert all(span in phrases for span in spans.tolist())
        sizes.append((spans[:, 1] - spans[:, 0]).sum())
    assert max(sizes) <= 0.2 * len(text.tokens) + 1
    assert np.mean(sizes) == pytest.approx(0.2 * len(text.tokens), abs=0.5)


def test_a_phrase_that_is_too_long_leaves_its_place_to_shorter_ones():
    text = marked([9, 1, 1], gap=3)  # 20 words: a budget of 2
    spans = Phrases("any", ratio=0.1).select(text, np.random.default_rng(0))
    assert spans.tolist() == [[12, 13], [16, 17]]


def test_a_pipeline_without_a_parser_or_noun_chunks_is_refused(tmp_path):
    import spacy

    spacy.blank("en").to_disk(tmp_path / "plain")
    with pytest.raises(ConfigError, match="has no parser: name another"):
        Phrases(str(tmp_path / "plain")).annotate([passage(TEXT)])
    with pytest.raises(ConfigError, match="neither installed nor a folder"):
        Phrases("en_core_web_nothing").depends()
