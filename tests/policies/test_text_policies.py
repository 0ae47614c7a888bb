"""Policies that read the text: salient-span, phrases, gap-sentences and keywords."""

from dataclasses import replace

import numpy as np
import pytest
import small
import spacy_rules
from hypothesis import given
from hypothesis import strategies as st
from maskpolicy.policies.gap_sentences import GapSentences
from maskpolicy.policies.keywords import FILE, Keywords
from maskpolicy.policies.phrases import Phrases
from maskpolicy.policies.salient_span import SalientSpan, Temporal
from official import rows_of
from refusals import refused
from small import words as passage

from maskpolicy import ConfigError, Passage, as_spans
from maskpolicy.core.ragged import load
from maskpolicy.data import world
from maskpolicy.masking import selection
from maskpolicy.models.loading import input_embeddings


def annotated(text: str, **fields) -> list[list[int]]:
    """Return the entity spans of one text."""
    return SalientSpan(**fields).annotate([passage(text)])["entities"][0].tolist()


NUMBERED = "Ada Byron paid $5 million at 9:30 a.m. for 12 looms , 40 per cent , in 1854 ."


def test_numbers_and_times_are_hidden_only_where_labels_say_so():
    names_and_dates = [[0, 2], [17, 18]]
    numbers, times = [[3, 5], [9, 10], [12, 15]], [[6, 8]]
    assert annotated(NUMBERED) == names_and_dates
    assert annotated(NUMBERED, labels=("NUMBER",)) == numbers
    assert annotated(NUMBERED, labels=("TIME",)) == times
    for every in ("all", ()):
        assert annotated(NUMBERED, labels=every) == sorted(names_and_dates + numbers + times)
    (none,) = SalientSpan().annotate([passage("nothing happened to anybody .")])["entities"]
    assert (none.shape, none.dtype) == ((0, 2), np.int32)


def test_a_pipeline_without_any_of_the_labels_is_told_its_own(tmp_path):
    some = spacy_rules.pipeline(tmp_path / "some", {"fox": "ANIMAL", "BBC": "ORG"})
    animals = spacy_rules.pipeline(tmp_path / "animals", {"fox": "ANIMAL"})
    text = "The BBC saw a fox ."
    assert annotated(text, pipeline=some) == [[1, 2]]
    with pytest.raises(ConfigError, match="has none of them; it has ANIMAL: name some of these"):
        annotated(text, pipeline=animals)
    for labels in ("all", ("ANIMAL",)):
        assert annotated(text, pipeline=animals, labels=labels) == [[4, 5]]


def test_the_worlds_years_are_dates_and_nothing_there_is_a_number(tmp_path):
    world.write(world.make({"people": 20, "general_people": 4}), tmp_path)
    entries = rows_of(tmp_path / "intermediate.jsonl")
    texts = [row["text"] for row in entries]
    found = SalientSpan().entities(texts)
    assert found == SalientSpan(labels="all").entities(texts)
    years = 0
    for row, spans in zip(entries, found, strict=True):
        dates = {row["text"][start:end] for start, end, label in spans if label == "DATE"}
        wanted = {row["text"][start:end] for start, end, _ in row["asked"]}
        stated = {text for text in wanted if text.isdigit()}
        assert stated <= dates
        years += len(stated)
    assert years > 20


@given(count=st.integers(0, 8), spans=st.integers(1, 10), seed=st.integers(0, 2**32))
def test_select_draws_entities_without_replacement_in_text_order(count, spans, seed):
    found = as_spans([(2 * i, 2 * i + 1) for i in range(count)])
    one = passage("a b " * 9, entities=found)
    drawn = SalientSpan(spans=spans).select(one, np.random.default_rng(seed)).tolist()
    assert len(drawn) == min(spans, count)
    assert drawn == sorted(drawn)
    assert all(span in found.tolist() for span in drawn)


