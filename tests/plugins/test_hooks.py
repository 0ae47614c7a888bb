"""The table of hooks: what a class may define."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from maskpolicy.plugins import discovery, hooks, registry

ROOT = Path(__file__).parents[2]
EVERY = {hook.name: hook for known in hooks.HOOKS.values() for hook in known}
PAGE = (ROOT / "docs" / "development" / "extending.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", hooks.HOOKS)
def test_the_documentation_has_the_table(kind):
    assert hooks.table(kind) in PAGE, "take the table from `maskpolicy list hooks --markdown`"


def test_built_in_plugins_name_the_parameters_as_the_table_does():
    for kind in hooks.HOOKS:
        discovery.load_builtin(kind)
    for entry in (each for each in registry.entries() if registry.is_builtin(each.plugin)):
        for hook in hooks.HOOKS[entry.kind]:
            found = getattr(entry.plugin, hook.name, None)
            if hook.form == "method" and found is not None:
                names = ("self", *hook.takes)
                given = (*inspect.signature(found).parameters,)
                assert given[: len(names)] == names, entry.where
                assert {*given[len(names) :]} <= {*hook.may_take}, entry.where


def test_nothing_asks_for_a_hook_past_the_table():
    asks = re.compile(r"(?:has|get)attr\([\w.]*(?:plugin|policy|task|analysis), \"(\w+)\"")
    for path in (ROOT / "maskpolicy").rglob("*.py"):
        assert not {*asks.findall(path.read_text(encoding="utf-8"))} & EVERY.keys(), path
