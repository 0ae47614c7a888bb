"""Statistics of a corpus: numbers by key, sorted by hash, merged part by part."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskpolicy.core.errors import ConfigError, DataError
from maskpolicy.plugins import statistics
from maskpolicy.plugins.statistics import Statistics, merged

parts = st.one_of(st.text(max_size=4), st.integers(-9, 2**40))
keys = st.one_of(parts, st.tuples(parts), st.tuples(parts, parts))
counters = st.dictionaries(keys, st.integers(-5, 10**12), max_size=12)


@pytest.mark.parametrize("has_clashes", [False, True])
@given(st.lists(counters, min_size=1, max_size=5), counters)
def test_a_merge_is_the_sum_of_its_tables_even_if_keys_have_one_hash(has_clashes, found, absent):
    whole: Counter = Counter()
    for each in found:
        whole.update(each)
    with pytest.MonkeyPatch.context() as patch:
        if has_clashes:
            patch.setattr(statistics, "_digest", lambda code: bytes([len(code) % 2] * 8))
        made = merged([Statistics.of(each) for each in found])
        assert dict(made.items()) == dict(whole)
        assert [made[key] for key in whole] == list(whole.values())
        assert made.numbers([*whole, *absent]).tolist() == [whole[key] for key in [*whole, *absent]]
    assert len(made) == len(whole)


@given(st.lists(counters, min_size=2, max_size=4))
def test_the_order_of_tables_changes_no_byte(found):
    tables = [Statistics.of(each) for each in found]
    one, other = merged(tables), merged([merged(tables[:1]), merged(tables[1:][::-1])])
    for name in ("hashes", "values", "ends", "codes"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({1.5: 1}, "a key of statistics must be text, a whole number or a tuple of these, not 1.5"),
        ({None: 1}, "not None"),
        ({True: 1}, "not True"),
        ({("a", ("b",)): 1}, r"not \('b',\)"),
        ({frozenset(): 1}, "not frozenset"),
        ({"a": "b"}, "statistics must be whole numbers, not 'b'"),
        ({"a": 1, "b": 0.5}, "statistics must be whole numbers, not 0.5"),
        ({"a": True}, "not True"),
        ({"a": 1, "b": False}, "not False"),
    ],
)
def test_other_keys_and_numbers_are_refused(numbers, says):
    with pytest.raises(ConfigError, match=says):
        Statistics.of(numbers)


def test_a_folder_without_statistics_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no statistics: name the folder of"):
        Statistics.open(tmp_path)


def test_statistics_say_which_keys_they_have():
    found = Statistics.of({"a": 2, 3: 1, ("b", 4): 1})
    assert "a" in found and 3 in found and ("b", 4) in found
    assert "b" not in found and 0 not in found
    assert set(found) == {"a", 3, ("b", 4)}
