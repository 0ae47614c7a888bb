"""Policies that count tokens or words, compared with counts by hand on twenty lines."""

import gzip
from collections import Counter
from dataclasses import replace
from math import log

import numpy as np
import pytest
import small
from maskpolicy.policies import informask
from maskpolicy.policies.concepts import Concepts, read_graph
from maskpolicy.policies.difference_masking import ANCHORS, EMBEDDINGS, WORDS_OF, DifferenceMasking
from maskpolicy.policies.frequency import Frequency, spread
from maskpolicy.policies.informask import InforMask, InforMaskRates
from maskpolicy.policies.pmi import PMI, scores, units

from maskpolicy import ConfigError, DataError, Schedule, Statistics
from maskpolicy.data.corpus import ngrams
from maskpolicy.data.corpus.sums import statistics_of
from maskpolicy.experiment.policy_blocks import policy_block
from maskpolicy.masking.selection import select
from maskpolicy.pipeline.stages.policy_inputs import reader

LINES = (
    *["by the way we met"] * 4,
    *["on the way home"] * 3,
    *["we went by the river"] * 2,
    *["New York , New York"] * 5,
    *["the end . by the way"] * 6,
)


def word_passages(lines=LINES):
    return [small.words(line) for line in lines]


def counts() -> Statistics:
    return Statistics.of(PMI().count(word_passages()))


def annotated(text: str, *vocabulary: str):
    """Return a passage with the spans of the n-grams of a vocabulary."""
    passage = small.words(text)
    known = Statistics.of(dict.fromkeys(vocabulary, 1.0))
    spans = PMI().annotate([passage], None, known)["ngrams"][0]
    return replace(passage, columns={"ngrams": spans})


def found(text: str, *vocabulary: str) -> list[list[int]]:
    return annotated(text, *vocabulary).columns["ngrams"].tolist()


def test_counts_are_those_of_twenty_lines():
    assert len(LINES) == 20
    made = counts()
    assert [made[word] for word in ("by", "the", "way", "new", "york")] == [12, 21, 13, 10, 10]
    pairs = ("by the", "the way", "on the", "new york", "the end", "end by", "york new")
    assert [made[pair] for pair in pairs] == [12, 13, 3, 10, 6, 0, 0]  # punctuation divides
    longer = ("by the way", "the way home", "by the way we met")
    assert [made[text] for text in longer] == [10, 3, 4]
    # words of a line, less those of each run of words, less again
    assert [made[n] for n in range(1, 6)] == [
        5 * 4 + 4 * 3 + 5 * 2 + 4 * 5 + 5 * 6,
        4 * 4 + 3 * 3 + 4 * 2 + 2 * 5 + 3 * 6,
        3 * 4 + 2 * 3 + 3 * 2 + 0 * 5 + 1 * 6,
        2 * 4 + 1 * 3 + 2 * 2,
        1 * 4 + 0 * 3 + 1 * 2,
    ]


def test_pmi_is_the_least_over_all_segmentations():
    ranked = {ngram: score for score, ngram in scores(counts())}
    ones, twos, threes = 92, 61, 30  # n-grams of each length
    by_the = 2 * log(12 / twos) - log(12 / ones) - log(21 / ones)
    assert ranked["by the"] == pytest.approx(by_the)
    alone = log(12 / ones) + log(21 / ones) + log(13 / ones)
    pairs = [log(12 / twos) + log(13 / ones), log(12 / ones) + log(13 / twos)]
    assert ranked["by the way"] == pytest.approx(2 * log(10 / threes) - max(alone, *pairs))
    assert max(alone, *pairs) == pairs[1]  # by | the way, which a product over words would miss


