from __future__ import annotations

from dataclasses import dataclass, make_dataclass

import pytest

from maskpolicy.core.errors import ConfigError
from maskpolicy.plugins import registry


@pytest.fixture(autouse=True)
def empty(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", {})
    monkeypatch.setattr(registry, "_CLASHES", {})


def policy(name: str, **how: object):
    @registry.policy(name, **how)
    class Hidden:
        """Hide nothing.

        Not even this.
        """

        def select(self, passage, rng):
            return passage.pieces[:0]

    return Hidden


class Asks:
    def example(self, row):
        return None


def test_a_name_stands_for_its_plugin_facts_and_place():
    made = policy("mine", target="full")
    entry = registry.entry("policy", "mine")
    assert entry.plugin is made
    assert entry.facts == {"target": "full"}
    assert entry.summary == "Hide nothing."
    assert entry.where.startswith(__file__)


def test_a_second_plugin_of_a_name_raises_with_both_places():
    first = registry.entry("policy", (policy("mine"), "mine")[1]).where

    @dataclass(frozen=True)
    class Other:
        ratio: float = 0.5

        def select(self, passage, rng):
            return passage.pieces[:0]

    with pytest.raises(ConfigError) as caught:
        registry.policy("mine")(Other)
    assert first in str(caught.value)
    assert str(caught.value).count(__file__) == 2
    assert registry.clash("policy", "mine") == str(caught.value)
    assert registry.entry("policy", "mine").where == first


@pytest.mark.parametrize("name", ["", " ", 3])
def test_a_plugin_without_a_name_is_refused_with_its_place(name):
    with pytest.raises(ConfigError, match="needs a name first") as caught:
        policy(name)
    assert str(caught.value).startswith(__file__)


def test_names_that_the_framework_uses_itself_are_refused():
    with pytest.raises(ConfigError, match="policy 'none' is a name of maskpolicy's own"):
        policy("none")
    with pytest.raises(ConfigError, match="analysis 'all' is a name"):
        registry.analysis("all")(Asks)
    registry.task("none")(Asks)


def test_an_unknown_setting_of_how_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'target'"):
        policy("mine", tagret="full")


@pytest.mark.parametrize("name", ["label", "target", "mask_exclusion"])
def test_a_field_with_a_reserved_name_is_refused(name):
    clashing = make_dataclass("Clashing", [(name, str)])
    with pytest.raises(ConfigError, match=f"{name!r}, a reserved name: rename it"):
        registry.policy("mine")(clashing)


def test_what_is_no_class_is_refused_with_its_place():
    with pytest.raises(ConfigError, match=r"\.py:\d+: policy 'mine' must be a class"):
        registry.policy("mine")(policy)
