"""The column of entities with errors: what is dropped, what is wrong, what stays."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import numpy as np
import pytest
import small
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from maskpolicy import world
from maskpolicy.corpus import documents
from maskpolicy.corpus.documents import WorldSource
from maskpolicy.corpus.passages import Passages, build_passages
from maskpolicy.plugins.discovery import instance
from maskpolicy.world.pools import build
from maskpolicy.world.settings import WITH_ERRORS, EntityErrors
from maskpolicy.world.situations import situations
from maskpolicy.world.subject_kinds import described, subjects
from maskpolicy.world.tagger_errors import row

SETTINGS = world.make({"people": 12, "general_people": 4})
ENTRIES = [
    entry
    for subject in subjects(SETTINGS, build(SETTINGS), "people", "intermediate")
    for entry in described(SETTINGS, subject)
] + list(situations(SETTINGS, "general", 100))


def words(text):
    return re.findall(r"\w+", text)


@given(
    entry=st.sampled_from(ENTRIES),
    errors=st.tuples(st.floats(0, 0.5), st.floats(0.01, 0.5)),
    seed=st.integers(0, 2**31),
)
@limits(deadline=None)
def test_a_wrong_entity_is_as_many_other_words(entry, errors, seed):
    made = row(entry, EntityErrors(*errors), [seed])
    found, gold = made.pop(WITH_ERRORS), [list(entity) for entity in entry.entities]
    assert made == entry.row
    assert found == sorted(found)
    lost = [entity for entity in gold if entity not in found]
    wrong = [entity for entity in found if entity not in gold]
    for start, end, label in wrong:
        assert "." not in entry.text[start:end]
        assert not any(start < b and a < end for a, b, _ in gold)
        count = len(words(entry.text[start:end]))
        assert any((len(words(entry.text[a:b])), of) == (count, label) for a, b, of in lost)
    spans = [(start, end) for start, end, _ in found]
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(("dropped", "wrong"), [(0.2, 0.1), (1.0, 0.0), (0.0, 1.0)])
def test_the_shares_are_those_of_the_settings(dropped, wrong):
    gold = kept = strange = 0
    for number, entry in enumerate(ENTRIES):
        found = row(entry, EntityErrors(dropped, wrong), [7, number])[WITH_ERRORS]
        right = [list(entity) for entity in entry.entities]
        gold += len(right)
        kept += sum(entity in right for entity in found)
        strange += sum(entity not in right for entity in found)
    assert kept / gold == pytest.approx(1 - dropped - wrong, abs=0.05)
    assert strange / gold == pytest.approx(wrong, abs=0.05)


def test_the_column_is_read_and_nothing_else_changes(tmp_path):
    errors = {"dropped": 0.2, "wrong": 0.1}
    small_world = {"people": 4, "general_people": 4, "situations": 0.2}
    world.write(world.make(small_world), tmp_path / "without")
    world.write(world.make(small_world | {"entity_errors": errors}), tmp_path / "with")
    for part in ("general", "intermediate", "situations"):
        source = WorldSource(part=part, limit=0)
        without, found = (
            list(documents.read(source, {"world": tmp_path / name})) for name in ("without", "with")
        )
        assert [one.text for one in without] == [one.text for one in found]
        assert not any(WITH_ERRORS in one.columns for one in without)
        assert any(one.columns[WITH_ERRORS] != one.columns["gold_entities"] for one in found)
    record = json.loads((tmp_path / "with" / "world.json").read_text("utf-8"))
    assert record["settings"]["entity_errors"] == errors


def test_the_policy_column_masks_gold_as_salient_span_does(tmp_path):
    """So a row with errors differs from salient-span in the errors alone."""
    world.write(world.make({"people": 4, "general_people": 4}), tmp_path)
    source = WorldSource(part="intermediate", limit=40)
    found = documents.read(source, {"world": tmp_path})
    passages = Passages(build_passages(found, small.tokenizer(), 100))
    salient, column = (
        instance("policy", name, fields)
        for name, fields in (("salient-span", {}), ("column", {"column": "gold_entities"}))
    )
    entities = salient.annotate(list(passages))["entities"]
    for passage, own in zip(passages, entities, strict=True):
        assert own.tolist() == passage.columns["gold_entities"].tolist()
        passage.columns["entities"] = own
        drawn = [
            policy.select(passage, np.random.default_rng(3)).tolist()
            for policy in (salient, column)
        ]
        assert drawn[0] == drawn[1]