def test_the_vocabulary_has_the_best_of_each_length_that_occur_often_enough():
    whole = statistics_of(PMI(min_count=10), word_passages())
    assert dict(whole.items()).keys() == {"by the", "the way", "new york", "by the way"}
    ranked = {ngram: score for score, ngram in scores(counts())}
    pairs = sorted(["by the", "the way", "new york"], key=lambda each: -ranked[each])
    assert [whole[pair] for pair in pairs] == [1, 2, 3]
    assert whole["by the way"] == 1
    few = statistics_of(PMI(entries=4, min_count=3), word_passages())
    lengths = Counter(len(ngram.split()) for ngram, _ in few.items())
    assert lengths == {2: 2, 3: 1}  # 2 bigrams, 1 trigram, no others
    with pytest.raises(DataError, match="no n-gram occurs 30 times in the corpus: lower min_count"):
        statistics_of(PMI(min_count=30), word_passages())
    assert len(statistics_of(PMI(entries=2), word_passages())) == 1
    with pytest.raises(DataError, match="pmi: entries: 1 has no room for an n-gram of two words"):
        statistics_of(PMI(entries=1), word_passages())


def test_ngrams_stop_at_punctuation_and_the_longer_of_two_nested_ones_is_the_unit():
    texts = [text for *_, text in ngrams(small.words("The U.S. army , then"), 3, shortest=2)]
    assert texts == ["the u.s.", "u.s. army", "the u.s. army"]
    states = ("the united states", "air force", "the united states air force", "states air")
    assert found("in the united states air force", *states) == [[1, 6]]
    assert found("The air force of the United States", *states) == [[1, 3], [4, 7]]


def test_lots_decide_between_overlapping_ngrams():
    # the authors' example: by the way + out, or by + the way out
    passage = annotated("by the way out", "by the way", "the way out")
    assert passage.columns["ngrams"].tolist() == [[0, 3], [1, 4]]
    drawn = Counter(
        tuple(map(tuple, units(passage, np.random.default_rng(seed)).tolist()))
        for seed in range(200)
    )
    assert drawn.keys() == {((0, 3), (3, 4)), ((0, 1), (1, 4))}
    assert min(drawn.values()) > 70
    passage = annotated("a b c d e f", "b c", "c d e", "e f")  # which the units divide
    for seed in range(20):
        divided = units(passage, np.random.default_rng(seed))
        assert [divided[0, 0], *divided[:, 1].tolist()] == [*divided[:, 0].tolist(), 6]


def test_units_are_masked_whole_until_the_budget_is_full():
    passage = annotated("x y " * 20 + "by the way", "by the way")
    seen = set()
    for spans in select(PMI(ratio=4 / 43), [passage] * 60, 0, range(60)):
        sizes = tuple(sorted((spans[:, 1] - spans[:, 0]).tolist()))
        seen.add(sizes)
        assert sum(sizes) in (4, 5, 6)  # the last unit is not cut
    assert (1, 3) in seen and (1, 1, 1, 1) in seen


def test_long_units_are_masked_as_often_as_words():
    # ai21labs/pmi-masking: units are drawn uniformly until 15% of the tokens are masked
    passage = annotated("by the way we met " + "x y z " * 3, "by the way we met")
    starts = np.concatenate(select(PMI(), [passage] * 2000, 0, range(2000)))[:, 0]
    assert (starts == 0).mean() == pytest.approx(1 / 10, rel=0.15)  # one of 10 units


SCIENCE = (
    *["the molecule reacts with water"] * 4,
    *["a molecule of water ."] * 2,
    *["The Process , a process"] * 3,
    *["heat and heat"] * 1,
)
GENERAL = (*["the process works"] * 5, *["water and water"] * 3, *["heat"] * 2)


def anchors_of(count: int = 20) -> dict:
    policy = DifferenceMasking(anchors=count)
    return dict(statistics_of(policy, word_passages(SCIENCE), word_passages(GENERAL)).items())


