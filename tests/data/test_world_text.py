"""Text of the world that analyses and corpora read: situations, entities with errors, probes."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from official import rows_of

from benchmarks.figures_of_text import figures
from maskpolicy.core.errors import ConfigError
from maskpolicy.data import world
from maskpolicy.data.corpus import documents
from maskpolicy.data.corpus.documents import WorldSource
from maskpolicy.data.corpus.passages import build_passages
from maskpolicy.data.corpus.spacy_pipelines import find_entities
from maskpolicy.data.world import unasked_texts
from maskpolicy.data.world.create import corpus_row
from maskpolicy.data.world.pools import build
from maskpolicy.data.world.prose import prose
from maskpolicy.data.world.subject_kinds import described, subjects
from maskpolicy.data.world.unasked_texts import Blank, blanks, held_out, situations
from maskpolicy.experiment.world_settings import SUBJECT_KINDS, WITH_ERRORS, EntityErrors
from maskpolicy.plugins.discovery import instance

SMALL = {"kinds": ["people", "birds"], "people": 8, "general_people": 12, "birds": 8}
WITH = world.make(SMALL | {"situations": 0.25})
ALL = world.make(
    {"kinds": list(SUBJECT_KINDS), "people": 100, "general_people": 30, "endings": 0.5}
)
SHORT = {"people": 4, "general_people": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("world")
    world.write(WITH, out)
    return out


def test_situations_end_the_general_corpus_and_change_nothing_else(folder, tmp_path):
    world.write(world.make(SMALL), tmp_path)
    without, general = (each / "general.jsonl" for each in (tmp_path, folder))
    assert general.read_bytes().startswith(without.read_bytes())
    written = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    for name in written - {general.relative_to(folder)}:
        if name.name not in ("situations.jsonl", "world.json"):
            assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()
    assert not (tmp_path / "situations.jsonl").exists()
    entries = len(rows_of(without))
    assert len(rows_of(general)) == entries / 0.75
    assert world.figures(folder)["corpora"]["situations"]["documents"] == entries / 3


@given(seed=st.integers(0, 2**31), part=st.sampled_from(unasked_texts.PARTS))
@limits(max_examples=10)
def test_the_background_tells_which_of_the_two_is_meant(seed, part):
    settings = world.Settings(seed=seed)
    pools = build(settings)
    patterns = [
        filled(wording, pools.values[pool])
        for pool, wordings in unasked_texts.NAMING.items()
        for wording in wordings
    ]
    for entry in situations(settings, part, 20):
        sentences = re.split(r"(?<=[.?]) ", entry.text)
        matches = (one.fullmatch(sentence) for one in patterns for sentence in sentences)
        (found,) = {match.groups() for match in matches if match}
        spans = [entry.text[start:end] for start, end, _ in entry.entities]
        right = spans[-1]
        (wrong,) = set(found) - {right}
        assert right in found and right in sentences[-1] and wrong not in sentences[-1]
        assert (spans.count(right), spans.count(wrong)) == (3, 1)
        assert all(entry.title in s for s in sentences if "two" in s or s is sentences[-1])


def filled(wording, values):
    """Return a pattern for a sentence of this wording; its groups are the two."""
    one = "|".join(re.escape(value.text) for value in values)
    left, middle, right = map(re.escape, re.split(r"\{[ab]\}", wording))
    return re.compile(f"{left}({one}){middle}({one}){right}")


def test_held_out_text_is_in_no_corpus_and_has_as_large_a_share_of_situations():
    found = list(held_out(WITH, 40))
    assert sum("-situation-" in entry.id for entry in found) == 10
    pools = build(ALL)
    known = {
        subject.title
        for corpus in ("general", "intermediate")
        for subject in subjects(ALL, pools, "people", corpus)
    } | {value.text for value in pools.values["teachers"]}
    found = list(held_out(ALL, 50))
    assert len({entry.title for entry in found} - known) == 50
    assert found == list(held_out(ALL, 50))
    found = list(held_out(replace(ALL, text="prose", endings=0), 50))
    assert len(found) == 50
    assert not {subject.title for entry in found for subject, _ in entry.told} & known
    few = world.make({**SHORT, "teachers": 1, "name_parts": 4})
    assert len(list(held_out(few, 100))) == 16 - 9


ENTRIES = [
    entry
    for subject in subjects(WITH, build(WITH), "people", "intermediate")
    for entry in described(WITH, subject)
] + list(situations(WITH, "general", 100))


@given(
    entry=st.sampled_from(ENTRIES),
    errors=st.tuples(st.floats(0, 0.5), st.floats(0.01, 0.5)),
    seed=st.integers(0, 2**31),
)
def test_a_wrong_entity_is_as_many_other_words(entry, errors, seed):
    made = corpus_row(entry, EntityErrors(*errors), [seed])
    found, gold = made.pop(WITH_ERRORS), [list(entity) for entity in entry.entities]
    assert made == entry.row and found == sorted(found)
    assert all(one[1] <= other[0] for one, other in pairwise(found))
    lost = {
        (len(re.findall(r"\w+", entry.text[a:b])), label)
        for a, b, label in (entity for entity in gold if entity not in found)
    }
    for start, end, label in (entity for entity in found if entity not in gold):
        wrong = entry.text[start:end]
        assert "." not in wrong and (len(re.findall(r"\w+", wrong)), label) in lost
        assert not any(start < b and a < end for a, b, _ in gold)


def test_the_policy_column_masks_gold_as_salient_span_does(tmp_path):
    """So a row with errors differs from salient-span in the errors alone."""
    world.write(world.make(SHORT), tmp_path)
    found = documents.read(WorldSource(part="intermediate", limit=40), {"world": tmp_path})
    passages = build_passages(found, small.tokenizer(), 100)
    salient = instance("policy", "salient-span", {})
    column = instance("policy", "column", {"column": "gold_entities"})
    entities = salient.annotate(list(passages))["entities"]
    for passage, own in zip(passages, entities, strict=True):
        assert own.tolist() == passage.columns["gold_entities"].tolist()
        passage.columns["entities"] = own
        drawn = (policy.select(passage, np.random.default_rng(3)) for policy in (salient, column))
        assert next(drawn).tolist() == next(drawn).tolist()


def test_a_probed_entry_has_its_ranges_and_each_person_a_fact_of_its_own_in_every_part():
    settings = world.make({"people": 30, "general_people": 8})
    probed = unasked_texts.probed_entries(settings, 100, seed=0)
    assert len(probed) == 30 * 18
    for entry in probed:
        assert entry.text[slice(*entry.name)] == entry.person
        assert entry.text[slice(*entry.stated)] == entry.value
        start, end = entry.statement
        assert entry.name[1] < start < entry.stated[0] < entry.stated[1] <= end == len(entry.text)
        assert entry.person not in entry.text[start:]
    facts, people = defaultdict(set), defaultdict(set)
    for entry in probed:
        facts[entry.person, entry.by_fact].add(entry.relation)
        people[entry.by_person].add(entry.person)
    assert {part: len(found) for part, found in people.items()} == dict(train=18, dev=6, test=6)
    for person in set.union(*people.values()):
        of_parts = [facts[person, part] for part in ("train", "dev", "test")]
        assert [len(found) for found in of_parts] == [4, 1, 1]
        assert len(set.union(*of_parts)) == 6


@pytest.mark.parametrize(
    ("options", "people", "message"),
    [
        *((one, 8, r"world\.facts and world\.text") for one in ({"facts": 2}, {"text": "prose"})),
        ({"asked": 2, "never": 0}, 8, r"raise world\.asked"),
        ({}, 2, "raise people"),
    ],
)
def test_a_world_without_parts_for_a_probe_is_refused(options, people, message):
    with pytest.raises(ConfigError, match=message):
        unasked_texts.probed_entries(world.make({"people": 8, **options}), people, 0)


EVERY_KIND = {"kinds": list(SUBJECT_KINDS), **SHORT, "people": 100}
FORMS = {"entries": world.make(EVERY_KIND), "prose": world.make(EVERY_KIND | {"text": "prose"})}


@pytest.fixture(scope="module", params=FORMS)
def masked(request):
    return list(blanks(FORMS[request.param]))


def nameless(found: Sequence[Blank]) -> float:
    """Return the share of blanks that a naive Bayes classifier fills in right without the name.

    It sees every other word of the entry, with the words before and after, and has learned from
    all other entries, those about the same subject too.
    """
    of_relation = defaultdict(list)
    for blank in found:
        of_relation[blank.kind, blank.relation].append(blank)
    return sum(map(_right, of_relation.values())) / len(found)


def _right(found: Sequence[Blank]) -> int:
    values = {value: i for i, value in enumerate(dict.fromkeys(blank.value for blank in found))}
    places: dict[str, int] = {}
    seen = [[places.setdefault(one, len(places)) for one in _features(blank)] for blank in found]
    own = [values[blank.value] for blank in found]
    counts, priors = np.zeros((len(places), len(values))), np.bincount(own)
    for features, value in zip(seen, own, strict=True):
        counts[features, value] += 1
    chances, right = np.log((counts + 0.1) / (priors + 0.2)), 0
    for features, value in zip(seen, own, strict=True):
        scores = np.log(priors) + chances[features].sum(axis=0)
        left = priors[value] - 1  # the blank itself is left out of all counts
        others = np.log((counts[features, value] - 1 + 0.1) / (left + 0.2))
        scores[value] = np.log(left) + others.sum() if left else -np.inf
        right += scores.argmax() == value
    return int(right)


def _features(blank: Blank) -> frozenset[str]:
    words = blank.with_name("NAME").split()
    return frozenset(words) | {f"{a} {b}" for a, b in pairwise(words)}


def test_every_asked_value_of_every_passage_is_masked_once_and_can_be_renamed(masked):
    settings = FORMS["prose"]  # its subjects are those of the entries
    pools = build(settings)
    called = {
        subject.called
        for kind in SUBJECT_KINDS
        for subject in subjects(settings, pools, kind, "intermediate")
    }
    assert len({(blank.entry, blank.text) for blank in masked}) == len(masked)
    assert sum(blank.kind == "people" for blank in masked) == 100 * 5 * 3
    assert {blank.kind for blank in masked} == set(SUBJECT_KINDS)
    for blank in masked:
        assert blank.text.count(unasked_texts.MASK) == 1
        name = blank.text[slice(*blank.name)]
        assert name in called and name != blank.other
        assert blank.renamed == blank.text.replace(name, blank.other, 1)


def test_a_passage_of_prose_states_facts_of_several_subjects_anywhere():
    settings = FORMS["prose"]
    pools = build(settings)
    stated, thirds, ends = Counter(), Counter(), 0
    found = list(prose(settings, pools, "intermediate"))
    for passage in found:
        assert 60 <= len(passage.text.split()) <= 100
        names = [passage.text[slice(*name)] for _, name in passage.told]
        assert names == [subject.called for subject, _ in passage.told]
        assert len({*names}) == len(names) <= 7
        for (start, end, relation), (subject, _) in zip(passage.asked, passage.told, strict=True):
            value = passage.text[start:end]
            assert value in [f.value.text for f in subject.facts if f.relation.name == relation]
            stated[subject.title, relation] += 1
            thirds[3 * (start + end) // (2 * len(passage.text))] += 1
            ends += not passage.text[end:].strip(".")
    in_entries = Counter(
        (subject.title, relation)
        for kind in settings.kinds
        for subject in subjects(settings, pools, kind, "intermediate")
        for entry in described(settings, subject)
        for _, _, relation in entry.asked
    )
    assert stated == in_entries
    for third in range(3):
        assert thirds[third] / thirds.total() == pytest.approx(1 / 3, abs=0.04)
    assert ends / len(found) < 0.25


def test_prose_about_people_is_near_wikitext():
    settings = world.make({**SHORT, "people": 120, "text": "prose"})
    passages = list(prose(settings, build(settings), "intermediate"))
    texts = [passage.text for passage in passages]
    for passage, found in zip(passages, find_entities(texts, None), strict=True):
        assert [entity[:2] for entity in passage.entities] == [(a, b) for a, b, _ in found]
    measured = figures(texts, 40_000)
    for name, of_wikitext, within in (
        ("type-token ratio", 0.167, 0.05),
        ("10 most frequent words, of all words", 0.25, 0.03),
        ("words of a sentence, mean", 23.2, 4),
        ("entities in 100 words", 13.2, 3),
        ("words in collocations", 0.02, 0.01),
    ):
        assert float(measured[name]) == pytest.approx(of_wikitext, abs=within), name


@pytest.mark.parametrize("kind", SUBJECT_KINDS)
def test_without_the_name_a_guess_is_no_better_than_the_most_frequent_value(masked, kind):
    """A classifier that sees all other words gains at most 5 points, whatever the kind.

    If it guesses better, as it prefers the values that it has seen less often, it guesses as well
    when the values of a relation change places.
    """
    of_kind = [blank for blank in masked if blank.kind == kind]
    right = nameless(of_kind)
    if right > unasked_texts.majority(of_kind) + 0.05:
        assert right <= nameless(_exchanged(of_kind)) + 0.05


def _exchanged(found: Sequence[Blank]) -> list[Blank]:
    values = defaultdict(list)
    for blank in found:
        values[blank.relation].append(blank.value)
    for name, own in values.items():
        values[name] = np.random.default_rng(0).permutation(own).tolist()
    return [replace(blank, value=values[blank.relation].pop()) for blank in found]
