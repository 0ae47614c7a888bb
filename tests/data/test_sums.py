"""What a policy counts is added up over batches, passes and processes."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import small

from maskpolicy.core.errors import ConfigError, StageError
from maskpolicy.data.corpus import annotation, sums
from maskpolicy.plugins.statistics import Statistics

FILES = {"hashes.u64", "values.i64", "ends.i64", "keys.json"}


@dataclass(frozen=True)
class Words:
    """Counts words, and passages."""

    min_count: int = 1
    given: Any = None

    def count(self, passages):
        if self.given is not None:
            return self.given
        found = Counter(word for passage in passages for word in passage.texts(passage.words))
        return found + Counter({0: len(passages)})

    def select(self, passage, rng, statistics):
        return passage.words[:0]


def texts(count: int) -> list[Any]:
    return [small.words(f"a b{number % 3} c{number}") for number in range(count)]


def counted(folder, policy, passages, **more) -> Statistics:
    folder.mkdir()
    sums.count(policy, passages, folder, **more)
    assert {path.name for path in folder.iterdir()} == FILES
    return Statistics.open(folder)


def test_batches_are_added_up_and_change_no_byte(tmp_path, monkeypatch):
    passages = texts(23)
    found = counted(tmp_path / "whole", Words(), passages)
    assert found["a"] == found[0] == 23
    assert [found[f"b{i}"] for i in range(3)] == [8, 8, 7]
    monkeypatch.setattr(annotation, "BATCH", 4)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(sums, "BATCH", 4)
    progress = lambda done, total: told.append((done, total))  # noqa: E731
    cut = counted(tmp_path / "cut", Words(), passages, progress=progress)
    assert dict(cut.items()) == dict(found.items())
    for name in FILES:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    assert told[-1] == (23, 23) and len(told) == 6


def test_small_sums_are_dropped_at_the_end_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(annotation, "BATCH", 4)
    found = counted(tmp_path / "it", Words(), texts(23), least=8)
    assert dict(found.items()) == {0: 23, "a": 23, "b0": 8, "b1": 8}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([1], "policy Words: count must return a mapping of keys to numbers, not list"),
        ({"a": 0.5}, "policy Words: count: numbers must be whole, so that their sum is the same"),
        ({(1.5,): 1}, "policy Words: count: a key of statistics must be text, a whole number or"),
    ],
)
def test_what_cannot_be_added_up_is_refused(given, says, tmp_path):
    with pytest.raises(ConfigError) as caught:
        sums.count(Words(given=given), texts(1), tmp_path)
    assert str(caught.value).startswith(says)


def test_an_error_names_the_policy_and_the_passages(tmp_path):
    class Broken(Words):
        def count(self, passages):
            raise ValueError("no")

    with pytest.raises(StageError) as caught:
        sums.count(Broken(), texts(1), tmp_path)
    said = "policy Broken: counting passages 'p' to 'p' failed: ValueError: no"
    assert str(caught.value).startswith(said)


@dataclass(frozen=True)
class Twice(Words):
    """Counts words, and then the words that occur twice."""

    passes: ClassVar = 2

    def count(self, passages, statistics=None):
        found = super().count(passages)
        if statistics is None:
            return found
        return {key: number for key, number in found.items() if statistics[key] >= 2}


@dataclass(frozen=True)
class Shares(Twice):
    """Turns the sums into shares of the words of other passages."""

    def condense(self, statistics, contrast):
        for key, number in statistics.items():
            if key != 0:
                yield key, number / (1 + contrast[key])


def test_a_second_pass_has_the_sums_of_the_first_one():
    found = sums.statistics_of(Twice(), texts(5))
    assert dict(found.items()) == {0: 5, "a": 5, "b0": 2, "b1": 2}


def test_condensed_statistics_take_the_place_of_the_sums():
    found = sums.statistics_of(Shares(), texts(5), contrast=texts(2))
    assert dict(found.items()) == {"a": 5 / 3, "b0": 2.0, "b1": 2.0}
    assert found["nothing"] == 0.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({1.5: 2}, "policy Wrong: condense: a key of statistics must be text, a whole number or a"),
        ([("a", "b")], "policy Wrong: condense failed: ValueError: could not convert string to"),
        (3, "policy Wrong: condense failed: TypeError: 'int' object is not iterable"),
    ],
)
def test_condensed_statistics_of_another_kind_are_refused(given, says):
    class Wrong(Words):
        def condense(self, statistics):
            return given

    with pytest.raises((ConfigError, StageError)) as caught:
        sums.statistics_of(Wrong(), texts(1))
    assert str(caught.value).startswith(says)


def test_a_policy_that_compares_corpora_needs_both():
    with pytest.raises(ConfigError, match="policy Shares: compares the corpus with another one"):
        sums.statistics_of(Shares(), texts(5))


def test_memory_holds_a_part_of_what_lies_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(sums, "_TOGETHER", 1 << 11)
    tables = ({f"{table} {key}": 1 for key in range(2000)} | {"all": 1} for table in range(40))
    tracemalloc.start()
    try:
        sums.write(map(Statistics.of, tables), tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    found = Statistics.open(tmp_path)
    assert len(found) == 80_001 and found["all"] == 40
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert peak < written < 3_000_000