def test_anchors_are_frequent_here_and_rare_in_general():
    counts = {"molecule": 6, "reacts": 4, "water": 6, "process": 6, "heat": 2}
    general = {"molecule": 0, "reacts": 0, "water": 3, "process": 5, "heat": 2}  # passages of 10
    expected = {word: counts[word] / 24 * log(11 / (general[word] + 1)) for word in counts}
    assert anchors_of() == pytest.approx(expected)
    best = sorted(anchors_of(3), key=lambda word: -expected[word])
    assert best == ["molecule", "reacts", "water"]
    with pytest.raises(DataError, match="no word of the corpus is rarer in contrast_corpus"):
        every = word_passages(["water", "heat"])
        statistics_of(DifferenceMasking(), every, word_passages(["water heat"]))


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en", "The x of die Wolle", ["die", "wolle"]),
        ("de", "The x of die Wolle", ["the", "x", "of", "wolle"]),
        ("zh", "我 的 羊 。", ["羊"]),
    ],
)
def test_stop_words_are_those_of_the_language(language, text, words):
    passage = replace(small.words(text), language=language)
    counts = DifferenceMasking().count([passage])
    assert [key for key in counts if isinstance(key, str)] == words


WORDS = small.words("one two three four . six")
OF_TWO = replace(small.words("one two three"), words=np.asarray([[0, 2], [2, 3]], np.int32))


@pytest.mark.parametrize(
    ("passage", "embeddings", "anchors", "wanted"),
    [
        (
            WORDS,
            [[2, 0], [0, 3], [1, 1], [-1, -1], [5, 0], [0, 0]],
            [[1, 0], [0.6, 0.8]],
            [1, 0.8, 1.4 / 2**0.5, 0, 0, 0],
        ),
        # a word of several tokens has their mean
        (OF_TWO, [[1, 0], [0, 1], [0, 1]], [[1, 0]], [1 / 2**0.5, 0]),
    ],
)
def test_a_word_has_its_largest_cosine_to_an_anchor(passage, embeddings, anchors, wanted, tmp_path):
    np.save(tmp_path / EMBEDDINGS, np.asarray(embeddings, np.float32))
    np.save(tmp_path / ANCHORS, np.asarray(anchors, np.float64))
    (tmp_path / WORDS_OF).write_text("[]")
    weights = DifferenceMasking().annotate([passage], tmp_path)["weights"][0]
    assert weights == pytest.approx(wanted)
    (tmp_path / WORDS_OF).write_text('["loom"]')
    both = [small.words("LOOM it's")]  # an anchor in any case, and no other word that counts
    assert DifferenceMasking().annotate(both, tmp_path)["weights"][0][0] == 1
    assert DifferenceMasking().count(both)["loom"] == DifferenceMasking().count(both)[0] == 1


@pytest.mark.parametrize(
    ("ranks", "mean", "power", "chances"),
    [  # by the formula of DespoinaKK/babylm-diffusion, masking_processor.py
        ([1, 2, 5], 0.25, 1, np.asarray([0, 0.25, 1]) * 0.25 / (1.25 / 3)),
        ([1, 2, 5], 0.25, 2, np.asarray([0, 0.0625, 1]) * 0.25 / (1.0625 / 3)),
        ([1, 2, 5], 0.7, 1, 1 - np.asarray([1, 0.75, 0]) * 0.3 / (1.75 / 3)),
        ([1, 2, 5], 0.15, 0, np.full(3, 0.15)),
        ([7, 7], 0.4, 1, np.full(2, 0.4)),
        ([1, 9], 1.0, 1, np.ones(2)),
    ],
)
def test_chances_follow_ranks_and_have_the_mean_of_the_rate(ranks, mean, power, chances):
    found = spread(np.asarray(ranks, np.float32), mean, power)
    assert found == pytest.approx(chances) and found.mean() == pytest.approx(mean)


def test_tokens_are_ranked_by_how_often_the_corpus_has_them():
    texts = [small.ids([5, 5, 5, 2, 2, 9, 3])] * 10
    policy = Frequency()
    ranks = policy.annotate(texts[:1], None, statistics_of(policy, texts))["ranks"][0]
    assert ranks.tolist() == [1, 1, 1, 2, 2, 4, 3]
    unseen = policy.annotate([small.ids([5, 8, 3])], None, statistics_of(policy, texts))
    assert unseen["ranks"][0].tolist() == [1, 5, 3]