WEAVER = "The old weaver sold two red looms in Turin ."
HEADS = [2, 2, 3, 3, 6, 6, 3, 3, 7, 3]
DEPS = ["det", "amod", "nsubj", "ROOT", "nummod", "amod", "dobj", "prep", "pobj", "punct"]
POS = ["DET", "ADJ", "NOUN", "VERB", "NUM", "ADJ", "NOUN", "ADP", "PROPN", "PUNCT"]


@pytest.fixture(scope="module")
def parser(tmp_path_factory):
    """A pipeline whose parser has learned one sentence, with rules for entities."""
    import spacy
    from spacy.training import Example

    nlp = spacy.blank("en")
    nlp.add_pipe("parser", config={"min_action_freq": 1})
    example = Example.from_dict(nlp.make_doc(WEAVER), {"heads": HEADS, "deps": DEPS})
    optimizer = nlp.initialize(lambda: [example])
    for _ in range(30):
        nlp.update([example], sgd=optimizer)
    rules = nlp.add_pipe("attribute_ruler")
    for word, pos in zip(WEAVER.split(), POS, strict=True):
        rules.add(patterns=[[{"TEXT": word}]], attrs={"POS": pos})
    entities = [{"label": "ORG", "pattern": "red looms in Turin"}]
    nlp.add_pipe("entity_ruler").add_patterns(entities)
    folder = tmp_path_factory.mktemp("pipeline")
    nlp.to_disk(folder)
    return str(folder)


def test_noun_chunks_and_entities_that_share_a_word_are_one_phrase(parser):
    found = Phrases(parser).annotate([passage(WEAVER), passage("")])["phrases"]
    assert found[0].tolist() == [[0, 3], [4, 9]]  # "two red looms" and "red looms in Turin"
    assert found[1].tolist() == []


def with_phrases(sizes: list[int], gap: int = 1) -> Passage:
    """Return a passage with phrases of these lengths, `gap` words apart."""
    at, spans = 0, []
    for size in sizes:
        spans.append((at, at + size))
        at += size + gap
    return passage(" ".join(["word"] * at), phrases=as_spans(spans))


def test_phrases_are_masked_whole_until_the_budget_is_full():
    text, policy = with_phrases([1, 2, 3, 4] * 5), Phrases("any", ratio=0.2)
    phrases, sizes = text.columns["phrases"].tolist(), []
    for spans in selection.select(policy, [text] * 200, 0, range(200)):
        assert all(span in phrases for span in spans.tolist())
        sizes.append((spans[:, 1] - spans[:, 0]).sum())
    assert {*sizes} == set(range(14, 14 + 4))  # a budget of 14, and the rest of the last phrase


def test_each_phrase_is_masked_as_often_as_a_unit_of_ernie():
    # PaddlePaddle/ERNIE, ERNIE/batching.py, mask: each unit with a chance of 0.15
    text = with_phrases([3] * 40, gap=0)  # 120 words: a budget of 18, six phrases
    spans = selection.select(Phrases("any"), [text] * 1000, 0, range(1000))
    masked = sum(np.isin(np.arange(0, 120, 3), found[:, 0]).astype(int) for found in spans)
    assert masked / 1000 == pytest.approx(np.full(40, 0.15), abs=0.05)
    # a long phrase is as likely as short ones: it is the first of three, or the second
    text = with_phrases([9, 1, 1], gap=3)  # 20 words: a budget of 2
    spans = selection.select(Phrases("any", ratio=0.1), [text] * 600, 0, range(600))
    assert np.mean([[0, 9] in found.tolist() for found in spans]) == pytest.approx(2 / 3, abs=0.06)


def test_a_pipeline_without_a_parser_or_noun_chunks_is_refused(tmp_path):
    policy = Phrases(spacy_rules.pipeline(tmp_path / "plain"))
    refused(policy.annotate, [passage(WEAVER)], match="has no parser: name another")
    said = "neither installed nor a folder: run .*; salient-span and temporal need none"
    refused(Phrases("en_core_web_nothing").depends, match=said)


