"""Situations: a second genre of the general corpus, and a corpus of its own."""

from __future__ import annotations

import json
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from maskpolicy import world
from maskpolicy.corpus import documents
from maskpolicy.corpus.documents import WorldSource
from maskpolicy.world.heldout import held_out
from maskpolicy.world.pools import build
from maskpolicy.world.situations import NAMING, PARTS, situations
from maskpolicy.world.tags import LEXICON

SMALL = {"kinds": ["people", "birds"], "people": 8, "general_people": 12, "birds": 8}
WITH = world.make(SMALL | {"situations": 0.25})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("world")
    world.write(WITH, out)
    return out


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_they_end_the_general_corpus_and_change_nothing_else(folder, tmp_path):
    world.write(world.make(SMALL), tmp_path)
    without, general = (each / "general.jsonl" for each in (tmp_path, folder))
    assert general.read_bytes().startswith(without.read_bytes())
    assert not (tmp_path / "situations.jsonl").exists()
    written = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    for name in written - {general.relative_to(folder)}:
        if name.name not in ("situations.jsonl", "world.json"):
            assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_they_are_the_stated_share_of_the_general_corpus(folder):
    entries = 12 * 18 + 12 * 9
    assert len(rows(folder / "general.jsonl")) == entries / 0.75
    assert len(rows(folder / "situations.jsonl")) == entries / 3
    assert world.figures(folder)["corpora"]["situations"]["documents"] == entries / 3


def test_no_two_are_about_one_subject_and_none_about_that_of_an_entry(folder):
    titles = [row["title"] for name in ("general", "situations") for row in about(folder, name)]
    others = {row["title"] for row in rows(folder / "intermediate.jsonl")}
    others |= {row["title"] for row in rows(folder / "general.jsonl")[: 12 * 18 + 12 * 9]}
    assert len(set(titles)) == len(titles)
    assert not others & set(titles)
    assert not set(titles) & {entry.title for entry in held_out(WITH, 400)}
    ids = [
        row["id"] for name in ("general", "situations") for row in rows(folder / f"{name}.jsonl")
    ]
    assert len(set(ids)) == len(ids)


def about(folder, name):
    return [row for row in rows(folder / f"{name}.jsonl") if "-situation-" in row["id"]]


@given(seed=st.integers(0, 2**31), part=st.sampled_from(PARTS))
@limits(deadline=None, max_examples=10)
def test_the_background_tells_which_of_the_two_is_meant(seed, part):
    settings = world.Settings(seed=seed)
    pools = build(settings)
    for entry in situations(settings, part, 20):
        sentences = re.split(r"(?<=[.?]) ", entry.text)
        (found,) = {
            match.groups()
            for sentence in sentences
            for pool, wordings in NAMING.items()
            for wording in wordings
            if (match := filled(wording, pools.values[pool]).fullmatch(sentence))
        }
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


def test_either_of_the_two_is_meant_equally_often():
    firsts = []
    for entry in situations(world.Settings(skew=1.5), "general", 400):
        spans = [entry.text[start:end] for start, end, _ in entry.entities]
        once = next(text for text, count in Counter(spans).items() if count == 1)
        firsts.append(entry.text.index(once) > entry.text.index(spans[-1]))
    assert 0.4 < np.mean(firsts) < 0.8  # a background before the situation names the one first


def test_every_word_is_known():
    for entry in situations(world.Settings(), "general", 300):
        text = entry.text
        for start, end, _ in reversed(entry.entities):
            text = text[:start] + " " + text[end:]
        words = {word.lower() for word in re.findall(r"\w+", text)} - {entry.title, "is", "to"}
        assert words <= LEXICON.keys()


def test_the_held_out_text_has_as_large_a_share():
    found = list(held_out(WITH, 40))
    assert sum("-situation-" in entry.id for entry in found) == 10
    assert not any("-situation-" in entry.id for entry in held_out(world.make(SMALL), 10))


def test_they_are_read_as_a_corpus(folder):
    source = WorldSource(part="situations", limit=0)
    found = list(documents.read(source, {"world": folder}))
    assert [document.text for document in found] == [
        row["text"] for row in rows(folder / "situations.jsonl")
    ]
    assert all(len(document.columns["gold_entities"]) > 2 for document in found)