NUMBERED_LINES = (
    *[[1, 2, 3]] * 8,  # 1 and 2 are always together
    *[[1, 2, 4]] * 4,
    *[[3, 4]] * 3,
    *[[5, 5]] * 2,
    *[[4]] * 2,
    [],
)
PASSAGES = [small.ids(line, name=str(place)) for place, line in enumerate(NUMBERED_LINES)]


def test_counts_of_informask_are_those_of_twenty_lines():
    assert len(NUMBERED_LINES) == 20
    found = dict(Statistics.of(InforMask(window=2).count(PASSAGES)).items())
    tokens = {1: 12, 2: 12, 3: 11, 4: 9, 5: 4, "tokens": 48}
    pairs = {(1, 2): 12, (2, 3): 8, (1, 3): 8, (2, 4): 4, (1, 4): 4, (3, 4): 3, (5, 5): 2}
    assert found == {**tokens, **pairs, "pairs": 41}
    near = dict(Statistics.of(InforMask(window=1).count(PASSAGES)).items())
    assert (1, 3) not in near and near["pairs"] == 12 * 2 + 3 + 2


def test_information_is_that_of_two_tokens_in_any_order_and_a_table_has_it_for_each_token():
    known = Statistics.of(InforMask(window=2).count(PASSAGES))
    pairs = np.asarray([[1, 2], [3, 4], [5, 5], [1, 5], [6, 7]])
    together = log(12 / 41 / (2 * 12 / 48 * 12 / 48))
    rare = log(3 / 41 / (2 * 11 / 48 * 9 / 48))
    twice = log(2 / 41 / (4 / 48) ** 2)
    assert informask.information(pairs, known) == pytest.approx([together, rare, twice, 0, 0])
    one, two, three = informask.information(np.asarray([[1, 2], [1, 3], [2, 3]]), known)
    tables = list(informask.neighbours([PASSAGES[0], PASSAGES[-1], PASSAGES[18]], known, 2))
    assert tables[0] == pytest.approx(np.asarray([[one, two], [three, 0], [0, 0]]))
    assert [table.shape for table in tables[1:]] == [(0, 2), (1, 2)]


def relevance(table, mask) -> float:
    """The sum over pairs of a masked and an unmasked token, pair by pair."""
    return sum(
        float(table[i, j - i - 1])
        for i in range(len(mask))
        for j in range(i + 1, min(len(mask), i + 1 + table.shape[1]))
        if mask[i] != mask[j]
    )


def test_the_most_informative_of_all_drawn_masks_is_used():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(9, 4)).astype(np.float32)
    drawn = np.random.default_rng(7).random((50, 9)).argsort(axis=1).argsort(axis=1) < 3
    chosen = informask.best_mask(table, 3, 50, np.random.default_rng(7))
    values = [relevance(table, mask) for mask in drawn]
    assert chosen.sum() == 3
    assert relevance(table, chosen) == pytest.approx(max(values))
    assert max(values) > np.mean(values)
    assert informask.best_mask(table[:0], 0, 3, rng).tolist() == []
    assert informask.best_mask(table[:1], 1, 3, rng).tolist() == [True]


