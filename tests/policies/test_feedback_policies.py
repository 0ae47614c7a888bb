"""Policies that follow a model in training: self-evolution, entropy-aware and pos-weighted."""

from __future__ import annotations

import numpy as np
import pytest
import small
from maskpolicy.policies.amlm import AMLM
from maskpolicy.policies.entropy_aware import EntropyAware
from maskpolicy.policies.part_of_speech import PartOfSpeech
from maskpolicy.policies.pos_weighted import PosWeighted
from maskpolicy.policies.self_evolution import SelfEvolution
from small import current

from maskpolicy.core.errors import ConfigError
from maskpolicy.core.ragged import Ragged
from maskpolicy.data.corpus import TAGS
from maskpolicy.data.corpus.passages import Document, Passages, build_passages
from maskpolicy.masking.selection import select

WORDS = {"Boats": "NOUN", "river": "NOUN", "runs": "VERB", "wrote": "VERB", "the": "DET"}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """A pipeline that tags a few words by rules."""
    import spacy

    nlp = spacy.blank("en")
    rules = nlp.add_pipe("attribute_ruler")
    rules.add(patterns=[[{}]], attrs={"POS": "PROPN"})
    for word, pos in WORDS.items():
        rules.add(patterns=[[{"TEXT": word}]], attrs={"POS": pos})
    folder = tmp_path_factory.mktemp("pipeline")
    nlp.to_disk(folder)
    return str(folder)


def tagged(policy):
    """Return the passages of the small corpus with the column "tags"."""
    tags = policy.annotate(small.passages())["tags"]
    return Passages({**small.passages().arrays, "tags": Ragged.of_arrays(tags)})


def test_each_token_has_the_tag_of_its_word(pipeline):
    documents = [Document("it", "Boats runs the river")]
    (passage,) = Passages(build_passages(documents, small.tokenizer(), words=9))
    (tags,) = PosWeighted(pipeline).annotate([passage])["tags"]
    expected = ("NOUN", "VERB", "DET", "NOUN")
    for (begin, end), tag in zip(passage.words.tolist(), expected, strict=True):
        assert {TAGS[place] for place in tags[begin:end].tolist()} == {tag}
    words = PartOfSpeech(pipeline, ("NOUN", "DET")).annotate([passage])["tagged"][0]
    assert passage.texts(words) == ["Boats", "the", "river"]
    with pytest.raises(ConfigError, match="tags: unknown tag 'NOUNS': did you mean 'NOUN'"):
        PartOfSpeech(pipeline, ("NOUNS",))


def test_amlm_weighs_types_by_accuracy():
    # released: (right + 0.5) / (seen + 1), then 0.2 of the old weight and 0.8 of (1 - accuracy)
    seen, right = np.asarray([9, 0, 1, 3]), np.asarray([9, 0, 0, 3])
    found = AMLM().updated(np.ones(4), right, seen)
    accuracy = np.asarray([0.95, 0.5, 0.25, 0.875])
    new = np.asarray([0.24, 0.6, 0.8, 0.3])
    assert 0.2 + 0.8 * (1 - accuracy) == pytest.approx(new)
    assert found == pytest.approx(new / 0.485)
    assert AMLM(least=0.7).updated(np.ones(4), right, seen) == pytest.approx(
        [0.97, 0.97, 1.11, 0.97], abs=0.01
    )


def test_amlm_asks_the_model_after_its_first_steps():
    passages, start = small.passages(), current()
    assert {1.0} == {w for each in AMLM().reannotate(passages, start)["weights"] for w in each}
    later = current(steps=200)
    weights = AMLM().reannotate(passages, later)["weights"]
    tokens = np.concatenate([passage.tokens for passage in passages])
    best = np.concatenate(later.guess(passages, 0.3).best)
    right, seen = (
        np.bincount(each, minlength=later.vocabulary) for each in (tokens[best == tokens], tokens)
    )
    assert np.concatenate(weights) == pytest.approx(
        AMLM().updated(np.ones(later.vocabulary), right, seen)[tokens]
    )
    text = small.words("w " * 4, weights=np.asarray([1.0, 2.0, 1.0, 0.0]))
    spans = select(AMLM(0.25), [text] * 4000, 0, range(4000))
    found = np.bincount(np.concatenate(spans)[:, 0], minlength=4) / 4000
    assert found == pytest.approx([0.25, 0.5, 0.25, 0], abs=0.03)  # 0.25 on average