LOOMS = "The loom was red. The red loom was old. Birds sing. The old loom sang."


def with_importance(policy: GapSentences, text: str) -> Passage:
    """Return the text as a passage with the policy's column."""
    passage = small.passage(text)
    return replace(passage, columns={"importance": policy.annotate([passage])["importance"][0]})


def masked_sentences(policy: GapSentences, seed: int = 0, text: str = LOOMS) -> list[int]:
    """Return the indices of the masked sentences."""
    passage = with_importance(policy, text)
    spans = selection.select(policy, [passage], seed, [0])[0].tolist()
    return [passage.sentences.tolist().index(span) for span in spans]


def test_temporal_masks_dates_and_times_alone():
    text = "Ada Lovelace met him on 5 June 1891 at 4.30 pm ."
    found = Temporal().entities([text])[0]
    assert next(text[a:b] for a, b, _ in found) == "5 June 1891"
    assert {label for *_, label in found} <= {"DATE", "TIME"}


def importance(text: str = LOOMS, **fields) -> list[float]:
    return with_importance(GapSentences(**fields), text).columns["importance"].tolist()


def test_importance_is_the_f_score_against_the_rest():
    # words: 4, 5, 2, 4; e.g. the first: the, loom, was, red all occur in the other 11
    rouge = [2 * 4 / 15, 2 * 5 / 15, 0, 2 * 3 / 15]
    assert importance() == pytest.approx(rouge)
    # an occurrence counts as often as it stands on both sides
    assert importance("No no no. No no. Yes.") == pytest.approx([2 * 2 / 6, 2 * 2 / 6, 0])
    # the rest of the first has 8 different words: the red loom was old birds sing sang
    unique = importance(unique=True)
    assert unique[0] == pytest.approx(2 * 4 / (4 + 8))
    assert unique[3] == pytest.approx(2 * 3 / (4 + 7))  # the loom was red old birds sing


def test_greedy_adds_the_sentence_that_helps_the_chosen_ones_most():
    # the second sentence is first; together with each other one it has these scores
    both, greedy = {0: 2 * 3 / 15, 2: 2 * 5 / 15, 3: 2 * 4 / 15}, importance(strategy="greedy")
    assert greedy[1] == 4 and greedy[max(both, key=both.__getitem__)] == 3
    assert sorted(greedy) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("strategy", "chosen"), [("principal", [0, 1]), ("lead", [0, 1]), ("greedy", [1, 2])]
)
def test_the_most_important_sentences_are_masked(strategy, chosen):
    assert masked_sentences(GapSentences(0.5, 1.0, strategy, noise=0.0)) == chosen


def test_random_sentences_are_all_masked_now_and_then():
    policy = GapSentences(0.5, 1.0, "random")
    found = [masked_sentences(policy, seed) for seed in range(60)]
    assert {len(each) for each in found} == {2}
    assert len({tuple(each) for each in found}) == 6


def test_noise_swaps_sentences_as_often_as_in_pegasus():
    # google-research/pegasus: score * (1 + 0.2 * N(0, 0.2)); of two scores, 100 and 104, the lower
    # one is then higher with the probability of N(0, 1) < -4 / (0.04 * (100^2 + 104^2)^0.5)
    text = replace(small.words("a . b ."), columns={"importance": np.asarray([100.0, 104.0])})
    text = replace(text, sentences=as_spans([(0, 2), (2, 4)]))
    found = selection.select(GapSentences(0.5, 1.0), [text] * 4000, 0, range(4000))
    assert np.mean([spans[0, 0] == 0 for spans in found]) == pytest.approx(0.244, abs=0.02)
    found = selection.select(GapSentences(0.5, 1.0, noise=0.0), [text] * 9, 0, range(9))
    assert [spans.tolist() for spans in found] == [[[2, 4]]] * 9