def test_tokens_that_tell_each_other_are_masked_and_independent_ones_are_not():
    numbers = [(i % 7, i // 7 % 7, i // 49) for i in range(343)]
    lines = [[10 + x, 20 + x, 30 + y, 40 + z] for x, y, z in numbers]
    passages = [small.ids(line, name=str(i)) for i, line in enumerate(lines)]
    policy = InforMask(ratio=0.25, window=3)
    known = statistics_of(policy, passages)
    columns = policy.annotate(passages, None, known)["pmi"]
    marked = [replace(p, columns={"pmi": c}) for p, c in zip(passages, columns, strict=True)]
    spans = select(policy, marked, 0, [0] * len(marked))
    assert {found[0, 0] for found in spans} == {0, 1}


def test_rare_tokens_that_tell_each_other_have_far_higher_rates_than_common_ones():
    # released rates, NafisSadeq/InforMask: .06 to .09 for function words, a median of .25: 3 times
    rng, lines = np.random.default_rng(0), []
    for _ in range(120):
        line = rng.integers(0, 8, 120)  # eight words of every text, at random
        topics = rng.integers(50, 250, 12)  # one topic of two words in each stretch of ten
        line[np.arange(5, 120, 10)], line[np.arange(7, 120, 10)] = topics, topics + 200
        lines.append(line.tolist())
    passages = [small.ids(line, name=str(i)) for i, line in enumerate(lines)]
    common, rare = {}, {}
    for part in (30, 10_000):
        known = statistics_of(InforMaskRates(part=part), passages)
        common[part] = np.mean([known[token] for token in range(8)])
        rare[part] = np.median([known[token] for token in range(50, 450)])
    assert rare[30] > 3 * common[30] and rare[10_000] < 2.5 * common[10_000]


def test_rates_are_the_share_of_a_tokens_occurrences_in_the_best_masks():
    policy = InforMaskRates(ratio=0.5, window=2)
    known = statistics_of(policy, PASSAGES)
    pairs = Statistics.of(policy.count(PASSAGES, None))
    seen, masked = dict.fromkeys(range(1, 6), 0), dict.fromkeys(range(1, 6), 0)
    counted = policy.count(PASSAGES, pairs)
    for (name, token), number in counted.items():
        (masked if name == "masked" else seen)[token] += number
    assert seen == {1: 12, 2: 12, 3: 11, 4: 9, 5: 4}
    assert dict(known.items()) == {t: n / seen[t] or -1 for t, n in masked.items()}
    assert sum(masked.values()) == pytest.approx(24, abs=6)
    rates = policy.annotate(PASSAGES[:1], None, known)["rates"][0]
    assert rates == pytest.approx([known[1], known[2], known[3]])
    never = Statistics.of({("seen", 7): 4, ("seen", 8): 2, ("masked", 7): 1})
    known = Statistics.of(dict(policy.condense(never)))
    rates = policy.annotate([small.ids([7, 8, 9])], None, known)["rates"][0]
    assert rates.tolist() == [0.25, 0, 0.5]  # a quarter of its places, none, never counted


def test_the_counts_do_not_depend_on_batches():
    policy = InforMaskRates(ratio=0.5, window=2)
    pairs = Statistics.of(policy.count(PASSAGES, None))
    whole = policy.count(PASSAGES, pairs)
    assert policy.count(PASSAGES[:7], pairs) + policy.count(PASSAGES[7:], pairs) == whole
    assert policy.count(PASSAGES[-1:], None) == {"tokens": 0, "pairs": 0}


GRAPH = "way\troad\nway\thome\nroad\ttown\ntown\thall\nway\tby_the_way\nriver\tway\n"


def concepts(tmp_path, lines=LINES, **given):
    """Return the policy on a small graph, and the stages of the corpus' concepts."""
    (tmp_path / "graph.tsv").write_text(GRAPH, encoding="utf-8")
    given = {"frequent": 10, "connected": 2, **given}
    made = Concepts(graph=str(tmp_path / "graph.tsv"), **given)
    return made, statistics_of(made, word_passages(lines))


def test_concepts_join_the_curriculum_by_their_distance_from_the_basic_ones(tmp_path):
    lines = [*LINES, "the road to town hall", "down the river"]
    # of way (4 neighbours) and road (2) only way occurs 10 times. The release's next stage are the
    # neighbours of way, `construct_next_stage({way}) == {road, home, by the way, river}`, then town
    first = {"way": 1, "home": 2, "by the way": 2, "road": 2, "river": 2}
    for given, town, hall in (({}, 3, 3), ({"stages": 4, "stage": 1.0}, 3, 4), ({"hops": 2}, 2, 3)):
        _, stages = concepts(tmp_path, lines, **given)
        assert dict(stages.items()) == {**first, "town": town, "hall": hall}
    with pytest.raises(DataError, match=r"none of the 2 concepts of .* occurs 40 times"):
        concepts(tmp_path, frequent=40)


def test_concepts_of_the_stage_are_masked_and_random_tokens_before_and_after(tmp_path):
    made, stages = concepts(tmp_path, [*LINES, "the road to town hall"])
    passage = small.words("by the way the road to town hall is a way home by the river")
    columns = made.annotate([passage], None, stages)
    passage = replace(passage, columns={name: each[0] for name, each in columns.items()})
    texts = passage.texts(passage.columns["concepts"])
    found = dict(zip(texts, passage.columns["stages"], strict=True))
    late = {"town": 3, "hall": 3}
    assert found == {"way": 1, "by the way": 2, "road": 2, "home": 2, "river": 2, **late}

    def masked(stage, ratio=1.0):
        policy = replace(made, stage=stage, ratio=ratio)
        draws = select(policy, [passage] * 60, 0, range(60))
        return [set(passage.texts(spans)) for spans in draws]

    assert set().union(*masked(1.9)) == {"way"}
    assert set().union(*masked(2.0)) == {"by the way", "road", "way", "home", "river"}
    assert set().union(*masked(3.0)) == set(found)
    assert {"to", "a"} < set().union(*masked(0.5, 0.3))
    both = masked(4.0, 6 / 15)  # four tokens of concepts or a few more, and two others
    assert {"to", "a"} < set().union(*both) and all(each & set(found) for each in both)


def test_concepts_read_conceptnet_and_refuse_other_lines(tmp_path):
    path = tmp_path / "conceptnet-assertions-5.7.0.csv.gz"
    uri = "/a/[/r/IsA/,/c/en/mill/n/,/c/en/old_building/]"
    lines = [
        f"{uri}\t/r/IsA\t/c/en/mill/n/wn/artifact\t/c/en/old_building\t{{}}",
        f"{uri}\t/r/Synonym\t/c/en/mill\t/c/de/mühle\t{{}}",
    ]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    names, edges = read_graph(str(path))
    assert names == {"mill": 0, "old building": 1} and edges.tolist() == [[0, 1]]
    path.write_bytes(gzip.compress(b"mill;town\n"))
    with pytest.raises(DataError, match="line 1: is neither two concepts with a tab"):
        read_graph(str(path))
    with pytest.raises(ConfigError, match=r"graph: .* cannot be read: No such file"):
        Concepts(graph=str(tmp_path / "none.tsv")).depends()


def test_a_graph_may_begin_with_a_bom_and_one_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "graph.tsv"
    path.write_text("town\tstreet\n", encoding="utf-8-sig")
    assert read_graph(str(path))[0].keys() == {"town", "street"}
    path.write_bytes(b"caf\xe9\ttown\n")
    with pytest.raises(DataError, match=r"policy concepts: .*graph\.tsv: not UTF-8"):
        read_graph(str(path))
    packed = path.rename(tmp_path / "graph.tsv.gz")
    with pytest.raises(DataError, match=r"graph\.tsv\.gz: cannot be read: Not a gzipped file"):
        read_graph(str(packed))


def test_the_default_curriculum_reaches_all_stages_of_concepts(tmp_path):
    path = tmp_path / "graph.tsv"
    path.write_text("town\tstreet\n")
    given = {"name": "concepts", "graph": str(path), "stages": 5}
    for more, end in (({}, 7), ({"stage": {"start": 0, "end": 5}}, 5)):
        block = policy_block(given | more, "", {})
        assert block.policy.stage == Schedule(0, end) and block.fields["stage"]["end"] == end
        assert reader(block).instance().stages == 5  # as a stage builds it again
