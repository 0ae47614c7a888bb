"""How the house is built: dependencies run one way, in no circle, and past no plugin."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = (
    ("types", "errors"),
    ("registry",),
    ("config", "corpus", "masking", "batching"),
    ("training", "model"),
    ("stages",),
    ("cli",),
)
ABOVE = {
    name: {other for layer in LAYERS[index + 1 :] for other in layer}
    for index, layer in enumerate(LAYERS)
    for name in layer
}


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {module(path): path for path in (ROOT / "maskpolicy").rglob("*.py")}


def statements(node: ast.AST, lazy: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run: with the module, or (`lazy`) inside a function too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not lazy:
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from statements(child, lazy)


def imported(name: str, lazy: bool) -> set[str]:
    """Return the full names that a module imports; `from a import b` is a.b if that is a file."""
    found = set()
    for each in statements(ast.parse(FILES[name].read_text()), lazy):
        if isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
        else:
            full = {f"{each.module}.{alias.name}" for alias in each.names}
            found |= {one if one in FILES else str(each.module) for one in full}
    return found - {name}


@cache
def needed(name: str) -> frozenset[str]:
    """Return the modules of ours that are loaded with a module."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = (imported(waiting.pop(), lazy=False) & FILES.keys()) - found
        found |= new
        waiting += new
    return frozenset(found)


@pytest.mark.parametrize("name", ABOVE)
def test_dependencies_run_one_way(name):
    members = [m for m in FILES if f"{m}.".startswith(f"maskpolicy.{name}.")]
    assert members
    loaded = {
        one.removeprefix("maskpolicy.").partition(".")[0] for m in members for one in needed(m)
    }
    assert not loaded & ABOVE[name]


def test_no_module_imports_itself_by_a_detour():
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for other in sorted(imported(name, lazy=True) & FILES.keys()):
                visit(other, (*path, name))
            done.add(name)

    for name in FILES:
        visit(name, ())


def test_the_framework_names_no_plugin():
    for name in FILES:
        tops = {each.partition(".")[0] for each in imported(name, lazy=True)}
        assert not tops & {"policies", "tasks", "tests", "benchmarks"}, name


def test_a_plugin_imports_no_other_plugin():
    for path in [*(ROOT / "policies").glob("*.py"), *(ROOT / "tasks").glob("*.py")]:
        for each in statements(ast.parse(path.read_text()), lazy=True):
            names = [each.module or ""] if isinstance(each, ast.ImportFrom) else []
            names += [alias.name for alias in each.names]
            assert not {name.partition(".")[0] for name in names} & {"policies", "tasks"}, path


def test_the_table_of_modules_names_each_once():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = [line for line in text.splitlines() if line.startswith("| `")]
    named = [name for line in table for name in re.findall(r"`([a-z_]+)/?`", line.split("|")[1])]
    top = {name.split(".")[1] for name in FILES if name.count(".")}
    assert sorted(named) == sorted(top - {"__main__", "analyses"})
