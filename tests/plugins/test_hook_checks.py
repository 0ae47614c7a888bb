"""The check of plugins' classes: messages about classes that do not fit the table of hooks."""

import functools
import re
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Any

import pytest
from maskpolicy.policies import salient_span
from refusals import messages, refused

from maskpolicy.core.errors import ConfigError, StageError
from maskpolicy.experiment.definition import TaskBlock
from maskpolicy.plugins import discovery, hooks, registry
from maskpolicy.plugins.registry import check_hooks as check


def select(self, passage, rng):
    return passage.pieces[:0]


def annotate(self, passages, fitted):
    return {}


def by_statistics(self, passage, rng, statistics):
    return passage.pieces[:0]


def count(self, passages):
    return {}


def fit(self, data, spec, out, tools):
    return {}


def made(**attributes: Any) -> type:
    """Return a policy's class with a field `ratio` and some attributes."""
    members = {"select": select, **attributes}
    return make_dataclass("Made", [("ratio", float, 0.5)], namespace=members)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"annotate": annotate, "fit": fit, "depends": lambda self: 1, "fits_to_denoising": True},
        {"annotate": lambda self, *given: {}},
        {"annotate": staticmethod(lambda passages, fitted: {})},
        {"select": functools.wraps(select)(lambda *given: select(*given))},
        {"only_select": ("ratio",), "files": ["words.txt"]},
        {"helper": 1, "longest": lambda self: 3, "_anotate": 2},
        {"select": by_statistics, "count": count, "min_count": 3, "passes": 2},
        {"count": lambda self: 3, "condense": 1},  # no hooks, as nothing reads statistics
        {"selected": 1},  # almost `select`, which is there too
    ],
)
def test_a_class_that_fits_is_taken(attributes):
    check("policy", made(**attributes), "it")


@pytest.mark.parametrize(("attributes", "says"), messages(__file__, "hooks.txt"))
def test_a_class_that_does_not_fit_is_refused(attributes, says):
    plugin = eval(f"made({attributes})", globals())
    line = refused(check, "policy", plugin, "my.py:3: policy 'mine'")
    assert line.startswith("my.py:3: policy 'mine'")
    assert says in line


class Typed(made()):
    ratio: float = 0.4


class New(made()):
    longest: int = 3


@pytest.mark.parametrize(
    ("plugin", "name"),
    [
        (Typed, "ratio"),
        (New, "longest"),
        (type("Plain", (made(),), {"ratio": 0.4}), "ratio"),
        (dataclass(type("Plain", (made(),), {"ratio": 0.4})), "ratio"),
        (type("Last", (type("Between", (made(),), {"ratio": 0.4}),), {}), "ratio"),
        (dataclass(type("Mixed", (type("Mixin", (), {"ratio": 0.4}), made()), {})), "ratio"),
    ],
)
def test_a_default_that_a_subclass_would_not_have_is_refused(plugin, name):
    assert plugin().ratio == 0.5
    says = f"`{name}` has no effect in this subclass: write `{name}: TYPE = "
    refused(check, "policy", plugin, "it", match=says)
    check("policy", dataclass(Typed), "it")


@dataclass(frozen=True)
class Broken:
    def __post_init__(self):
        self.compiled = re.compile("a")

    def depends(self):
        return {}["version"]

    def examples_of(self, passages):
        return [passages[0]]


def test_errors_in_other_methods_of_a_plugin_name_it_and_its_line():
    entry = registry.Registered("policy", "broken", Broken, {}, __file__, 1)
    said = refused(discovery.build, entry, {}, "row")
    assert re.fullmatch(r"row: FrozenInstanceError: cannot .* \(\S+test_hook_checks.py:\d+\)", said)
    policy = object.__new__(Broken)
    for call in (registry.depends, registry.gives_examples):
        said = refused(call, policy, error=StageError, match=r"^policy Broken: .* failed: \w+Error")
        assert "test_hook_checks.py:" in said


def test_a_required_hook_that_is_missing_is_named_with_its_signature():
    with pytest.raises(ConfigError, match=r"it has no method `example`: add example\(self, row\)"):
        check("task", object, "it")


class Mine:
    select = select


def policy(name, **how):
    return registry.policy(name, **how)(Mine)


@pytest.mark.parametrize(
    ("register", "says"),
    [
        (lambda: policy(""), r"^.*test_hook_checks\.py:\d+: @policy needs a name first"),
        (lambda: policy(3), "needs a name first"),
        (lambda: policy("none"), "policy 'none' is a name of maskpolicy's own"),
        (lambda: registry.analysis("all")(Mine), "analysis 'all' is a name"),
        (lambda: policy("mine", tagret="full"), "did you mean 'target'"),
        (
            lambda: registry.policy("mine")(make_dataclass("It", [("label", str)])),
            "has a field 'label', a reserved name: rename it",
        ),
        (lambda: registry.policy("mine")(policy), r"\.py:\d+: policy 'mine' must be a class"),
        (
            lambda: registry.task("mine")(type("It", (), {"example": count, "evidences": count})),
            r"^\S+:\d+: task 'mine' defines `evidences`",
        ),
    ],
)
def test_what_is_no_plugin_is_refused_in_one_line(register, says, monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", {})
    refused(register, match=says)
    assert registry._ENTRIES == {}


@pytest.mark.parametrize("kind", hooks.HOOKS)
def test_the_documentation_has_the_table(kind):
    page = Path(__file__).parents[2] / "docs" / "development" / "extending.md"
    assert hooks.table(kind) in page.read_text(encoding="utf-8"), (
        "`maskpolicy list hooks --markdown`"
    )


def test_no_field_of_a_task_has_the_name_of_a_key_of_any_task():
    keys = {field.name for field in fields(TaskBlock)} - {"fields"}
    assert registry.RESERVED["task"] == keys


def test_a_method_with_more_has_the_parameters_of_the_one_that_it_overrides():
    bases = (salient_span.SalientSpan,)
    others = type("Others", bases, {"select": lambda self, passage, rng, **more: 0})
    plain = type("Plain", (others,), {"select": lambda self, passage, rng: 0})
    assert hooks.SELECT.extra(others) == hooks.SELECT.extra(others()) == {"example"}
    assert hooks.SELECT.extra(plain()) == set()
    assert hooks.SELECT.extra(type("Own", (), {"select": lambda self, *two, **more: 0})) == set()


def test_helpers_of_a_subclass_are_no_fields():
    helpers = {"__annotations__": {"_seen": "dict", "LIMIT": "int"}, "_seen": {}, "LIMIT": 3}
    check("policy", type("Helped", (made(),), helpers), "it")


def test_a_property_that_fails_is_an_error_and_not_the_default():
    failing = property(lambda self: self.nrm)
    task = type("Task", (), {"metric": failing, "choose": property(lambda self: {}["a"])})
    for hook, why in ((hooks.METRIC, "AttributeError: .* 'nrm'"), (hooks.CHOOSE, "KeyError: 'a'")):
        with pytest.raises(ConfigError, match=f"^Task: `{hook.name}` failed: {why}"):
            hook.of(task())
    assert hooks.EDITION.of(task()) == "auto"


def test_a_subclass_that_annotates_itself_states_again_which_fields_only_select_reads():
    own = type("Own", (salient_span.SalientSpan,), {"annotate": annotate})
    again = type("Again", (own,), {"only_select": ("spans",)})
    others = type("Others", (salient_span.SalientSpan,), {"select": select})
    names = salient_span.SalientSpan.only_select
    found = [hooks.only_select(kind()) for kind in (own, again, others, salient_span.SalientFirst)]
    assert found == [(), ("spans",), names, ("ratio",)]
