"""Every built-in policy: which tokens it masks, how many of them, and its errors."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import strategies as st
from maskpolicy.policies.column import Column
from maskpolicy.policies.gap_sentences import GapSentences
from maskpolicy.policies.mass import Mass
from maskpolicy.policies.poisson import Poisson
from maskpolicy.policies.prefix_lm import PrefixLM
from maskpolicy.policies.regex import Regex
from maskpolicy.policies.span import Span
from maskpolicy.policies.span_corruption import SpanCorruption
from maskpolicy.policies.uniform import Uniform
from maskpolicy.policies.whole_word import WholeWord

from maskpolicy import ConfigError, Passage, as_spans, scatter
from maskpolicy.data.corpus.sums import statistics_of
from maskpolicy.masking import selection
from maskpolicy.plugins import discovery, hooks, registry

discovery.load_builtin("policy")
WITH_RATIO = [
    (Uniform(), "pieces"),
    (Uniform(0.5), "pieces"),
    (WholeWord(), "words"),
    (WholeWord(0.9), "words"),
    (Span(), "pieces"),
    (Span(0.9), "pieces"),
    (Poisson(), "words"),
    (Poisson(0.9, mean=20.0, units="tokens"), "pieces"),
]


def built(sizes: Sequence[int], marked: Sequence[int] = (), name: str = "p") -> Passage:
    """Return a passage of words "a", "aa", .. of these sizes, with a token for each letter."""
    ends = np.cumsum([0, *sizes])
    words = np.stack([ends[:-1], ends[1:]], axis=1)
    at, offsets = 0, []
    for size in sizes:
        offsets += [(at + i, at + i + 1) for i in range(size)]
        at += size + 1
    text = " ".join("a" * size for size in sizes)
    spans = as_spans([words[i] for i in sorted({i for i in marked if i < len(sizes)})])
    tokens = np.arange(ends[-1], dtype=np.int32)
    sentences = as_spans([(0, ends[-1])] if sizes else [])
    columns = {"answers": spans, "entities": spans}
    return Passage(name, text, tokens, as_spans(offsets), as_spans(words), sentences, columns)


passages = st.builds(
    built,
    st.lists(st.integers(1, 4), max_size=40),
    st.lists(st.integers(0, 40), max_size=6),
    st.text("pqr", min_size=1, max_size=3),
)
shares = st.floats(0, 1)
policies = st.one_of(
    st.builds(Uniform, shares),
    st.builds(WholeWord, shares),
    st.builds(Span, shares, st.floats(0.001, 1), st.integers(1, 50)),
    st.builds(Poisson, shares, st.floats(0.01, 50)),
    st.builds(SpanCorruption, shares, st.floats(1, 50), st.booleans()),
    st.builds(Mass, shares),
    st.builds(PrefixLM, shares),
    st.builds(GapSentences, shares, shares, st.sampled_from(["principal", "greedy", "random"])),
    st.builds(Column, st.just("answers"), st.sampled_from([1, 2, "all"])),
    st.builds(Regex, st.sampled_from(["a", "aa+", r"a\b", "b?", "(?<=a )a"])),
)


def ready(policy, passage: Passage) -> Passage:
    """Return the passage with the columns that the policy computes."""
    if not hasattr(policy, "annotate"):
        return passage
    reads = hooks.reads_statistics(policy)
    more = {"statistics": statistics_of(policy, [passage] * 10)} if reads else {}
    columns = {name: rows[0] for name, rows in policy.annotate([passage], None, **more).items()}
    return replace(passage, columns={**passage.columns, **columns})


FIXED = [
    name
    for name in registry.names("policy")
    if (plugin := registry.entry("policy", name).plugin).__module__.startswith(
        "maskpolicy.policies."
    )
    and hasattr(plugin, "select")
    and not hasattr(plugin, "fit")
    and not hasattr(plugin, "reannotate")
    and name not in ("concepts", "phrases", "pos")  # need a graph or a pipeline: tests elsewhere
]


NEEDED = {  # fields without a default
    **{name: {"train_on": ["cola"]} for name in ("typhoon", "ke-mlm", "selective-masking")},
    **{name: {"pipeline": "any"} for name in ("pos", "pos-weighted")},
    "supervised": {"train_on": ["cola"]},
    "concepts": {"graph": "any"},
    "column": {"column": "answers"},
    "regex": {"pattern": "aa"},
}


def of(name: str, **fields):
    """Return a policy by its name."""
    return discovery.instance("policy", name, NEEDED.get(name, {}) | fields)


SHARES = [  # policy, the column that it draws by, how often each of so many tokens is masked
    (of("typhoon"), "chances", [1, 0.5, 0.25, 0], [1, 0.5, 0.25, 0]),
    (of("informask-rates"), "rates", [0, 1, 0.3], [0, 1, 0.3]),
    (of("informask", ratio=0.25, masks=1), "pmi", np.zeros((40, 3)), [0.25] * 40),
    # abwilf/Difference-Masking, data.py, get_masked_indices: n, n - 1, .., 1
    (of("difference-masking", ratio=0.25), "weights", [9, 2, 3, 0], [1 / 2, 1 / 6, 1 / 3, 0]),
    (of("difference-masking", ratio=0.25), "weights", [9, 2, 3, 1], [0.4, 0.2, 0.3, 0.1]),
    (of("pos-weighted", ratio=0.25), "weights", [3, 1, 0, 4], [0.375, 0.125, 0, 0.5]),
    (of("amlm", ratio=0.25), "weights", [1, 2, 1, 0], [0.25, 0.5, 0.25, 0]),
    (of("frequency"), "ranks", [1, 2, 5], [0, 0.09, 0.36]),
    (of("self-evolution", ratio=0.25), "losses", [0, 3, 0.1, 0.2], [0, 0.5, 0, 0.5]),
    (of("entropy-aware", ratio=0.5), "entropies", [2.0] * 8, [0.5] * 8),  # nothing learned yet
    (of("pos"), "tagged", [(0, 1), (2, 3)], [0.5, 0, 0.5, 0]),
    (of("salient-span"), "entities", [(0, 1), (2, 3), (4, 5)], [1 / 3, 0, 1 / 3, 0, 1 / 3, 0]),
]


@pytest.mark.parametrize(("policy", "column", "values", "shares"), SHARES)
def test_tokens_are_masked_as_often_as_a_column_says(policy, column, values, shares):
    kind = np.int32 if column in ("entities", "tagged") else np.float32
    text = small.words("w " * len(shares), **{column: np.asarray(values, kind)})
    spans = selection.select(policy, [text] * 4000, 0, range(4000))
    found = np.bincount(np.concatenate(spans)[:, 0], minlength=len(shares)) / 4000
    assert found == pytest.approx(shares, abs=0.03)


@pytest.mark.parametrize("name", ["ke-mlm", "selective-masking"])
@pytest.mark.parametrize(("marked", "count"), [(2, 2), (9, 3), (0, 0)])
def test_marked_words_are_masked_as_far_as_the_ratio_allows(name, marked, count):
    text = small.words("w " * 20)
    columns = {"telling": text.words[:marked], "important": text.words[:marked]}
    text = replace(text, columns={**columns, "sure": np.arange(marked)})
    (spans,) = selection.select(of(name), [text], 0, [0])
    assert len(spans) == count and set(spans[:, 0]) <= set(range(marked))
    if name == "selective-masking":  # the surest ones
        assert spans[:, 0].tolist() == list(range(marked - count, marked))


LEARNED = ("typhoon", "ke-mlm", "selective-masking", "supervised", "keywords", "difference-masking")


@pytest.mark.parametrize("name", LEARNED)
def test_without_a_fit_a_learned_policy_says_what_to_do(name):
    message = "run it in an experiment, and mask with `maskpolicy show [a-z-]+ --run RUN`"
    with pytest.raises(ConfigError, match=message):
        of(name).annotate([small.words("a")])


@pytest.mark.parametrize("name", FIXED)  # learned ones: tests of their own
def test_a_policy_hides_part_of_one_passage(name):
    policy = of(name)
    passage = ready(policy, built([1, 2, 3] * 20, [1, 4]))
    spans = selection.select(policy, [passage], 0, [0])[0]
    assert (spans[:, 1] - spans[:, 0]).sum() < len(passage.tokens)


@given(st.lists(passages, min_size=1, max_size=4), policies, st.integers(0, 9))
def test_spans_are_sorted_disjoint_not_empty_and_in_range(batch, policy, seed):
    batch = [ready(policy, passage) for passage in batch]
    found = selection.select(policy, batch, seed, [0] * len(batch))
    for passage, spans in zip(batch, found, strict=True):
        edges = [0, *spans.flatten().tolist(), len(passage.tokens)]
        assert edges == sorted(edges)
        assert (spans[:, 0] < spans[:, 1]).all()


OF_TOKENS = (Uniform, Span, SpanCorruption, Mass, PrefixLM)


@given(passages, policies.filter(lambda p: not isinstance(p, OF_TOKENS)), st.integers(0, 9))
def test_policies_of_words_never_split_one(passage, policy, seed):
    passage = ready(policy, passage)
    spans = selection.select(policy, [passage], seed, [0])[0]
    starts, ends = passage.words[:, 0].tolist(), passage.words[:, 1].tolist()
    assert all(a in starts and b in ends for a, b in spans.tolist())


@pytest.mark.parametrize(("policy", "units"), WITH_RATIO, ids=lambda value: str(value))
def test_the_ratio_is_met_on_average(policy, units):
    passage, rng = built([1, 2, 3, 1, 1, 2, 1]), np.random.default_rng(0)
    whole = getattr(passage, units)
    spans = np.concatenate([policy.select(passage, rng) for _ in range(3000)])
    hidden = np.diff(np.searchsorted(whole[:, 0], spans)).sum()  # units that begin in a span
    assert hidden / 3000 / len(whole) == pytest.approx(policy.ratio, abs=0.01)


@given(passages)
def test_a_ratio_of_one_hides_everything(passage):
    rng = np.random.default_rng(0)
    for policy in (Uniform(1.0), WholeWord(1.0), Span(1.0), Poisson(1.0)):
        spans = policy.select(passage, rng)
        assert (spans[:, 1] - spans[:, 0]).sum() == len(passage.tokens)


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("random-40", {"ratio": 0.4}),  # princeton-nlp/DinkyTrain: run_efficient_mlm_recipe.sh
        # WHU-ZQH/SE4PLMs: fairseq-self_questioning/trainer.py; criterions/cross_entropy.py
        ("self-evolution", {"threshold": 0.1, "smoothing": 0.1}),
        # mutonix/better_masking: bert_ptw_pretrain.py; data_utils.py
        ("pos-weighted", {"decay": 0.999, "ratio": 0.15, "sharpness": 2.0}),
        # thunlp/SelectiveMasking: data/create_data_rule/config.sh
        ("selective-masking", {"threshold": 0.01, "ratio": 0.15}),
        ("amlm", {"kept": 0.2}),  # serdardoesml/babylm25: train_mask.py, update_mask_weights
        # KoreaMGLEE/Concept-based-curriculum-masking: script/basicconcept_selection.py
        ("concepts", {"connected": 5000, "basic": 3000}),
    ],
)
def test_defaults_are_the_figures_of_released_code(name, figures):
    assert {key: getattr(of(name), key) for key in figures} == figures


def test_words_of_equal_length_are_masked_as_often_as_in_bert():
    # google-research/bert, create_masked_lm_predictions: whole words of round(0.15 * 80) tokens
    for spans in selection.select(WholeWord(), [built([2] * 40)] * 50, 0, range(50)):
        assert (spans[:, 1] - spans[:, 0]).tolist() == [2] * 6 and (spans[:, 0] % 2 == 0).all()


def test_lengths_of_span_are_geometric_and_cut_at_ten():
    lengths = Span().lengths
    assert len(lengths) == 10
    assert lengths[1:] / lengths[:-1] == pytest.approx(np.full(9, 0.8))
    assert (lengths * np.arange(1, 11)).sum() == pytest.approx(3.8, abs=0.01)


def test_runs_of_span_begin_at_words_and_end_where_the_budget_does():
    # facebookresearch/SpanBERT: 15% of 200 word pieces, runs cut inside a word by the budget
    found = []
    for spans in selection.select(Span(), [built([4] * 50)] * 200, 0, range(200)):
        assert (spans[:, 1] - spans[:, 0]).sum() == 30
        assert (spans[:, 0] % 4 == 0).all()
        found.append((spans[:, 1] % 4 > 0).sum())
    assert max(found) == 1 and np.mean(found) > 0.9  # 30 is no multiple of 4


def test_poisson_counts_words_and_begins_at_words_as_fairseq_does():
    passage = built([1, 4] * 20)  # 40 words of 100 tokens: 30% are 12 words
    starts, ends = (set(bounds.tolist()) for bounds in passage.words.T)
    for spans in selection.select(Poisson(), [passage] * 50, 0, range(50)):
        assert {*spans[:, 0].tolist()} <= starts and {*spans[:, 1].tolist()} <= ends
        assert sum(a <= at < b for a, b in spans.tolist() for at in starts) == 12


def test_poisson_is_barts_noise_by_default():
    lengths, zero = Poisson().lengths, math.exp(-3)
    assert lengths[0] == pytest.approx(3 * zero / (1 - zero))
    assert (lengths * np.arange(1, len(lengths) + 1)).sum() == pytest.approx(3 / (1 - zero))
    facts = registry.entry("policy", "poisson").facts
    assert facts["target"] == "full" and facts["permute_sentences"]
    assert facts["insert"] == pytest.approx(zero / (1 - zero))


def test_scattered_spans_keep_their_lengths_stand_apart_and_are_anywhere():
    rng, three = np.random.default_rng(0), np.asarray([0, 0, 1.0])
    for count in (30, 200):
        sizes = np.diff(scatter(built([1] * count).pieces, 0.2, three, rng))
        assert (sizes == 3).sum() >= len(sizes) - 1
    units = built([1] * 20).pieces
    for _ in range(50):
        spans = scatter(units, 0.5, np.ones(1), rng)
        assert (spans[1:, 0] > spans[:-1, 1]).all()
    units = built([1] * 6).pieces
    starts = [scatter(units, 0.5, three, rng)[0, 0] for _ in range(4000)]
    assert np.bincount(starts) == pytest.approx(np.full(4, 1000), abs=120)


@given(passages, shares)
def test_mass_hides_one_span_of_an_exact_length(passage, ratio):
    spans = Mass(ratio).select(passage, np.random.default_rng(0))
    length = round(len(passage.tokens) * ratio)
    assert (spans[:, 1] - spans[:, 0]).tolist() == [length] * (length > 0)


@pytest.mark.parametrize(
    ("edges", "inside"),  # microsoft/MASS, `mask_start`: 20% at each end, 60% anywhere
    [(0.4, 0.6 / 6), (0.0, 1 / 6)],
)
def test_mass_stands_at_an_end_or_anywhere(edges, inside):
    passage, rng = built([1] * 10), np.random.default_rng(0)
    starts = [Mass(edges=edges).select(passage, rng)[0, 0] for _ in range(6000)]
    shares = np.bincount(starts) / 6000
    expected = np.full(6, inside) + np.asarray([edges / 2, 0, 0, 0, 0, edges / 2])
    assert shares == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(("count", "suffix"), [(0, []), (1, []), (2, [[1, 2]]), (8, [[6, 8]])])
def test_prefix_lm_hides_the_last_quarter_and_never_all(count, suffix):
    rng = np.random.default_rng(0)
    assert PrefixLM().select(built([1] * count), rng).tolist() == suffix
    if count > 1:
        assert PrefixLM(1.0).select(built([1] * count), rng).tolist() == [[1, count]]


def test_column_draws_from_the_column_and_one_that_is_not_there_is_refused():
    passage = built([1, 2, 3, 4], [1, 3])
    rng = np.random.default_rng(0)
    drawn = {tuple(Column("answers").select(passage, rng)[0].tolist()) for _ in range(50)}
    assert drawn == {(1, 3), (6, 10)}
    assert Column("answers", spans="all").select(passage, rng).tolist() == [[1, 3], [6, 10]]
    with pytest.raises(ConfigError, match=r"no column 'answer' \(it has: answers, entities\)"):
        Column("answer").select(passage, rng)


@pytest.mark.parametrize(
    ("fields", "hidden"),
    [
        ({"pattern": "aa"}, [[1, 3], [3, 6]]),
        ({"pattern": "a (a)a a", "group": 1}, [[1, 3]]),
        ({"pattern": "a (?P<x>a)a a", "group": "x"}, [[1, 3]]),
        ({"pattern": "a a"}, [[0, 6]]),  # two matches that meet in one word are one span
        ({"pattern": "$|^|b"}, []),
        ({"pattern": "(b)|aaa", "group": 1}, []),
    ],
)
def test_regex_hides_whole_words(fields, hidden):
    policy, rng = Regex(**fields), np.random.default_rng(0)
    assert policy.select(ready(policy, built([1, 2, 3])), rng).tolist() == hidden
    two = Regex("a+", spans=2)  # of four matches
    assert len(two.select(ready(two, built([1, 2, 3, 1])), rng)) == 2


@pytest.mark.parametrize(
    ("tokens", "masked", "spans"),
    # google-research/text-to-text-transfer-transformer: preprocessors.py, random_spans_noise_mask
    [(512, 77, 26), (100, 15, 5), (30, 4, 1), (10, 2, 1), (2, 1, 1), (1, 0, 0), (0, 0, 0)],
)
def test_counts_of_span_corruption_are_those_of_t5(tokens, masked, spans):
    for seed in range(20):
        found = SpanCorruption().select(built([1] * tokens), np.random.default_rng(seed))
        assert len(found) == spans
        assert (found[:, 1] - found[:, 0]).sum() == masked


@given(st.integers(2, 300), st.floats(0, 1), st.floats(1, 40), st.integers(0, 9))
def test_an_unmasked_span_comes_first_and_between_two_masked_ones(count, ratio, mean, seed):
    policy = SpanCorruption(ratio, mean)
    found = policy.select(built([1] * count), np.random.default_rng(seed))
    edges = [0, *found.flatten().tolist()]
    assert all(a < b for a, b in pairwise(edges))
    assert edges[-1] == count


def test_a_rolled_mask_is_anywhere_with_equal_chances():
    # T5's random_roll: one span of 20 of 130 tokens, mean 64, as in UL2
    policy, hidden = SpanCorruption(mean=64.0, roll=True), np.zeros(130)
    for spans in selection.select(policy, [built([1] * 130)] * 2000, 0, range(2000)):
        assert (spans[:, 1] - spans[:, 0]).sum() == 20 and len(spans) in (1, 2)
        assert len(spans) == 1 or (spans[0, 0], spans[1, 1]) == (0, 130)
        for first, end in spans.tolist():
            hidden[first:end] += 1 / 2000
    assert hidden == pytest.approx(np.full(130, 20 / 130), abs=0.04)


def test_the_prefix_of_t5_ends_behind_any_token_but_the_last():
    drawn = selection.select(PrefixLM(split="uniform"), [built([1] * 8)] * 7000, 0, range(7000))
    assert np.bincount([spans[0, 0] for spans in drawn])[1:] == pytest.approx(
        np.full(7, 1000), abs=120
    )


def test_all_masks_of_span_corruption_are_equally_likely():
    rng, passage = np.random.default_rng(0), built([1] * 8)
    policy = SpanCorruption(0.5, 2.0)  # 4 of 8 tokens in 2 spans: 3 x 3 masks
    seen = Counter(str(policy.select(passage, rng).tolist()) for _ in range(9000))
    assert len(seen) == 9
    assert list(seen.values()) == pytest.approx([1000] * 9, abs=130)
