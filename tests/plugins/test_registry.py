from __future__ import annotations

from dataclasses import make_dataclass

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


@pytest.mark.parametrize(
    ("register", "says"),
    [
        (lambda: policy(""), r"^.*test_registry\.py:\d+: @policy needs a name first"),
        (lambda: policy(3), "needs a name first"),
        (lambda: policy("none"), "policy 'none' is a name of maskpolicy's own"),
        (lambda: registry.analysis("all")(Asks), "analysis 'all' is a name"),
        (lambda: policy("mine", tagret="full"), "did you mean 'target'"),
        (
            lambda: registry.policy("mine")(make_dataclass("It", [("label", str)])),
            "has a field 'label', a reserved name: rename it",
        ),
        (lambda: registry.policy("mine")(policy), r"\.py:\d+: policy 'mine' must be a class"),
    ],
)
def test_what_is_no_plugin_is_refused_in_one_line(register, says):
    with pytest.raises(ConfigError, match=says):
        register()