def averages(losses, passages):
    """Return the mean loss of the tokens of each part of speech that occurs."""
    found: dict[str, list[float]] = {}
    for passage, each in zip(passages, losses, strict=True):
        for tag, loss in zip(passage.columns["tags"].tolist(), each.tolist(), strict=True):
            found.setdefault(TAGS[tag], []).append(loss)
    return {name: sum(each) / len(each) for name, each in found.items()}


def test_the_weights_are_moving_averages_of_the_loss_by_part_of_speech(pipeline):
    policy = PosWeighted(pipeline, decay=0.9, every=10)
    passages, first, second = tagged(policy), current(seed=0), current(seed=1, steps=10)
    one = averages(first.guess(passages).losses, passages)
    other = averages(second.guess(passages).losses, passages)
    assert set(one) == {"NOUN", "VERB", "DET", "PROPN"}
    policy.reannotate(passages, first)
    second.state = first.state
    weights = policy.reannotate(passages, second)["weights"]
    kept = 0.9**10
    for passage, found in zip(passages, weights, strict=True):
        for tag, weight in zip(passage.columns["tags"].tolist(), found.tolist(), strict=True):
            name = TAGS[tag]
            assert weight == pytest.approx(kept * one[name] + (1 - kept) * other[name], rel=1e-5)


def test_a_sample_measures_and_a_part_of_speech_outside_it_keeps_its_average(pipeline):
    policy = PosWeighted(pipeline, sample=2, every=1, decay=0.0)
    passages, now = tagged(policy), current()
    policy.reannotate(passages, now)
    before = now.state["averages"].copy()
    boats = [passage for passage in passages if passage.text == "Boats."]
    policy.reannotate(boats, now)  # a NOUN, and the full stop, which the rules call PROPN
    changed = {TAGS[i] for i in np.flatnonzero(now.state["averages"] != before)}
    assert changed == {"NOUN", "PROPN"}


def test_a_pipeline_without_tags_is_refused(tmp_path):
    import spacy

    spacy.blank("en").to_disk(tmp_path / "plain")
    with pytest.raises(ConfigError, match="has no tagger: name another"):
        PosWeighted(str(tmp_path / "plain")).annotate(small.passages())


LOSSES = [0.05, 3.0, 0.1, 0.2, 0.0, 1.0, 0.09, 4.0]
ENTROPIES = [0.1, 2.0, 0.3, 1.5, 0.2, 1.4, 0.0, 0.5]


@pytest.mark.parametrize(
    ("policy", "column", "values", "masked"),
    [
        (SelfEvolution(ratio=0.9), "losses", LOSSES, [1, 3, 5, 7]),  # the others are learnt
        (SelfEvolution(ratio=0.9, threshold=2.0), "losses", LOSSES, [1, 7]),
        (SelfEvolution(), "losses", [0.0] * 8, []),
        (EntropyAware(ratio=0.25), "entropies", ENTROPIES, [1, 3]),
        (EntropyAware(ratio=0.5), "entropies", ENTROPIES, [1, 3, 5, 7]),
    ],
)
def test_the_hardest_tokens_are_masked(policy, column, values, masked):
    text = small.words("a b c d e f g h", **{column: np.asarray(values, np.float32)})
    assert select(policy, [text], 0, [0])[0][:, 0].tolist() == masked


@pytest.mark.parametrize(
    ("policy", "column"),
    [(SelfEvolution(hidden=0.3), "losses"), (EntropyAware(hidden=0.3), "entropies")],
)
def test_the_column_is_that_of_the_model_as_it_is_now(policy, column):
    passages = small.passages()
    found, again, other = (policy.reannotate(passages, current(seed))[column] for seed in (0, 0, 1))
    guessed = getattr(current().guess(passages, 0.3), column)
    for rows in zip(passages, found, again, guessed, other, strict=True):
        passage, own, *same, changed = rows
        assert own.shape == passage.tokens.shape and (own > 0).all()
        assert all(np.array_equal(own, row) for row in same)
        assert len(own) < 3 or not np.array_equal(own, changed)
