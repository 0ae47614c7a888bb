"""The code of the docs works: the Python pages, and a policy, task and metric of your own."""

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from pages import DOCS, SMALL, blocks

import maskpolicy as mp

SHOWN = [b for name in ("policies", "tasks", "experiments") for b in blocks(DOCS / f"{name}.md")]
ROW = '{"id": "%s", "country": "Peru", "capital": "Lima", "aliases": ["Ciudad de los Reyes"]}\n'


@pytest.fixture
def executed(monkeypatch, store):
    """Execute pieces of code one after the other; returns their names and what each shows.

    Both pages run the quickstart, which is computed once.
    """
    Path(".maskpolicy").symlink_to(store)
    run = mp.run
    keys = (*SMALL, "seeds=[0]")
    monkeypatch.setattr(mp, "run", lambda what, *_, **more: run(what, *keys, **more, jobs=1))

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
    code = [block.text for block in blocks(DOCS / "api.md") if block.language == "python"]
    assert len(code) == 7
    names, _ = executed(code)
    found = names["found"]
    assert set(found.scores().policy) == {"none", "random", "salient-span target=full"}
    assert isinstance(found.plot(), Figure)
    assert (tmp_path / "board.html").is_file() and (tmp_path / "runs" / "mine").is_dir()
    masked = {part for *_, part in names["masked"].spans}
    assert len(masked) == 2 and masked < {"Ada Lovelace", "London", "1815"}


def cells() -> list[Any]:
    """Return the cells of code of the notebook."""
    notebook = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_holds_no_output():
    assert [cell for cell in cells() if cell["outputs"] or cell["execution_count"]] == []


@pytest.mark.slow
def test_the_notebook(executed, tmp_path, capsys):
    names, values = executed("".join(cell["source"]) for cell in cells())
    figures = [value for value in values if isinstance(value, Figure)]
    assert len(figures) == 2
    assert isinstance(names["found"], mp.Runs) and len(names["answers"])
    rows = {"none", "original", "random", "salient-span", "two spans"}
    assert set(names["joined"].scores().policy) == rows
    assert (tmp_path / "board.html").is_file()
    assert capsys.readouterr().out.count("<mask>") >= 3


@pytest.fixture(scope="module")
def plugins(tmp_path_factory) -> Path:
    """A folder with the files that the pages show, each named in its first line."""
    folder = tmp_path_factory.mktemp("shown")
    (folder / "my_data").mkdir()
    (folder / "my_text").mkdir()
    for block in SHOWN:
        if block.file:
            (folder / block.file).write_text(block.text)
    for split, rows in (("train", 9), ("dev", 2)):
        path = folder / "my_data" / f"capitals-{split}.jsonl"
        path.write_text("".join(ROW % number for number in range(rows)))
    (folder / "my_text" / "a.txt").write_text("Lima is the capital of Peru.\n")
    return folder


def test_the_plugins_of_the_docs_are_used(call, done, plugins, store, monkeypatch):
    monkeypatch.chdir(plugins)
    lines = [line for block in SHOWN for line in block.text.splitlines()]
    assert "--plugin my_policy.py" in next(line for line in lines if "show first-sentence" in line)
    text = ("--plugin", "my_policy.py", "--text", "Ada wrote notes. They last.", "--json")
    place = store / "store"  # of the page, with the tokenizer of `mini`
    found = json.loads(call("show", "first-sentence", *text, "--store", place)[1])
    assert [part in "Ada wrote notes." for _, _, part in found["spans"]] == [True]
    words = ("--data", "my_data", "--plugin", "my_task.py", "--limit", "1")
    assert json.loads(call("examples", "capitals", *words)[1]) == {
        **{"id": "0", "group": "Peru", "source": "capital of Peru", "context": None},
        "targets": ["Lima", "Ciudad de los Reyes"],
    }
    metrics = json.loads(call("list", "metrics", "--plugin", "my_metric.py", "--json")[1])
    assert "last_word" in {each["name"] for each in metrics}
    out, _ = done("plan", "my_experiment.yaml", "model=mini", "-v", "--store", "store")
    for row in ("random, run 0", "random-30, run 0", "first-sentence target=full, run 0"):
        assert f"intermediate {row}" in out.replace("intermediate  ", "intermediate ")