def test_the_share_is_drawn_from_a_third_of_the_ratio_to_the_ratio():
    text = " ".join(f"Word{i} is here." for i in range(100))
    policy = GapSentences()
    counts = [len(masked_sentences(policy, seed, text)) for seed in range(40)]
    assert 14 <= min(counts) < 19 and 40 < max(counts) <= 45


def test_one_sentence_stays_and_one_is_masked_whatever_the_ratio():
    assert len(masked_sentences(GapSentences(1.0, 1.0))) == 3
    assert len(masked_sentences(GapSentences(0.0))) == 1
    for text in ("One sentence only", ""):
        assert masked_sentences(GapSentences(), text=text) == []


FOUR = ([[1, 0], [0, 1], [2, 2], [3, 2.5]], "loom crane wool cloth")  # the mean is (1.5, 1.375)


@pytest.mark.parametrize(
    ("vectors", "text", "count", "found"),
    [
        (*FOUR, 1, [2]),  # cosines .74, .68, .9991, .9988
        (*FOUR, 3, [0, 2, 3]),
        (*FOUR, 9, [0, 1, 2, 3]),
        # a word has the mean of its occurrences, and all of them are found
        ([[4, 0], [0, 1], [0, 4], [1, 0]], "Loom crane loom wool", 1, [0, 2]),
        # stop words, numbers and letters are no keywords
        (np.ones((5, 2)), "the 1854 x loom .", 5, [3]),
        (np.ones((3, 2)), "It was .", 5, []),
        (np.ones((4, 2)), "it's loom's don't loom", 5, [1, 3]),
        (np.zeros((2, 2)), "loom wool", 1, [0]),
    ],
)
def test_keywords_are_the_words_nearest_to_the_mean_of_the_passage(
    vectors, text, count, found, tmp_path
):
    np.save(tmp_path / FILE, np.asarray(vectors, np.float32))
    (column,) = Keywords(keywords=count).annotate([small.words(text)], tmp_path)["keywords"]
    assert column[:, 0].tolist() == found


def test_an_experiment_keeps_the_models_embeddings_and_hides_keywords(tmp_path):
    small.saved(tmp_path / "bart")
    rows = [{"name": "keywords", "label": f"{ratio}", "ratio": ratio} for ratio in (0.75, 0.5)]
    keys = {"corpus": {"name": "world", "words": 40}, "world": {"people": 12, "general_people": 6}}
    made = small.without_tasks(tmp_path, *rows, fit={"steps": 0}, **keys)
    found, store = small.computed(made, tmp_path / "store", ("annotate",))
    (annotated,) = found.values()  # ratio is read by select
    fit = store.path(annotated.inputs["fit"].key)
    embeddings = input_embeddings(str(tmp_path / "bart")).detach().numpy()
    assert np.array_equal(np.load(fit / FILE), embeddings)
    passages = [small.passage("The loom of wool")]
    assert Keywords().annotate(passages, fit)["keywords"][0].shape == (2, 2)
    column = load(store.path(annotated.key) / "passages.safetensors")["keywords"]
    assert column.lengths.min() > 0


def test_a_label_that_the_pipeline_lacks_is_named(tmp_path):
    some = spacy_rules.pipeline(tmp_path / "some", {"fox": "ANIMAL", "BBC": "ORG"})
    with pytest.raises(ConfigError, match="has no 'OGR'; it has ANIMAL, ORG: name some of these"):
        annotated("The BBC saw a fox .", pipeline=some, labels=("ANIMAL", "OGR"))


def test_the_default_labels_mean_the_persons_of_other_languages_too(tmp_path):
    swedish = spacy_rules.pipeline(tmp_path / "sv", {"fox": "PRS", "BBC": "ORG", "saw": "MSR"})
    assert annotated("The BBC saw a fox .", pipeline=swedish) == [[1, 2], [4, 5]]
