"""Masked diffusion, examples of entities, and policies that follow a model in training."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import small
import spacy_rules
from maskpolicy.policies.amlm import AMLM
from maskpolicy.policies.entropy_aware import EntropyAware
from maskpolicy.policies.frequency import Frequency
from maskpolicy.policies.part_of_speech import PartOfSpeech
from maskpolicy.policies.pos_weighted import PosWeighted, relative
from maskpolicy.policies.salient_span import SalientFirst, SalientSpan
from maskpolicy.policies.self_evolution import SelfEvolution
from refusals import refused
from small import current

from maskpolicy import ConfigError, DataError, MaskingCollator, StageError, as_spans
from maskpolicy.core.distribution import Distribution, at_draw
from maskpolicy.core.ragged import Ragged
from maskpolicy.core.seeding import generator
from maskpolicy.data.corpus import TAGS
from maskpolicy.data.corpus.passages import Document, Passages, build_passages
from maskpolicy.experiment.budgets import Training
from maskpolicy.experiment.policy_blocks import AT_POSITIONS, policy_block
from maskpolicy.masking.selection import Masker, select
from maskpolicy.models.training.specials import Specials
from maskpolicy.models.training.steps import MaskedSteps, examples_of
from maskpolicy.plugins.discovery import instance

TIMES = 4000


def drawn(text: str, ratio: Any = None, kind: str = "likelihood") -> tuple[Any, Any]:
    """Return how many tokens of a passage are masked, and its weight, in many epochs."""
    fields = {} if ratio is None else {"ratio": ratio}
    block = policy_block({"name": "diffusion", "loss_weight": kind, **fields}, "row", {}, "encoder")
    masker = Masker.of(block.policy, block.denoising)
    found = masker.select([[small.words(text)]], [0] * TIMES, 0, range(TIMES))
    return np.asarray([len(spans) for spans in found.spans]), np.asarray(found.weights)


@pytest.mark.parametrize(
    "ratio",
    [
        None,
        {"distribution": "uniform", "low": 0.2},
        {"distribution": "cosine", "low": 0.01},
        {"distribution": "beta", "mean": 0.5, "sd": 0.3, "low": 0.05},
        {"distribution": "bell", "mean": 0.5, "sd": 0.3, "low": 0.05, "high": 0.9},
    ],
    ids=str,
)
def test_each_token_has_the_same_mean_weight_in_all_distributions(ratio):
    masked, weights = drawn("a b c d e f g h", ratio)
    given = ratio or {"low": 0.001}  # LLaDA's forward_process, MDLM's sampling: eps = 1e-3
    expected = given.get("high", 1.0) - given["low"]  # of the integral over the rate
    assert (masked * weights).mean() / 8 == pytest.approx(expected, abs=0.06)


def test_the_loss_is_the_bound_on_the_likelihood_and_a_weight_by_the_rate_is_its_inverse():
    # a model whose loss of a token is 3 if both tokens are masked, and 1 if it sees the other
    masked, weights = drawn("a b")
    losses = np.asarray([0, 1, 2 * 3])[masked]
    # by the chain rule: 3 for the first token, in any order, and 1 for the second
    assert (losses * weights).mean() == pytest.approx(3 + 1, rel=0.08)
    bell = {"distribution": "bell", "mean": 0.3, "sd": 0.1}
    masked, weights = drawn("a b c d e f g h", bell, "rate")
    assert (masked * weights).mean() / 8 == pytest.approx(1, abs=0.04)
    assert (1 / weights).mean() == pytest.approx(0.3, abs=0.01)


def test_a_drawn_rate_is_the_mean_of_the_chances_of_frequency():
    text = small.words("a b c d", ranks=np.asarray([1, 2, 3, 9], np.float32))
    policy = Frequency(Distribution("uniform", 0.2, 0.6))
    masked = select(policy, [text] * TIMES, 0, range(TIMES))
    counts = np.bincount(np.concatenate(masked)[:, 0], minlength=4) / TIMES
    assert counts.mean() == pytest.approx(0.4, abs=0.02)
    assert counts[3] > 2 * counts[0]
    # the mask is drawn from the passage's generator, as without a drawn rate
    for epoch in range(9):
        drawn_now = at_draw(policy, ["ratio"], generator(0, epoch, text.id, "distribution"))
        expected = drawn_now.select(text, generator(0, epoch, text.id))
        assert masked[epoch].tolist() == expected.tolist()


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5, 0.7, 1.0])
def test_entities_are_masked_before_other_words(ratio):
    entities = as_spans([(0, 2), (5, 6), (8, 10)])
    text = small.words("w " * 12, entities=entities)
    inside = {at for a, b in entities.tolist() for at in range(a, b)}
    tokens = 0
    for spans in select(SalientFirst(ratio=ratio), [text] * 300, 0, range(300)):
        masked = {at for a, b in spans.tolist() for at in range(a, b)}
        assert masked <= inside or masked >= inside
        tokens += len(masked)
    assert 12 * ratio <= tokens / 300 + 0.1 < 12 * ratio + 1.1  # the last entity is masked whole


def steps(policy: Any, passages: Passages, size: int = 2) -> MaskedSteps:
    specials = Specials.of(small.tokenizer(), 2)
    spec = Training(batch_size=size, max_source=80, max_target=80)
    return MaskedSteps(passages, policy, AT_POSITIONS, specials, spec)


@pytest.mark.parametrize("without", ["drop", "keep"])
@pytest.mark.parametrize("examples", ["each", "one"])
def test_passages_have_as_many_examples_as_entities(examples, without):
    counts = (int(without == "keep"), 1, 2 if examples == "each" else 1)
    entities = [passage.words[: i % 3] for i, passage in enumerate(small.passages())]
    passages = Passages({**small.passages().arrays, "entities": Ragged.of_arrays(entities)})
    policy = SalientSpan(examples=examples, without=without)
    expected = [counts[i % 3] for i in range(len(passages))]
    made = steps(policy, passages, size=1)
    assert len(made.order.lengths) == sum(expected)  # of an epoch: budgets count what is trained on
    masked: Counter[tuple[str, Any]] = Counter()
    for number in range(sum(expected)):
        found = made._selected(number)
        assert made(number).work["passages"] == 1
        for passage, spans in zip(found.passages, found.spans, strict=True):
            masked[passage.id, tuple(map(tuple, spans.tolist()))] += 1
    found = Counter(id for id, _ in masked.elements())
    assert [found[passage.id] for passage in passages] == expected
    if examples == "each":  # every entity once: T5's mask_salient_spans (t5_closed_book_qa)
        assert set(masked.values()) == {1}
    none = Ragged.of_arrays([passage.words[:0] for passage in passages])
    empty = replace(policy, without="drop"), Passages({**passages.arrays, "entities": none})
    with pytest.raises(DataError, match="salient-span: gives no example of any passage"):
        steps(*empty)(0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda passages: [1] * 3, "a whole number from 0 for each of the 15 passages"),
        (lambda passages: [0.5] * len(passages), "a whole number from 0"),
        (lambda passages: [-1] * len(passages), "a whole number from 0"),
        (lambda passages: len(passages) / 0, r"examples_of failed: ZeroDivisionError.*\.py:\d+\)"),
    ],
)
def test_examples_that_cannot_be_counted_are_refused(wrong, said):
    made = type("Counts", (), {"examples_of": lambda self, passages: wrong(passages)})()
    refused(examples_of, made, small.passages(), error=StageError, match=f"policy Counts: .*{said}")


def test_a_policy_with_a_fixed_rate_weighs_all_losses_alike():
    assert policy_block({"name": "diffusion"}, "", {}).denoising.loss_weight == "likelihood"
    fixed = policy_block({"name": "diffusion", "ratio": 0.3}, "", {})
    assert fixed.denoising.loss_weight == "equal"
    for member in ({"loss_weight": "equal"}, {"ratio": 0.3}):
        given = {"name": "mixture", "members": ["random", {"name": "diffusion", **member}]}
        row = policy_block(given, "", {}, "encoder")
        again = policy_block({"name": "mixture", **row.fields}, "", {})
        assert [each.denoising.loss_weight for each in again.members] == ["equal", "equal"]


def test_examples_of_passages_do_not_go_with_mixtures_and_collators():
    each = {"name": "salient-span", "examples": "each"}
    with pytest.raises(ConfigError, match="decides how many examples a passage gives"):
        policy_block({"name": "mixture", "members": ["random", each]}, "row", {})
    with pytest.raises(ConfigError, match="decides how many examples a passage gives"):
        MaskingCollator(each, small.tokenizer())
    with pytest.raises(ConfigError, match="masks one entity at a time: leave spans out"):
        instance("policy", "salient-span", {"examples": "each", "spans": 2})


WORDS = {"Boats": "NOUN", "river": "NOUN", "runs": "VERB", "wrote": "VERB", "the": "DET"}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """A pipeline that tags a few words by rules."""
    tags = [({}, "PROPN"), *(({"TEXT": word}, pos) for word, pos in WORDS.items())]
    return spacy_rules.pipeline(tmp_path_factory.mktemp("pipeline"), tags=tags)


def tagged(policy):
    """Return the passages of the small corpus with the column "tags"."""
    tags = policy.annotate(small.passages())["tags"]
    return Passages({**small.passages().arrays, "tags": Ragged.of_arrays(tags)})


def test_each_token_has_the_tag_of_its_word(pipeline):
    documents = [Document("it", "Boats runs the river")]
    (passage,) = build_passages(documents, small.tokenizer(), words=9)
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
    least = AMLM(least=0.7).updated(np.ones(4), right, seen)
    assert least == pytest.approx([0.97, 0.97, 1.11, 0.97], abs=0.01)


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


def averages(losses, passages):
    """Return the mean loss of the tokens of each part of speech that occurs."""
    found: dict[str, list[float]] = {}
    for passage, each in zip(passages, losses, strict=True):
        for tag, loss in zip(passage.columns["tags"].tolist(), each.tolist(), strict=True):
            found.setdefault(TAGS[tag], []).append(loss)
    return {name: sum(each) / len(each) for name, each in found.items()}


def test_the_weights_follow_moving_averages_of_the_loss_by_part_of_speech(pipeline):
    policy = PosWeighted(pipeline, decay=0.9, every=10)
    passages, first, second = tagged(policy), current(seed=0), current(seed=1, steps=10)
    one = averages(first.guess(passages).losses, passages)
    other = averages(second.guess(passages).losses, passages)
    assert set(one) == {"NOUN", "VERB", "DET", "PROPN"}
    policy.reannotate(passages, first)
    second.state = first.state
    weights = policy.reannotate(passages, second)["weights"]
    kept = 0.9**10
    losses = np.asarray([kept * one[name] + (1 - kept) * other[name] for name in sorted(one)])
    wanted = dict(zip(sorted(one), relative(losses, np.ones(4, bool), 2.0), strict=True))
    for passage, found in zip(passages, weights, strict=True):
        for tag, weight in zip(passage.columns["tags"].tolist(), found.tolist(), strict=True):
            assert weight == pytest.approx(wanted[TAGS[tag]], rel=1e-5)


def test_weights_of_parts_of_speech_are_those_of_the_released_code():
    # mutonix/better_masking, data_utils.py: sigmoid((score - mean) / std * 2), std with n - 1
    losses, occur = np.asarray([1.0, 2.0, 3.0, 9.0]), np.asarray([True, True, True, False])
    expected = [0.1192, 0.5, 0.8808]  # sigmoid of -2, 0 and 2
    assert relative(losses, occur, 2.0)[:3] == pytest.approx(expected, abs=1e-4)
    assert relative(losses, occur, 0.0).tolist() == [0.5] * 4
    assert relative(np.ones(3), np.ones(3, bool), 2.0).tolist() == [0.5] * 3


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
    policy = PosWeighted(spacy_rules.pipeline(tmp_path / "plain"))
    with pytest.raises(ConfigError, match="has no tagger: name another"):
        policy.annotate(small.passages())


LOSSES = [0.05, 3.0, 0.1, 0.2, 0.0, 1.0, 0.09, 4.0]
ENTROPIES = [0.1, 2.0, 0.3, 1.5, 0.2, 1.4, 0.0, 0.5]


@pytest.mark.parametrize(
    ("policy", "column", "values", "masked"),
    [
        (SelfEvolution(ratio=0.9), "losses", LOSSES, [1, 3, 5, 7]),  # the others are learned
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


@pytest.mark.parametrize("kind", ["u1", "u8", "i2"])
def test_numbers_of_examples_may_be_of_any_whole_kind(kind):
    passages = small.passages()[:3]
    made = type("Counts", (), {"examples_of": lambda self, given: np.asarray([2, 0, 1], kind)})()
    found = examples_of(made, passages)
    assert found.dtype == np.int64 and found.tolist() == [[0, 0], [0, 1], [2, 0]]
