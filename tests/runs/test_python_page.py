"""The code of docs/python.md and docs/tutorial.ipynb runs as it stands, with smaller trainings."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from typing import Any

import pytest
from matplotlib.figure import Figure
from pages import DOCS, blocks

import maskpolicy as mp

SMALL = (
    *("world.people=8", "world.general_people=4", "seeds=[0,1]"),
    *(
        f"{name}.{key}"
        for name in ("general", "intermediate", "finetune")
        for key in ("steps=2", "warmup=1", "batch_size=2", "precision=fp32")
    ),
)


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """Execute pieces of code one after the other; returns their names and what each shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MASKPOLICY_STORE", raising=False)
    run = mp.run
    monkeypatch.setattr(mp, "run", lambda what, *_, **more: run(what, *SMALL, **more, jobs=1))

    def executed(pieces: Iterable[str]) -> tuple[dict[str, Any], list[Any]]:
        names: dict[str, Any] = {}
        return names, [shown(piece, names) for piece in pieces]

    return executed


def shown(code: str, names: dict[str, Any]) -> Any:
    """Execute code, and return the value of its last line if that is an expression."""
    *rest, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        exec(code, names)
        return None
    exec(compile(ast.Module(rest, []), "<code>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<code>", "eval"), names)


@pytest.mark.slow
def test_the_page(executed, tmp_path):
    code = [block.text for block in blocks(DOCS / "python.md") if block.language == "python"]
    assert len(code) == 5
    names, _ = executed(code)
    found = names["found"]
    assert set(found.scores().policy) == {"none", "random", "salient-span target=full"}
    assert isinstance(found.plot(), Figure)
    assert (tmp_path / "board.html").is_file() and (tmp_path / "runs" / "mine").is_dir()
    masked = {part for *_, part in names["masked"].spans}
    assert len(masked) == 2 and masked < {"Ada Lovelace", "London", "1815"}


def cells() -> list[Any]:
    """Return the cells of the notebook."""
    return list(json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"])


def test_the_notebook_holds_no_output():
    code = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []


@pytest.mark.slow
def test_the_notebook(executed, tmp_path, capsys):
    names, values = executed(
        "".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code"
    )
    figures = [value for value in values if isinstance(value, Figure)]
    assert len(figures) == 2
    assert isinstance(names["found"], mp.Runs) and len(names["answers"])
    rows = {"none", "original", "random", "salient-span", "two spans"}
    assert set(names["joined"].scores().policy) == rows
    assert (tmp_path / "board.html").is_file()
    assert capsys.readouterr().out.count("<mask>") >= 3
